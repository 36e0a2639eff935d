"""Group commit: changes that arrive together are one transaction, each answered after it and refused alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from fedplcc.aggregator.ledger.changes import Changes
from fedplcc.aggregator.ledger.groups import Groups, Waiting
from fedplcc.aggregator.store.database.sql_store import SqlTransaction
from fedplcc.shared.errors import ClientNotFound, LateUpdate, MalformedRequest, RunDeleted, RunEnded, StoreUnavailable
from fedplcc.shared.run_lists import LabelChange
from fedplcc.shared.types import Client, ClientActivity, ClientProblem, Event, Heartbeat, Run, RunStatus, TaskKind
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

NAMES = tuple(f"client-{index}" for index in range(6))
PATIENCE_S = 60.0
JOINED = tuple(map(NumpyClient, NAMES))


@pytest.fixture
def run(federation: LocalFederation) -> Run:
    """A run whose round 1 has opened; nobody has trained in it."""
    run = federation.create()
    federation.step(NAMES[:1])
    return federation.coordinator.get_run(run.run_id)


class Writes:
    """Counts transactions and saved rows of runs."""

    def __init__(self, federation: LocalFederation, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transactions = self.saved_runs = 0
        self.failing: Exception | None = None
        transaction, save_run = federation.store.transaction, SqlTransaction.save_run

        @contextmanager
        def counted() -> Iterator[SqlTransaction]:
            if self.failing is not None:
                raise self.failing
            with transaction() as opened:
                yield opened
            self.transactions += 1

        def save(self_: SqlTransaction, run: Run) -> None:
            self.saved_runs += 1
            save_run(self_, run)

        monkeypatch.setattr(federation.store, "transaction", counted)
        monkeypatch.setattr(SqlTransaction, "save_run", save)


@pytest.fixture
def writes(federation: LocalFederation, run: Run, monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(federation, monkeypatch)


def at_the_same_time(federation: LocalFederation, calls: Sequence[Callable[[], object]]) -> list[object]:
    """Make calls in threads while the ledger's lock is held, so that all wait; returns answers and errors in order."""
    ledger = federation.coordinator._ledger
    outcomes: list[object] = [None] * len(calls)

    def make(index: int) -> None:
        try:
            outcomes[index] = calls[index]()
        except Exception as error:
            outcomes[index] = error

    threads = [threading.Thread(target=make, args=(index,)) for index in range(len(calls))]
    with ledger.lock:
        for number, thread in enumerate(threads, 1):
            thread.start()
            deadline = time.monotonic() + PATIENCE_S
            while len(ledger._groups._waiting) < number:
                assert time.monotonic() < deadline, "the call does not arrive"
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    return outcomes


def commit_of(federation: LocalFederation, name: str) -> Callable[[], object]:
    """Return the call that commits a client's update for its present task, whose blobs are uploaded."""
    client = federation.clients[name]
    task = federation.task(client)
    assert task.run is not None
    assert task.kind is TaskKind.TRAIN
    update, blobs = client.work(task, federation.fetch(client, task))
    federation.upload(client, task, blobs)
    run_id, number = task.run.run_id, task.round
    return lambda: federation.coordinator.commit_update(name, client.token, run_id, number, update)


