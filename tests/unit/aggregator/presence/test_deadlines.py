"""Deadlines that follow progress: who is waited for and how long, what a run does without a quorum, and who says so."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.presence.deadlines import Deadlines
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.shared.errors import InvalidArgument, InvalidConfig, LateUpdate, StaleRound
from fedplcc.shared.reasons import Dropped, DropReason, sentence_of
from fedplcc.shared.steering import PauseRun, ResumeRun
from fedplcc.shared.types import ClientActivity, ClientProblem, Round, RoundPhase, Run, RunStatus, Task, TaskKind
from tests.support import present
from tests.support.federation.in_process import Clock, LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.builders import a_client, a_round, a_run

TICK_S = 1.0
DEADLINE_S, SILENCE_S = 60.0, 30.0
QUORUM = {"deadline_s": DEADLINE_S, "silence_s": SILENCE_S, "min_clients": 2}
NO_QUORUM = dict.fromkeys(QUORUM)
TRAINING, EVALUATING = ClientActivity.TRAINING, ClientActivity.EVALUATING
JOINED = tuple(map(NumpyClient, ("ann", "bob", "zoe")))


class Scene:
    """One run of ann, bob and zoe, in seconds since its round 1 began to collect."""

    def __init__(self, federation: LocalFederation, *, is_initialised: bool = True, **quorum: Any) -> None:
        self.federation, self.clock = federation, federation.clock
        given = {key: value for key, value in {**QUORUM, **quorum}.items() if value is not None}
        run = federation.create("fedavg", quorum=given, run={"rounds": 3})
        self.run_id = run.run_id
        if is_initialised:
            self.do("ann")
        self.began, self.fractions = self.clock.now, dict.fromkeys(federation.clients, 0.0)
        self.tick()

    @property
    def run(self) -> Run:
        return self.federation.coordinator.get_run(self.run_id)

    @property
    def round(self) -> Round:
        current = present(self.run.current_round)
        return current

    @property
    def phase(self) -> str:
        return self.round.phase.value

    @property
    def seconds(self) -> float:
        return self.clock.now - self.began

    def task(self, name: str) -> Task:
        return self.federation.task(self.federation.clients[name])

    def do(self, *names: str) -> None:
        """Have clients do their task to the end."""
        for name in names:
            self.federation.perform(self.federation.clients[name], self.task(name))

    def aggregate(self) -> None:
        self.federation.coordinator.work()

    def tick(self) -> None:
        self.federation.coordinator.tick()

    def say(self, name: str, *, further: bool) -> None:
        """A heartbeat, which says that the client has made progress, or the same as before."""
        self.fractions[name] += 1 / 900 if further else 0.0
        activity = EVALUATING if self.round.phase is RoundPhase.EVALUATING else TRAINING
        client = self.federation.clients[name]
        self.federation.heartbeat(
            client, activity=activity, run_id=self.run_id, round=self.round.number, progress=self.fractions[name]
        )

    def wait(self, seconds: float, *, moving: tuple[str, ...] = (), alive: tuple[str, ...] = ()) -> None:
        """Let time pass in ticks, with heartbeats of clients that get on and of clients that only live."""
        for _ in range(math.ceil(seconds / TICK_S)):
            for name in moving:
                self.say(name, further=True)
            for name in alive:
                self.say(name, further=False)
            self.clock.now += TICK_S
            self.tick()

    def wait_until_dropped(self, *, moving: tuple[str, ...] = (), alive: tuple[str, ...] = ()) -> float:
        """The second in which somebody is dropped, with heartbeats as in `wait`."""
        while not self.round.dropped:
            assert self.seconds < 1000.0
            self.wait(TICK_S, moving=moving, alive=alive)
        return self.seconds

    def events(self, *types: str) -> list[tuple[str, int, str]]:
        return [(event.type, event.round, event.client_id) for event in self.federation.events(self.run_id, *types)]


# The bound: max(begin + deadline_s, last progress + silence_s) + one tick


class TestTheHardDeadline:
    HARD_S = 5 * DEADLINE_S

    def test_a_client_that_moves_is_dropped_at_it(self, federation: LocalFederation) -> None:
        scene = Scene(federation, hard_deadline_s=self.HARD_S)
        scene.do("ann", "bob")
        dropped_at = scene.wait_until_dropped(moving=("zoe",), alive=("ann", "bob"))
        assert self.HARD_S <= dropped_at <= self.HARD_S + TICK_S
        assert scene.round.dropped == {"zoe": Dropped(DropReason.SLOW, "not done after 300 s, the hard deadline")}
        assert scene.phase == "aggregating"
        assert federation.metric("clients_dropped_total", reason="slow") == 1.0

    def test_a_restart_counts_anew_whatever_the_wall_clock_says(self, federation: LocalFederation) -> None:
        scene = Scene(federation, hard_deadline_s=self.HARD_S)
        scene.do("ann", "bob")
        federation.clock.now += 10 * self.HARD_S
        federation.restart()
        scene.task("zoe")
        scene.wait(self.HARD_S - 2 * TICK_S, moving=("zoe",), alive=("ann", "bob"))
        assert scene.round.dropped == {}


def test_bytes_that_move_are_progress_without_a_single_heartbeat(federation: LocalFederation) -> None:
    scene = Scene(federation)
    client, task = federation.clients["zoe"], scene.task("zoe")
    scene.do("ann", "bob")
    update, blobs = client.work(task, federation.fetch(client, task))
    (blob, data), *_ = blobs.items()
    transfers = federation.coordinator.transfers
    model = task.payload.tensor_groups[0]
    for part in range(1, 11):
        scene.clock.now += 9.0  # within the lease
        scene.tick()
        transfers.note_received(client.client_id, client.token, model, part * model.size_bytes // 10)
    receiver = present(transfers.begin_upload(client.client_id, client.token, scene.run_id, 1, blob))
    for begin in range(0, len(data), 50):
        scene.clock.now += 9.0
        scene.tick()
        receiver.write(begin, data[begin : begin + 50])
    receiver.finish()
    receiver.close()
    assert scene.seconds > DEADLINE_S + 2 * SILENCE_S
    assert scene.round.dropped == {}
    federation.submit(client, task, update, blobs)
    assert scene.phase == "aggregating"


def test_a_client_that_cannot_do_its_task_is_dropped_at_the_deadline_however_alive(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    problem = ClientProblem(reason="OUT_OF_MEMORY", detail="there is not enough memory", hint="", is_fatal=True)
    federation.heartbeat(federation.clients["zoe"], problem=problem)
    dropped_at = scene.wait_until_dropped(moving=("zoe",), alive=("ann", "bob"))
    assert DEADLINE_S <= dropped_at <= DEADLINE_S + TICK_S
    assert scene.round.dropped == {"zoe": Dropped(DropReason.PROBLEM, "OUT_OF_MEMORY: there is not enough memory")}


def test_a_warning_of_a_client_drops_nobody(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    federation.heartbeat(federation.clients["zoe"], problem=ClientProblem(reason="BAD_FILE", detail="one file"))
    scene.wait(3 * DEADLINE_S, moving=("zoe",), alive=("ann", "bob"))
    assert scene.round.dropped == {}


@pytest.mark.parametrize("skew_s", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_drops_nobody_and_holds_nobody(skew_s: float) -> None:
    monotonic, wall = Clock(), Clock()
    sessions = Sessions(10.0, monotonic)
    deadlines = Deadlines(sessions, wall_clock=wall, monotonic_clock=monotonic)
    deadlines.observe([])
    run = a_run(current_round=a_round(phase_started_at={"collecting": wall.now}))
    absent = []
    for second in range(80):
        for name in ("ann", "bob"):
            sessions.join(a_client(name), "token")
        deadlines.observe([run])
        found = deadlines.presence(run, deadline_s=DEADLINE_S, silence_s=SILENCE_S)
        absent += [second] if found.absent else []
        wall.now += TICK_S + (skew_s if second == 30 else 0.0)
        monotonic.now += TICK_S
    assert absent == list(range(60, 80))


# What a dropped client means for the round


def test_a_round_goes_on_with_a_quorum_and_everybody_can_see_without_whom(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    scene.wait(DEADLINE_S + TICK_S, alive=("ann", "bob"))
    scene.aggregate()
    assert scene.phase == "evaluating"
    scene.do("ann", "bob")
    assert scene.round.number == 2, "who gave no update is not waited for to report"
    (first,) = [json.loads(line) for line in federation.metrics_lines(scene.run_id) if line]
    assert first["dropped"] == ["zoe"]
    assert first["num_examples"] == 2 * 12
    assert first["accuracy"]["zoe-domain"] is None
    assert first["accuracy"]["mean"] is not None
    found = federation.coordinator.list_rounds(scene.run_id)[1]
    assert found.dropped["zoe"].reason is DropReason.LOST
    assert scene.events("client_dropped") == [("client_dropped", 1, "zoe")]
    (event,) = federation.events(scene.run_id, "client_dropped")
    assert (event.data["reason"], event.data["detail"][:14]) == ("lost", "not connected,")
    assert federation.metric("clients_dropped_total", reason="lost") == 1.0
    assert federation.metric("clients_dropped_total", reason="silent") == 0.0
    assert scene.round.cohort == ("ann", "bob", "zoe"), "the next cohort is selected as ever"
    assert scene.round.dropped == {}


def test_a_dropped_client_takes_part_again_when_it_is_back(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    late = scene.task("zoe")
    update, blobs = federation.clients["zoe"].work(late, federation.fetch(federation.clients["zoe"], late))
    scene.wait(DEADLINE_S + TICK_S, alive=("ann", "bob"))
    federation.join()
    with pytest.raises(LateUpdate):
        federation.submit(federation.clients["zoe"], late, update, blobs)
    scene.aggregate()
    assert scene.task("zoe").kind is TaskKind.EVALUATE, "it may report on the model that was made without it"
    scene.do("zoe", "ann", "bob")
    assert scene.round.number == 2
    with pytest.raises(StaleRound):
        federation.submit(federation.clients["zoe"], late, update, blobs)
    scene.do("ann", "bob", "zoe")
    assert set(scene.round.updates) == {"ann", "bob", "zoe"}
    (first,) = [json.loads(line) for line in federation.metrics_lines(scene.run_id) if line]
    assert first["accuracy"]["zoe-domain"] is not None
    assert first["dropped"] == ["zoe"], "its update is still missing"


# Without a quorum


def test_without_a_quorum_a_run_waits_says_for_whom_and_goes_on_when_they_are_back(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann")
    scene.wait(DEADLINE_S + TICK_S, alive=("ann", "bob"))
    reason = sentence_of(scene.run.reason)
    assert reason.startswith(
        "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (silent: connected, "
    )
    assert "zoe (lost: not connected, last progress at 1970-01-01 00:16:40 UTC)" in reason
    assert scene.run.status is RunStatus.RUNNING
    assert scene.round.dropped == {}, "whoever comes back is part of the round"
    assert federation.metric("runs_without_quorum") == 1.0
    scene.wait(100 * TICK_S, alive=("ann", "bob"))
    assert sentence_of(scene.run.reason) == reason, "the same facts are the same words, and no more events"
    assert scene.events("quorum_missing") == [("quorum_missing", 1, "")]
    scene.wait(2 * TICK_S, moving=("bob",), alive=("ann",))
    assert sentence_of(scene.run.reason) == ""
    assert set(scene.round.dropped) == {"zoe"}
    assert federation.metric("runs_without_quorum") == 0.0
    scene.do("bob")
    assert scene.phase == "aggregating"
    assert [kind for kind, *_ in scene.events("quorum_missing", "quorum_regained", "client_dropped")] == [
        "quorum_missing",
        "client_dropped",
        "quorum_regained",
    ]


def test_a_run_that_is_to_fail_without_a_quorum_fails_with_the_same_words(federation: LocalFederation) -> None:
    scene = Scene(federation, on_no_quorum="fail")
    scene.do("ann")
    scene.wait(DEADLINE_S - TICK_S, alive=("ann", "bob"))
    assert scene.run.status is RunStatus.RUNNING
    scene.wait(2 * TICK_S, alive=("ann", "bob"))
    run = scene.run
    assert run.status is RunStatus.FAILED
    assert sentence_of(run.reason).startswith(
        "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (silent: "
    )
    (event,) = federation.events(scene.run_id, "run_failed")
    assert event.data == {"reason": sentence_of(run.reason)}


def test_every_domain_needs_a_client_of_each(tmp_path: Path) -> None:
    clients = [NumpyClient("ann", "north"), NumpyClient("bob", "north"), NumpyClient("zoe", "south")]
    with LocalFederation(tmp_path, clients) as federation:
        federation.join()
        scene = Scene(federation, every_domain=True, min_clients=None)
        scene.do("ann", "bob")
        scene.wait(DEADLINE_S + TICK_S, alive=("ann", "bob"))
        assert sentence_of(scene.run.reason).startswith(
            "round 1 has no quorum, no client of domain south; missing: zoe (lost: "
        )
        federation.join()
        scene.do("zoe")
        assert scene.phase == "aggregating"
        scene.aggregate()
        scene.do("ann", "bob", "zoe")
        scene.do("ann", "zoe")
        began = scene.clock.now
        scene.wait(DEADLINE_S + TICK_S, alive=("ann", "zoe"))
        assert scene.clock.now - began < DEADLINE_S + 2 * TICK_S
        assert (scene.round.phase, set(scene.round.dropped)) == (RoundPhase.AGGREGATING, {"bob"})


# Round 0


def test_a_first_model_that_does_not_come_is_asked_of_the_next_client(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False)
    assert scene.task("ann").kind is TaskKind.INIT
    assert scene.task("bob").kind is TaskKind.WAIT
    scene.wait(DEADLINE_S - TICK_S, alive=("zoe",))
    told: list[Collection[str]] = []
    federation.coordinator.subscribe(lambda tasks_of, _runs: told.append(tasks_of))
    scene.wait(2 * TICK_S, alive=("zoe",))
    assert any("zoe" in names for names in told), "zoe's stream is woken: it has a task now"
    assert (list(scene.round.cohort), set(scene.round.dropped)) == (["ann", "zoe"], {"ann"}), "bob is away as well"
    assert scene.events("client_dropped", "client_asked") == [("client_dropped", 0, "ann"), ("client_asked", 0, "zoe")]
    scene.wait(20.0, alive=("zoe",))
    assert list(scene.round.cohort) == ["ann", "zoe"], "zoe has the whole time that ann had"
    scene.do("zoe")
    assert (scene.round.number, list(scene.round.cohort)) == (1, ["ann", "bob", "zoe"])
    first = federation.coordinator.list_rounds(scene.run_id)[0]
    assert (first.phase, set(first.dropped)) == (RoundPhase.COMMITTED, {"ann"})


def test_two_clients_that_were_asked_for_the_first_model_give_one(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False)
    task = scene.task("ann")
    scene.wait(DEADLINE_S + TICK_S, alive=("bob", "zoe"))
    assert scene.round.cohort == ("ann", "bob")
    federation.join()
    scene.do("ann")
    assert scene.round.number == 1
    update, blobs = federation.clients["bob"].work(task, None)
    with pytest.raises(StaleRound):
        federation.submit(federation.clients["bob"], task, update, blobs)
    first = federation.whole_round(scene.run_id, 0)
    assert (set(first.updates), first.dropped) == ({"ann"}, {})


def test_without_anybody_to_ask_for_the_first_model_the_run_waits_and_says_so(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False)
    scene.wait(DEADLINE_S + TICK_S)
    assert sentence_of(scene.run.reason).startswith(
        "round 0 has no quorum, nobody is there to make the first model; missing: ann (lost"
    )
    federation.join()
    scene.do("ann")
    assert (scene.round.number, sentence_of(scene.run.reason)) == (1, "")


def test_a_client_that_cannot_make_the_first_model_holds_no_run_up(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False, **NO_QUORUM)
    problem = ClientProblem(reason="INVALID_DATA", detail="there is no image", hint="", is_fatal=True)
    scene.task("ann")
    federation.heartbeat(federation.clients["ann"], problem=problem)
    scene.tick()
    assert scene.round.cohort == ("ann", "bob"), "without any deadline, the next one is asked at once"
    assert scene.round.dropped == {"ann": Dropped(DropReason.PROBLEM, "INVALID_DATA: there is no image")}
    scene.do("bob")
    assert (scene.round.number, list(scene.round.cohort)) == (1, ["ann", "bob", "zoe"])


def test_a_client_whose_first_model_is_refused_holds_no_run_up(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False, **NO_QUORUM)
    ann, task = federation.clients["ann"], scene.task("ann")
    update, blobs = ann.work(task, None)
    with pytest.raises(InvalidArgument):
        federation.submit(ann, task, replace(update, num_examples=-1), blobs)
    scene.tick()
    assert scene.round.cohort == ("ann", "bob")
    assert scene.round.dropped["ann"].reason is DropReason.PROBLEM
    assert scene.round.dropped["ann"].detail.startswith("its first model was refused: ")


def test_the_only_client_that_is_left_is_asked_again_whatever_its_problem(federation: LocalFederation) -> None:
    scene = Scene(federation, is_initialised=False, **NO_QUORUM)
    problem = ClientProblem(reason="INVALID_DATA", detail="there is no image", hint="", is_fatal=True)
    for name in ("ann", "bob", "zoe"):
        federation.heartbeat(federation.clients[name], problem=problem)
    scene.wait(5 * TICK_S, alive=("ann", "bob", "zoe"))
    assert scene.round.cohort == ("ann", "bob", "zoe")
    assert set(scene.round.dropped) == {"ann", "bob"}
    assert scene.task("zoe").kind is TaskKind.INIT
    scene.do("zoe")
    assert scene.round.number == 1


# Restarts and pauses


def test_nobody_is_dropped_because_the_aggregator_was_away(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    scene.clock.now += 10 * DEADLINE_S
    federation.store.close()
    federation._start()  # nobody has joined yet
    scene.wait(SILENCE_S - TICK_S)
    assert scene.round.dropped == {}, "the phase is long overdue, but who could have said anything?"
    scene.wait(2 * TICK_S)
    assert scene.round.dropped == {"zoe": Dropped(DropReason.LOST, "not connected")}


def test_the_clock_of_a_phase_goes_on_over_a_restart(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    scene.wait(DEADLINE_S - 10.0, alive=("ann", "bob", "zoe"))
    federation.restart()
    scene.task("zoe")
    dropped_at = scene.wait_until_dropped(alive=("ann", "bob", "zoe"))
    restarted_at = DEADLINE_S - 10.0
    assert restarted_at + SILENCE_S <= dropped_at <= restarted_at + SILENCE_S + 2 * TICK_S


def test_a_run_that_waited_for_a_quorum_goes_on_waiting_over_a_restart(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann")
    scene.wait(DEADLINE_S + TICK_S, alive=("ann",))
    reason = sentence_of(scene.run.reason)
    assert reason
    federation.store.close()
    federation._start()
    federation.coordinator.join(federation.clients["ann"].record, federation.clients["ann"].token)
    scene.wait(SILENCE_S - TICK_S, alive=("ann",))
    assert sentence_of(scene.run.reason) == reason
    scene.wait(2 * TICK_S, alive=("ann",))
    assert sentence_of(scene.run.reason).endswith("missing: bob (lost: not connected), zoe (lost: not connected)")
    assert scene.events("quorum_regained") == []
    federation.join()
    scene.do("bob", "zoe")
    assert (scene.phase, sentence_of(scene.run.reason)) == ("aggregating", "")


def test_a_paused_run_drops_nobody_and_begins_its_phase_anew(federation: LocalFederation) -> None:
    scene = Scene(federation)
    scene.do("ann", "bob")
    scene.wait(DEADLINE_S - 5.0, alive=("ann", "bob"))
    federation.coordinator.steer(scene.run_id, PauseRun(now=True))
    scene.wait(10 * DEADLINE_S, alive=("ann", "bob"))
    assert scene.round.dropped == {}
    federation.coordinator.steer(scene.run_id, ResumeRun())
    scene.wait(DEADLINE_S - TICK_S, alive=("ann", "bob"))
    assert scene.round.dropped == {}
    scene.wait(2 * TICK_S, alive=("ann", "bob"))
    assert set(scene.round.dropped) == {"zoe"}


# Configuration that needs the aggregator's own


def test_a_silence_below_the_lease_is_refused(federation: LocalFederation) -> None:
    with pytest.raises(
        InvalidConfig, match=r"quorum.silence_s = 5: at least 10, the lease of this aggregator in seconds"
    ):
        federation.create("fedavg", quorum={**QUORUM, "silence_s": 5.0})


def test_a_model_of_all_clients_images_is_refused_where_they_are_apart(federation: LocalFederation) -> None:
    with pytest.raises(InvalidConfig, match="which only a simulation has") as caught:
        federation.create("fedavg", data={"validation_every": 5}, evaluation={"joining": "pooled"})
    assert caught.value.metadata["location"] == "evaluation.joining"


def test_a_simulation_of_a_run_with_a_quorum_has_the_bytes_of_one_without(tmp_path: Path) -> None:
    lines = []
    for name, sections in (("with", {"quorum": QUORUM}), ("without", {})):
        clients = [NumpyClient(client) for client in ("ann", "bob", "zoe")]
        (tmp_path / name).mkdir()
        with LocalFederation(tmp_path / name, clients, Limits(heartbeat_interval_s=math.inf)) as federation:
            federation.join()
            run = federation.create("fedavg", **sections)
            for _ in range(100):
                for client in clients:  # one after the other, each for an hour
                    federation.perform(client, federation.task(client))
                    federation.clock.now += 3600.0
                federation.coordinator.work()
                federation.coordinator.tick()
            assert federation.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED
            lines.append(federation.metrics_lines(run.run_id))
    assert lines[0] == lines[1]
