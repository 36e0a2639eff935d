"""Clients one by one: who is shown, for how long, what of it is computed at the scrape, and that nobody can make it many."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.clients import KEEP_LOST_S, KEEP_PROBLEM_S
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.readings import READINGS
from fedplcc.shared.steering import QuarantineClient
from fedplcc.shared.types import Client, ClientActivity, ClientProblem, Heartbeat
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.records.builders import a_run

LEASE_S = 10.0


class Scene:
    """Sessions, and metrics that follow them."""

    def __init__(self, most: int = 256) -> None:
        self.clock = Clock()
        self.registry: CollectorRegistry = new_registry("aggregator")
        self.metrics = AggregatorMetrics(self.registry, max_clients=most)
        self.metrics.clients.series.use_clock(self.clock)
        self.sessions = Sessions(LEASE_S, self.clock)

    def join(self, client_id: str, **readings: float) -> Session:
        session = self.sessions.join(Client(client_id=client_id, domain="city"), f"token of {client_id}")
        self.sessions.record_heartbeat(session, Heartbeat(client_id=client_id, readings=readings))
        return session

    def leave(self, client_id: str) -> None:
        session = self.sessions.find(client_id)
        assert session is not None
        now, self.clock.now = self.clock.now, self.clock.now + LEASE_S + 1
        self.sessions.remove(session)
        self.clock.now = now

    def follow(self, *roster: str) -> None:
        self.metrics.clients.follow(self.sessions, [a_run(roster=roster)])

    def shown(self, name: str) -> dict[str, float]:
        return {
            sample.labels["client"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"fedplcc_client_{name}"
        }


def test_a_connected_client_is_shown_with_its_readings_and_its_silence_at_the_moment() -> None:
    scene = Scene()
    scene.join("ann", **{name: index + 0.5 for index, name in enumerate(READINGS)})
    scene.join("bob")
    scene.follow()
    scene.clock.now += 3.0
    assert scene.shown("connected") == {"ann": 1, "bob": 1}
    assert scene.shown("silence_seconds") == {"ann": 3.0, "bob": 3.0}
    for index, reading in enumerate(READINGS.values()):
        assert scene.shown(reading.metric.removeprefix("client_")) == {"ann": index + 0.5}, "bob tells nothing"
    scene.sessions.check("ann", "token of ann")
    assert scene.shown("silence_seconds") == {"ann": 0.0, "bob": 3.0}, "it needs no tick"


def test_a_reading_that_is_not_told_any_more_is_gone() -> None:
    scene = Scene()
    ann = scene.join("ann", batch_seconds=0.5, samples_per_second=7.0)
    scene.follow()
    scene.sessions.record_heartbeat(ann, Heartbeat(client_id="ann", readings={"samples_per_second": 8.0}))
    assert scene.shown("batch_seconds") == {}
    assert scene.shown("training_samples_per_second") == {"ann": 8.0}


def test_a_client_that_is_lost_grows_silent_and_tells_nothing() -> None:
    scene = Scene()
    scene.join("ann", batch_seconds=0.5)
    scene.follow()
    scene.clock.now += 20.0
    scene.leave("ann")
    scene.follow()
    assert scene.shown("connected") == {"ann": 0}
    assert scene.shown("silence_seconds") == {"ann": 20.0}
    assert scene.shown("batch_seconds") == {}
    scene.join("ann", batch_seconds=0.25)
    scene.follow()
    assert scene.shown("connected") == {"ann": 1}
    assert scene.shown("silence_seconds") == {"ann": 0.0}
    assert scene.shown("batch_seconds") == {"ann": 0.25}


def test_a_client_that_was_lost_long_ago_is_gone_unless_an_open_run_names_it() -> None:
    scene = Scene()
    for name in ("ann", "bob"):
        scene.join(name)
    scene.follow("ann")
    scene.leave("ann")
    scene.leave("bob")
    scene.clock.now += KEEP_LOST_S - 1
    scene.follow("ann")
    assert set(scene.shown("connected")) == {"ann", "bob"}
    scene.clock.now += 1
    scene.follow("ann")
    assert scene.shown("silence_seconds") == {"ann": KEEP_LOST_S}
    scene.follow()
    assert scene.shown("connected") == {}, "its run has ended"


def test_a_client_of_an_open_run_that_never_came_is_silent_since_the_aggregator_was_started() -> None:
    scene = Scene()
    scene.clock.now += 42.0
    scene.follow("ann")
    assert scene.shown("connected") == {"ann": 0}
    assert scene.shown("silence_seconds") == {"ann": 42.0}


def test_beyond_the_bound_there_are_no_series_and_clients_of_open_runs_come_first() -> None:
    scene = Scene(most=4)
    for index in range(50):
        scene.join(f"stranger-{index:02}")
    scene.follow()
    assert len(scene.shown("connected")) == 4
    scene.join("bob")
    scene.follow("ann", "bob")
    shown = scene.shown("connected")
    assert len(shown) == 4
    assert shown | {"ann": 0, "bob": 1} == shown
    scene.follow("ann", "bob", "cat", "dan", "eve")
    assert set(scene.shown("connected")) == {"ann", "bob", "cat", "dan"}
    states = {labels["state"]: value for labels, value in all_of(scene.registry, "fedplcc_clients")}
    assert states["connected"] == 51, "all of them are counted"


def all_of(registry: CollectorRegistry, name: str) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == name
    ]


def test_nothing_is_shown_of_single_clients_where_that_is_switched_off() -> None:
    scene = Scene(most=0)
    scene.join("ann", batch_seconds=0.5)
    scene.follow("ann", "bob")
    assert not [line for line in generate_latest(scene.registry).decode().splitlines() if "client=" in line]
    assert {labels["state"]: value for labels, value in all_of(scene.registry, "fedplcc_clients")}["connected"] == 1


def test_a_reading_that_is_not_known_becomes_no_metric() -> None:
    scene = Scene()
    before = {family.name for family in scene.registry.collect()}
    scene.join("ann", bogus=1.0, **{f"reading-{index}": 1.0 for index in range(100)})
    scene.follow()
    assert {family.name for family in scene.registry.collect()} == before
    assert b"bogus" not in generate_latest(scene.registry)


def test_clients_are_counted_by_state(federation: LocalFederation) -> None:
    run = federation.create(run={"rounds": 3})
    federation.heartbeat(federation.clients["ann"], activity=ClientActivity.TRAINING, run_id=run.run_id, round=0)
    federation.coordinator.steer(run.run_id, QuarantineClient("bob"))
    federation.coordinator.tick()
    states = {
        state: federation.metric("clients", state=state)
        for state in ("registered", "connected", "training", "idle", "uploading", "quarantined")
    }
    assert states == {"registered": 2, "connected": 2, "training": 1, "idle": 1, "uploading": 0, "quarantined": 1}
    federation.start_again()
    federation.coordinator.tick()
    assert federation.metric("clients", state="registered") == 2, "also after a restart, before anybody has joined"
    assert federation.metric("clients", state="connected") == 0
    assert federation.metric("clients", state="quarantined") == 1
    federation.join()
    assert federation.metric("clients", state="registered") == 2


# Through the coordinator


def test_the_clients_of_an_open_run_are_missed_after_a_restart_until_they_join(federation: LocalFederation) -> None:
    federation.create(run={"rounds": 3})
    federation.start_again()
    federation.coordinator.tick()
    federation.clock.now += 7.0
    assert federation.metric("client_connected", client="ann") == 0
    assert federation.metric("client_silence_seconds", client="ann") == 7.0
    federation.join()
    federation.coordinator.tick()
    assert federation.metric("client_connected", client="ann") == 1
    assert federation.metric("client_silence_seconds", client="ann") == 0


def test_problems_are_counted(federation: LocalFederation) -> None:
    ann = federation.clients["ann"]
    for detail in ("no data", "no data", "no disk"):
        federation.heartbeat(ann, problem=ClientProblem(reason="X", detail=detail))
    assert federation.metric("client_problems_total") == 2


def test_a_client_that_cannot_do_its_task_is_counted_until_it_can(federation: LocalFederation) -> None:
    def with_problems() -> float | None:
        federation.coordinator.tick()
        return federation.metric("clients_with_problems")

    ann = federation.clients["ann"]
    hopeless = ClientProblem(reason="X", detail="no data", is_fatal=True)
    federation.heartbeat(ann, problem=hopeless)
    assert with_problems() == 0, "nobody asks anything of it"
    federation.create(run={"rounds": 1})
    task = federation.task(ann)
    federation.heartbeat(ann, problem=replace(hopeless, detail="still no data"))
    assert with_problems() == 1
    assert with_problems() == 1, "as long as it lasts"
    federation.perform(ann, task)
    assert with_problems() == 0


def test_a_problem_is_shown_while_it_lasts_and_to_a_few_scrapes_more(federation: LocalFederation) -> None:
    def wait(seconds: float) -> float | None:
        until = federation.clock.now + seconds
        while federation.clock.now < until:
            federation.clock.now = min(until, federation.clock.now + 5.0)
            for client in federation.clients.values():
                federation.heartbeat(client)
        federation.coordinator.tick()
        assert federation.metric("client_has_problem", client="bob") == 0
        return federation.metric("client_has_problem", client="ann")

    ann = federation.clients["ann"]
    federation.create(run={"rounds": 1})
    task = federation.task(ann)
    hopeless = ClientProblem(reason="X", detail="no data", is_fatal=True)
    federation.heartbeat(ann, problem=hopeless)
    assert wait(2 * KEEP_PROBLEM_S) == 1
    federation.perform(ann, task)
    assert wait(0) == 0
    federation.heartbeat(ann, problem=replace(hopeless, is_fatal=False))
    assert federation.metric("clients_with_problems") == 0
    assert wait(KEEP_PROBLEM_S - 1) == 1
    federation.join()
    assert wait(0) == 1, "it stays with the trainer"
    assert wait(1) == 0