def test_updates_that_arrive_together_are_one_transaction_that_writes_what_changed(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    calls = [commit_of(federation, name) for name in NAMES[:5]]
    answers = at_the_same_time(federation, calls)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert writes.transactions == 1
    assert writes.saved_runs == 0, "no phase closed: neither the run's row nor the round's"
    committed = present(federation.coordinator.get_run(run.run_id).current_round)
    assert set(committed.updates) == set(NAMES[:5])
    events = [event.client_id for event in federation.events(run.run_id, "update_committed")]
    assert sorted(events[1:]) == sorted(NAMES[:5])


def test_the_update_that_closes_the_phase_writes_run_and_round_in_the_same_transaction(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    at_the_same_time(federation, [commit_of(federation, name) for name in NAMES])
    assert (writes.transactions, writes.saved_runs) == (1, 1)
    before = federation.coordinator.get_run(run.run_id)
    federation.restart()
    after = present(federation.store.find_run(run.run_id))
    assert after.current_round == before.current_round, "the store has the round as memory had it"


def test_a_refused_change_of_a_group_fails_alone(federation: LocalFederation, run: Run, writes: Writes) -> None:
    good, bad = commit_of(federation, NAMES[0]), federation.clients[NAMES[1]]
    task, update, blobs = federation.work(bad)
    federation.upload(bad, task, blobs)
    late = commit_of(federation, NAMES[2])

    def stopped() -> object:
        return federation.coordinator._ledger.together(
            lambda changes: changes.step(*quarantined(changes, run.run_id, NAMES[1]))
        )

    outcomes = at_the_same_time(
        federation,
        [stopped, lambda: federation.coordinator.commit_update(NAMES[1], bad.token, run.run_id, 1, update), good, late],
    )
    assert "quarantined" in str(outcomes[1])
    assert not [outcome for outcome in outcomes[2:] if isinstance(outcome, Exception)]
    current = present(federation.coordinator.get_run(run.run_id).current_round)
    assert set(current.updates) == {NAMES[0], NAMES[2]}


def quarantined(changes: Changes, run_id: str, name: str) -> tuple[Run, Run]:
    """Return a run, and the run with a client quarantined."""
    from fedplcc.aggregator.rounds.machine import members

    run = present(changes.find_open(run_id))
    return run, members.quarantine(run, name, "for a test")


def test_a_database_that_is_away_fails_all_and_changes_nothing(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    calls = [commit_of(federation, name) for name in NAMES[:3]]
    before = federation.coordinator.get_run(run.run_id)
    writes.failing = StoreUnavailable("the disk is full")
    outcomes = at_the_same_time(federation, calls)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert federation.coordinator.get_run(run.run_id).current_round == before.current_round
    writes.failing = None
    for call in calls:
        call()  # each is taken when it comes again
    current = present(federation.coordinator.get_run(run.run_id).current_round)
    assert set(current.updates) == set(NAMES[:3])


def test_a_change_that_the_database_refuses_fails_alone(federation: LocalFederation, run: Run, writes: Writes) -> None:
    poisoned = Event(type="client_problem", client_id="a\0b", data={}, time=1.0)
    calls = [commit_of(federation, name) for name in NAMES[:2]]
    calls.insert(1, lambda: federation.coordinator._ledger.together(lambda changes: changes.record(poisoned)))
    outcomes = at_the_same_time(federation, calls)
    assert isinstance(outcomes[1], MalformedRequest)
    assert not isinstance(outcomes[0], Exception)
    assert not isinstance(outcomes[2], Exception)
    current = present(federation.coordinator.get_run(run.run_id).current_round)
    assert set(current.updates) == {NAMES[0], NAMES[1]}


def test_a_run_that_ends_within_a_group_takes_nothing_more(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    from fedplcc.aggregator.rounds.machine import run_moves
    from fedplcc.aggregator.rounds.machine.run_moves import RunEvent

    def end(changes: Changes) -> None:
        open_run = present(changes.find_open(run.run_id))
        stopping = changes.step(open_run, run_moves.stop(open_run, reason="for a test"))
        changes.step(stopping, run_moves.move(stopping, RunEvent.ALL_IDLE))

    commit = commit_of(federation, NAMES[0])
    outcomes = at_the_same_time(federation, [lambda: federation.coordinator._ledger.together(end), commit])
    assert isinstance(outcomes[1], RunEnded | LateUpdate)
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.STOPPED


def test_leases_that_expire_together_are_one_transaction(federation: LocalFederation, run: Run, writes: Writes) -> None:
    federation.clock.now += federation.coordinator._limits.lease_s + 1.0
    federation.coordinator.tick()
    assert writes.transactions == 1
    assert sorted(event.client_id for event in federation.events("", "client_lost")) == sorted(NAMES)


def test_leases_that_could_not_be_ended_are_ended_at_the_next_tick(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    federation.clock.now += federation.coordinator._limits.lease_s + 1.0
    writes.failing = StoreUnavailable("the disk is full")
    with pytest.raises(StoreUnavailable):
        federation.coordinator.tick()
    writes.failing = None
    federation.coordinator.tick()
    assert len(federation.events("", "client_lost")) == len(NAMES)


def test_heartbeats_tasks_and_reads_wait_for_no_write(federation: LocalFederation, run: Run) -> None:
    coordinator, client = federation.coordinator, federation.clients[NAMES[0]]
    is_held, is_over = threading.Event(), threading.Event()

    def write() -> None:
        with coordinator._ledger.lock:
            is_held.set()
            is_over.wait(PATIENCE_S)

    writer = threading.Thread(target=write)
    writer.start()
    is_held.wait()
    answers: list[Any] = []

    def read() -> None:
        heartbeat = Heartbeat(client_id=NAMES[0], activity=ClientActivity.TRAINING, run_id=run.run_id, round=1)
        answers.append(coordinator.heartbeat(heartbeat, client.token))
        answers.append(coordinator.task(NAMES[0], client.token).kind)
        answers.append(coordinator.task_if_connected(NAMES[0], client.token).kind)
        answers.append(coordinator.get_run(run.run_id).run_id)
        answers.append(len(coordinator.list_runs(limit=10)))
        answers.append(len(coordinator.list_clients()))

    reader = threading.Thread(target=read)
    reader.start()
    reader.join(PATIENCE_S / 2)
    was_blocked = reader.is_alive()
    is_over.set()
    reader.join()
    writer.join()
    assert not was_blocked
    assert answers == [True, TaskKind.TRAIN, TaskKind.TRAIN, run.run_id, 1, len(NAMES)]


def test_a_reported_problem_is_written_although_its_sign_of_life_is_not(
    federation: LocalFederation, run: Run, writes: Writes
) -> None:
    client = federation.clients[NAMES[0]]
    problem = ClientProblem(reason="DISK_FULL", detail="no room", hint="make room")
    heartbeat = Heartbeat(client_id=NAMES[0], activity=ClientActivity.IDLE)
    assert not federation.coordinator.has_consequences(heartbeat)
    federation.coordinator.heartbeat(heartbeat, client.token)
    assert writes.transactions == 0
    reporting = Heartbeat(client_id=NAMES[0], activity=ClientActivity.IDLE, problem=problem)
    assert federation.coordinator.has_consequences(reporting)
    federation.coordinator.heartbeat(reporting, client.token)
    assert writes.transactions == 1


def test_callers_that_arrive_while_a_group_is_written_form_the_next() -> None:
    lock, written = threading.RLock(), list[list[int]]()
    entered, may_go_on = threading.Event(), threading.Event()

    def write(group: Sequence[Waiting[int]]) -> None:
        written.append([waiting.change for waiting in group])
        entered.set()
        may_go_on.wait(PATIENCE_S)
        for waiting in group:
            waiting.succeed(-waiting.change)

    groups: Groups[int] = Groups(lock, write)
    answers: dict[int, int] = {}
    threads = [
        threading.Thread(target=lambda number=number: answers.update({number: groups.join(number)}))
        for number in range(5)
    ]
    threads[0].start()
    entered.wait()
    for number, thread in enumerate(threads[1:], 1):
        thread.start()
        while len(groups._waiting) < number:
            time.sleep(0.001)
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert written == [[0], [1, 2, 3, 4]]
    assert answers == {number: -number for number in range(5)}


def test_an_error_in_the_writing_itself_keeps_nobody_waiting() -> None:
    def write(group: Sequence[Waiting[int]]) -> None:
        raise ValueError("a bug")

    groups: Groups[int] = Groups(threading.RLock(), write)
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            groups.join(1)


def test_a_client_that_joins_again_while_its_lease_ends_stays(federation: LocalFederation) -> None:
    federation.clock.now += federation.coordinator._limits.lease_s + 1.0
    name = NAMES[0]
    client = federation.clients[name]
    ended = federation.coordinator._sessions.end_expired()
    federation.coordinator.join(Client(client_id=name, domain=client.domain, num_examples=1), client.token)
    federation.coordinator._sessions.restore(ended)
    assert federation.coordinator._sessions.connected() == [name]


def labels(federation: LocalFederation, run_id: str, **what: Any) -> Callable[[], object]:
    """Return the call that changes what is noted about a run."""
    return lambda: federation.coordinator.labels.change(run_id, LabelChange(**what))


@pytest.mark.parametrize("order", [1, -1])
def test_a_run_that_is_deleted_while_it_is_archived_or_fetched_back_is_deleted_and_keeps_its_tags(
    federation: LocalFederation, order: int
) -> None:
    run_id = federation.create(run={"rounds": 1}).run_id
    federation.run_to_end(run_id)
    for is_archived in (True, False):
        labels(federation, run_id, is_archived=is_archived, tags=("before",))()
    delete = partial(federation.coordinator.delete_run, run_id)
    change = labels(federation, run_id, is_archived=True, tags=("paper",))
    calls: list[Callable[[], object]] = [change, delete]
    calls = calls[::order]
    outcomes = dict(zip(calls, at_the_same_time(federation, calls), strict=True))
    found = federation.store.find_labels(run_id)
    assert found.deleted_at is not None
    is_late = isinstance(outcomes[change], RunDeleted)
    assert (found.tags, is_late) == (("before",), True) if order < 0 else (("paper",), False)
    assert federation.store.deleted_runs() == [run_id]


def test_two_people_who_note_things_about_a_run_at_once_both_do(federation: LocalFederation, run: Run) -> None:
    at_the_same_time(
        federation, [labels(federation, run.run_id, tags=("a",)), labels(federation, run.run_id, notes="b")]
    )
    found = federation.store.find_labels(run.run_id)
    assert (found.tags, found.notes) == (("a",), "b")


def test_a_client_that_two_people_forget_at_once_is_forgotten_once(federation: LocalFederation) -> None:
    federation.join()
    forget = partial(federation.coordinator.forget_client, NAMES[0])
    outcomes = at_the_same_time(federation, [forget, forget])
    assert [type(each) for each in outcomes] == [Client, ClientNotFound]
    assert len(federation.events("", "client_forgotten")) == 1
