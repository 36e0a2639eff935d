"""Creating, pausing, resuming and stopping runs, as the gateway asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fedplcc.aggregator.computation.aggregation import Aggregated, aggregate
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import (
    BlobNotFound,
    InvalidConfig,
    InvalidTransition,
    MalformedRequest,
    PayloadCorrupt,
    RequestIdReused,
    RoundNotFound,
    RunEnded,
    RunNotFound,
)
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.steering import PauseRun, QuarantineClient, ResumeRun, StopRun, Verb
from fedplcc.shared.types import BlobRef, ClientActivity, EventQuery, RoundPhase, Run, RunStatus, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.oracles.federation_result import expected

CLIENTS = ("ann", "bob")


def undisturbed(method: str = "fedavg", rounds: int = 2) -> str:
    config = parse_run_config(a_document(method, run={"rounds": rounds}))
    return expected(config, [NumpyClient(name) for name in CLIENTS]).models[-1]


def sha256(run: Run) -> str:
    assert run.model is not None
    return run.model.sha256


def status(federation: LocalFederation, run: Run) -> RunStatus:
    return federation.coordinator.get_run(run.run_id).status


def until_round(federation: LocalFederation, run: Run, number: int) -> Run:
    """Let everybody work until this round is open and nobody has begun with it: ann comes last, so she opens it."""
    while federation.coordinator.get_run(run.run_id).round_number < number:
        assert federation.step(["bob", "ann"])
    return federation.coordinator.get_run(run.run_id)


# Creating and looking


def test_the_same_request_is_the_same_run(federation: LocalFederation) -> None:
    first = federation.coordinator.create_run("mine", a_document())
    again = federation.coordinator.create_run("mine", a_document())
    assert again.run_id == first.run_id
    federation.run_to_end(first.run_id)
    federation.restart()
    after = federation.coordinator.create_run("mine", a_document())
    assert (after.run_id, after.status) == (first.run_id, RunStatus.COMPLETED)
    assert len(federation.coordinator.list_runs(limit=10)) == 1


def test_a_request_id_with_another_configuration_is_refused(federation: LocalFederation) -> None:
    first = federation.coordinator.create_run("mine", a_document())
    with pytest.raises(RequestIdReused) as refused:
        federation.coordinator.create_run("mine", a_document(run={"seed": 1}))
    assert refused.value.metadata == {"run_id": first.run_id}
    assert len(federation.coordinator.list_runs(limit=10)) == 1


@pytest.mark.parametrize("request_id", ["", "x" * 129])
def test_a_request_id_has_1_to_128_characters(federation: LocalFederation, request_id: str) -> None:
    with pytest.raises(MalformedRequest):
        federation.coordinator.create_run(request_id, a_document())


def test_a_run_that_does_not_exist_is_named_whatever_is_asked_of_it(federation: LocalFederation) -> None:
    coordinator = federation.coordinator
    for ask in (
        lambda: coordinator.get_run("nothing"),
        lambda: coordinator.steer("nothing", PauseRun()),
        lambda: coordinator.steer("nothing", ResumeRun()),
        lambda: coordinator.steer("nothing", StopRun()),
        lambda: coordinator.list_rounds("nothing"),
        lambda: coordinator.list_evaluations("nothing"),
        lambda: coordinator.list_events(EventQuery(run_id="nothing")),
        lambda: coordinator.list_runs(limit=1, before="nothing"),
        lambda: coordinator.artifact("nothing", -1, "model"),
        lambda: coordinator.has_ended("nothing"),
    ):
        with pytest.raises(RunNotFound) as refused:
            ask()
        assert refused.value.metadata == {"run_id": "nothing"}


def test_there_is_no_artifact_before_a_round_committed_it(federation: LocalFederation) -> None:
    run = federation.create("fedplcc")
    for number in (-1, 0, 1, 7):
        for kind in ("model", "prototypes"):
            with pytest.raises(RoundNotFound):
                federation.coordinator.artifact(run.run_id, number, kind)
    run = until_round(federation, run, 1)
    assert federation.coordinator.artifact(run.run_id, -1, "model")[0] == run.model
    with pytest.raises(RoundNotFound):
        federation.coordinator.artifact(run.run_id, 1, "model")


# Pausing and resuming


@pytest.mark.parametrize("now", [False, True])
@pytest.mark.parametrize("steps", range(8))
def test_a_run_paused_at_any_step_ends_in_the_unpaused_runs_model(
    federation: LocalFederation, steps: int, now: bool
) -> None:
    method = "fedplcc"
    run = federation.create(method)
    names = list(CLIENTS)
    for step in range(steps):  # one client at a time, so that pauses fall into the middle of every phase
        federation.step([names[step % 2]])
    before = federation.coordinator.get_run(run.run_id)
    paused = federation.coordinator.steer(run.run_id, PauseRun(now=now))
    if now:
        assert (paused.status, paused.current_round) == (RunStatus.PAUSED, before.current_round)
        assert all(federation.task(client).kind is TaskKind.WAIT for client in federation.clients.values())
    else:
        assert (paused.status, paused.is_pause_requested) == (RunStatus.RUNNING, True)
        federation.run_to_end(run.run_id)
        paused = federation.coordinator.get_run(run.run_id)
        if paused.status is RunStatus.COMPLETED:  # the open round was the last
            assert before.round_number == 2
            assert sha256(paused) == undisturbed(method)
            return
        assert (paused.status, paused.round_number) == (RunStatus.PAUSED, before.round_number)
    resumed = federation.coordinator.steer(run.run_id, ResumeRun())
    assert resumed.status is RunStatus.RUNNING
    assert sha256(federation.run_to_end(run.run_id)) == undisturbed(method)


def _model(federation: LocalFederation, run: Run) -> bytes:
    return federation.coordinator.artifact(run.run_id, -1, "model")[1].read_bytes()


def test_a_trainer_of_a_paused_run_is_told_that_its_work_is_not_wanted(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    ann = federation.clients["ann"]
    working = {"activity": ClientActivity.TRAINING, "run_id": run.run_id, "round": 1, "progress": 0.5}
    federation.task(ann)
    assert federation.heartbeat(ann, **working)
    federation.coordinator.steer(run.run_id, PauseRun())
    assert federation.heartbeat(ann, **working), "a pause waits for the round"
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    assert not federation.heartbeat(ann, **working)
    assert federation.heartbeat(ann, activity=ClientActivity.IDLE)


# The same request again


def test_a_retry_that_arrives_after_a_later_wish_changes_nothing(federation: LocalFederation) -> None:
    """Pause, its lost answer, resume by somebody else, and only then the retry: the run goes on."""
    run = until_round(federation, federation.create(), 1)
    coordinator = federation.coordinator
    assert coordinator.steer(run.run_id, PauseRun(now=True), request_id="p").status is RunStatus.PAUSED
    assert coordinator.steer(run.run_id, PauseRun(now=True), request_id="p").status is RunStatus.PAUSED
    coordinator.steer(run.run_id, ResumeRun(), request_id="r")
    before, events = coordinator.get_run(run.run_id), federation.events()
    assert coordinator.steer(run.run_id, PauseRun(now=True), request_id="p") == before
    coordinator.steer(run.run_id, PauseRun(), request_id="later")
    assert coordinator.steer(run.run_id, ResumeRun(), request_id="r").is_pause_requested, "the second pause waits on"
    assert federation.events()[: len(events)] == events
    assert [event.type for event in federation.events()[len(events) :]] == ["pause_requested"]
    coordinator.steer(run.run_id, ResumeRun())
    assert sha256(federation.run_to_end(run.run_id)) == undisturbed()
    assert coordinator.steer(run.run_id, StopRun(), request_id="s").status is RunStatus.COMPLETED
    assert coordinator.steer(run.run_id, StopRun(), request_id="s").status is RunStatus.COMPLETED


def test_a_request_that_had_nothing_to_change_is_remembered_too(federation: LocalFederation) -> None:
    run = federation.create()
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.coordinator.steer(run.run_id, PauseRun(now=True), request_id="again")
    federation.coordinator.steer(run.run_id, ResumeRun())
    assert federation.coordinator.steer(run.run_id, PauseRun(now=True), request_id="again").status is RunStatus.RUNNING


def test_a_request_that_was_refused_may_come_again(federation: LocalFederation) -> None:
    eve = NumpyClient("eve")
    run = federation.coordinator.create_run("mine", a_document(clients=("ann", "eve")))
    with pytest.raises(InvalidTransition):
        federation.coordinator.steer(run.run_id, PauseRun(), request_id="p")
    federation.coordinator.join(eve.record, eve.token)
    assert federation.coordinator.steer(run.run_id, PauseRun(), request_id="p").is_pause_requested


@pytest.mark.parametrize("verb", [PauseRun(), ResumeRun(), StopRun()], ids=["pause", "resume", "stop"])
def test_a_done_request_stays_done_when_the_aggregator_starts_again(federation: LocalFederation, verb: Verb) -> None:
    run = until_round(federation, federation.create(), 1)
    if verb == ResumeRun():
        federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.coordinator.steer(run.run_id, verb, request_id="once")
    if verb == ResumeRun():
        federation.coordinator.steer(run.run_id, PauseRun(now=True))
    elif verb == PauseRun():
        federation.coordinator.steer(run.run_id, ResumeRun())
    federation.restart()
    before = federation.coordinator.get_run(run.run_id)
    assert federation.coordinator.steer(run.run_id, verb, request_id="once") == before


def test_one_request_id_means_one_wish(federation: LocalFederation) -> None:
    run, other = federation.create(), federation.create()
    coordinator = federation.coordinator
    coordinator.steer(run.run_id, PauseRun(), request_id="mine")
    before = federation.events()
    wishes: tuple[Callable[[], object], ...] = (
        lambda: coordinator.steer(run.run_id, PauseRun(now=True), request_id="mine"),
        lambda: coordinator.steer(other.run_id, PauseRun(), request_id="mine"),
        lambda: coordinator.steer(run.run_id, ResumeRun(), request_id="mine"),
        lambda: coordinator.steer(run.run_id, StopRun(), request_id="mine"),
        lambda: coordinator.create_run("mine", a_document()),
        lambda: coordinator.steer(run.run_id, StopRun(), request_id="request 0"),  # that one created the run
    )
    for wish in wishes:
        with pytest.raises(RequestIdReused, match="with a new id"):
            wish()
    assert federation.events() == before
    coordinator.steer(other.run_id, StopRun(reason="enough"), request_id="s")
    with pytest.raises(RequestIdReused):
        coordinator.steer(other.run_id, StopRun(reason="too much"), request_id="s")


def test_a_request_id_to_steer_with_is_at_most_128_characters_long(federation: LocalFederation) -> None:
    run = federation.create()
    for length in (128, 129):
        if length == 129:
            with pytest.raises(MalformedRequest, match="at most 128"):
                federation.coordinator.steer(run.run_id, PauseRun(), request_id="x" * length)
        else:
            federation.coordinator.steer(run.run_id, PauseRun(), request_id="x" * length)


# Stopping


def test_a_run_stopped_in_a_round_is_stopping_until_its_trainers_are_idle(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    ann, bob = federation.clients.values()
    for client in (ann, bob):
        assert federation.task(client).kind is TaskKind.TRAIN
    working = {"activity": ClientActivity.TRAINING, "run_id": run.run_id, "round": 1}
    assert federation.heartbeat(ann, **working)
    stopped = federation.coordinator.steer(run.run_id, StopRun(reason="enough"))
    assert (stopped.status, sentence_of(stopped.reason)) == (RunStatus.STOPPING, "enough")
    assert not federation.heartbeat(ann, **working)
    for client in (ann, bob):
        told = federation.task(client)
        assert (told.kind, told.run and told.run.run_id) == (TaskKind.STOP, run.run_id)
    federation.idle(ann)
    assert status(federation, run) is RunStatus.STOPPING
    assert federation.task(ann).kind is TaskKind.WAIT
    federation.idle(bob)
    after = federation.coordinator.get_run(run.run_id)
    assert (after.status, sentence_of(after.reason), after.round_number) == (RunStatus.STOPPED, "enough", 1)
    assert after.model == run.model, "the last committed round is kept"
    types = [event.type for event in federation.events(run.run_id)]
    assert types[-2:] == ["run_stopping", "run_stopped"]


def test_a_run_that_nobody_works_for_stops_at_once(federation: LocalFederation) -> None:
    pending = federation.coordinator.create_run("r", a_document(clients=("ann", "eve")))
    stopped = federation.coordinator.steer(pending.run_id, StopRun())
    assert (stopped.status, sentence_of(stopped.reason)) == (RunStatus.STOPPED, "stopped by request")
    paused = federation.create()
    federation.coordinator.steer(paused.run_id, PauseRun(now=True))
    assert federation.coordinator.steer(paused.run_id, StopRun()).status is RunStatus.STOPPED


def test_a_stop_does_not_wait_for_a_trainer_that_has_vanished(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    ann, bob = federation.clients.values()
    for client in (ann, bob):
        federation.task(client)
    federation.coordinator.steer(run.run_id, StopRun())
    federation.task(ann)
    federation.idle(ann)
    lease_s = Limits().lease_s
    federation.clock.now += lease_s
    federation.idle(ann)
    federation.coordinator.tick()
    assert status(federation, run) is RunStatus.STOPPING, "its lease still lives"
    federation.clock.now += 0.1
    federation.coordinator.tick()
    assert status(federation, run) is RunStatus.STOPPED
    (lost,) = federation.events("", "client_lost")
    assert lost.client_id == "bob"


def test_a_stop_does_not_wait_for_a_member_of_other_runs_whatever_it_says(federation: LocalFederation) -> None:
    run, eve = federation.create(), NumpyClient("eve")
    federation.coordinator.join(eve.record, eve.token)
    assert not federation.heartbeat(eve, activity=ClientActivity.TRAINING, run_id=run.run_id, round=0)
    assert federation.coordinator.steer(run.run_id, StopRun()).status is RunStatus.STOPPED
    federation.coordinator.delete_run(run.run_id)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_stop_waits_two_leases_for_a_client_that_never_says_that_it_is_idle(
    federation: LocalFederation, is_restarted: bool
) -> None:
    run = until_round(federation, federation.create(), 1)
    ann, bob = federation.clients.values()
    training = {"activity": ClientActivity.TRAINING, "run_id": run.run_id, "round": 1}
    for client in (ann, bob):
        federation.task(client)
        federation.heartbeat(client, **training)
    federation.coordinator.steer(run.run_id, StopRun())
    if is_restarted:
        federation.restart()
        federation.heartbeat(ann, **training)
        federation.coordinator.tick()
    federation.idle(bob)
    limits = Limits()
    for _ in range(2 * limits.lease_heartbeats):
        federation.clock.now += limits.heartbeat_interval_s
        assert not federation.heartbeat(ann, **training)
        federation.coordinator.tick()
        assert status(federation, run) is RunStatus.STOPPING, "a client that ends a long batch is given its time"
    federation.coordinator.steer(run.run_id, QuarantineClient("bob"))  # a change of the run, as a refused update may be
    federation.clock.now += 0.1
    federation.coordinator.tick()
    assert status(federation, run) is RunStatus.STOPPED
    assert not federation.heartbeat(ann, **training)


def test_an_update_for_a_stopping_run_is_refused(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    ann, bob = federation.clients.values()
    task = federation.task(ann)
    federation.task(bob)
    update, blobs = ann.work(task, _model(federation, run))
    federation.upload(ann, task, blobs)
    federation.coordinator.steer(run.run_id, StopRun())
    with pytest.raises(RunEnded, match="the run is stopping"):
        federation.coordinator.commit_update("ann", ann.token, run.run_id, 1, update)
    with pytest.raises(RunEnded):
        federation.upload(bob, task, bob.work(task, _model(federation, run))[1])


def test_a_stopping_run_ends_after_a_restart(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    for client in federation.clients.values():
        federation.task(client)
    federation.coordinator.steer(run.run_id, StopRun(reason="enough"))
    federation.restart()
    assert status(federation, run) is RunStatus.STOPPING
    federation.coordinator.tick()
    ended = federation.coordinator.get_run(run.run_id)
    assert (ended.status, sentence_of(ended.reason)) == (RunStatus.STOPPED, "enough")


def test_a_run_stopped_while_it_aggregates_takes_no_result(federation: LocalFederation) -> None:
    run = until_round(federation, federation.create(), 1)
    for client in federation.clients.values():
        federation.perform(client, federation.task(client))
    assert federation.coordinator.get_run(run.run_id).round_number == 1
    for client in federation.clients.values():
        federation.task(client)
    stopped = federation.coordinator.steer(run.run_id, StopRun())
    assert stopped.status is RunStatus.STOPPED
    assert not federation.coordinator.work()
    assert federation.coordinator.get_run(run.run_id).model == run.model


# A state directory that was tampered with


def test_a_client_that_works_for_two_runs_at_once_can_break_neither(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uploads are forgotten when any update of the client commits: here one of another run, at the worst moment."""
    run = until_round(federation, federation.create(), 1)
    ann = federation.clients["ann"]
    task, update, blobs = federation.work(ann)
    keep = BlobStore.keep

    def keep_too_late(store: BlobStore, client_id: str, kept: Iterable[BlobRef]) -> None:
        store.uploads.forget(client_id)
        keep(store, client_id, kept)

    with monkeypatch.context() as patched:
        patched.setattr(BlobStore, "keep", keep_too_late)
        with pytest.raises(BlobNotFound):
            federation.submit(ann, task, update, blobs)
    federation.submit(ann, task, update, blobs)
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_a_run_whose_aggregation_crashes_keeps_no_other_run_waiting(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing, other = federation.create(), federation.create()
    while any([federation.perform(client, federation.task(client)) for client in federation.clients.values()]):
        pass  # until both runs wait for the aggregator

    def crash_for_one(of: RoundInputs) -> Aggregated:
        if of.run.run_id == crashing.run_id:
            raise ZeroDivisionError
        return aggregate(of)

    def phases() -> list[RoundPhase]:
        runs = (federation.coordinator.get_run(run.run_id) for run in (crashing, other))
        return [run.current_round.phase for run in runs if run.current_round]

    with monkeypatch.context() as patched:
        patched.setattr("fedplcc.aggregator.aggregating.round_work.aggregate", crash_for_one)
        assert phases() == [RoundPhase.AGGREGATING, RoundPhase.AGGREGATING]
        with pytest.raises(ZeroDivisionError):
            federation.coordinator.work()
        assert federation.coordinator.work()
        assert phases() == [RoundPhase.AGGREGATING, RoundPhase.EVALUATING]
        with pytest.raises(ZeroDivisionError):
            federation.coordinator.work()
    (event,) = federation.events(crashing.run_id, "aggregation_failed")
    waiting = federation.coordinator.get_run(crashing.run_id)
    assert event.data["detail"] == sentence_of(waiting.reason)
    assert "the aggregator's log says more" in sentence_of(waiting.reason)
    assert "ZeroDivision" not in sentence_of(waiting.reason)
    while federation.coordinator.work():
        pass
    assert sentence_of(federation.coordinator.get_run(crashing.run_id).reason) == ""
    with monkeypatch.context() as patched:
        patched.setattr("fedplcc.aggregator.aggregating.round_work.aggregate", crash_for_one)
        with pytest.raises(ZeroDivisionError):
            federation.run_to_end(crashing.run_id)
    numbers = [event.round for event in federation.events(crashing.run_id, "aggregation_failed")]
    assert numbers == [1, 2], "every round's first crash is told"
    for run in (crashing, other):
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_a_damaged_run_that_was_stopped_meanwhile_stays_stopped(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = until_round(federation, federation.create(), 1)
    for client in federation.clients.values():
        federation.perform(client, federation.task(client))
        federation.task(client)

    def stopped_and_damaged(*_arguments: object) -> None:
        federation.coordinator.steer(run.run_id, StopRun())
        federation.path_of(run.model).unlink()
        raise PayloadCorrupt("a blob that the round needs is gone")

    monkeypatch.setattr("fedplcc.aggregator.aggregating.round_work.aggregate", stopped_and_damaged)
    assert federation.coordinator.work()
    assert status(federation, run) is RunStatus.STOPPED


def test_a_run_whose_stored_configuration_cannot_be_read_is_parked_alone(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable, other = federation.create(), federation.create()

    def refuse(run: Run) -> Any:
        if run.run_id == unreadable.run_id:
            raise InvalidConfig("a key that another version wrote")
        return config_of(run)

    with monkeypatch.context() as patched:
        patched.setattr("fedplcc.aggregator.histories.run_memories.config_of", refuse)
        federation.restart()
    parked = federation.coordinator.get_run(unreadable.run_id)
    assert parked.status is RunStatus.PAUSED
    assert "a key that another version wrote" in sentence_of(parked.reason)
    assert [event.type for event in federation.events(unreadable.run_id)][-1] == "run_parked"
    assert federation.run_to_end(other.run_id).status is RunStatus.COMPLETED
    federation.coordinator.steer(unreadable.run_id, ResumeRun())
    assert federation.run_to_end(unreadable.run_id).status is RunStatus.COMPLETED, (
        "after the right version was installed"
    )
