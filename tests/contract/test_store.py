"""The contract of every store (aggregator/store/base.py): transactions, runs, rounds and events."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedplcc.aggregator.store.base import ControlRequest, Store, Transaction
from fedplcc.shared.reasons import Stated
from fedplcc.shared.types import Event, EventQuery, Retired, RoundPhase, RunStatus
from tests.contract.conftest import Open
from tests.support import present
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_evaluation, an_update
from tests.support.records.stored_runs import a_full_run, add_run

# Transactions


def test_what_a_transaction_wrote_is_there_after_the_next_start(store: Store, open_store: Open) -> None:
    run = add_run(store, a_full_run())
    assert store.find_run(run.run_id) == run, "what is read back is what was in memory"
    store.close()
    assert open_store().find_run(run.run_id) == run
    assert open_store().open_runs() == [run]


def test_a_models_runs_are_those_of_which_a_round_made_it_newest_first(store: Store) -> None:
    for number, made in enumerate(("new", "new", "other")):
        run = replace(a_full_run(), run_id=f"run-{number}", created_at=100.0 + number)
        current = present(run.current_round)
        add_run(store, replace(run, current_round=replace(current, model=a_blob(made), start=a_blob(f"{made} start"))))
    assert store.runs_of_model(a_blob("new").sha256) == ["run-1", "run-0"]
    assert store.runs_of_model(a_blob("other start").sha256) == ["run-2"]
    assert store.runs_of_model(a_blob("of nobody").sha256) == []


class Interrupted(Exception):
    """Something goes wrong in the middle of a transaction."""


def interrupted(store: Store, *writes: Callable[[Transaction], None]) -> None:
    """Open a transaction, make these writes, and leave it by an exception."""

    def block() -> None:
        with store.transaction() as transaction:
            for write in writes:
                write(transaction)
            raise Interrupted

    with pytest.raises(Interrupted):
        block()


def test_a_block_that_raises_keeps_nothing(store: Store) -> None:
    run, update, report = a_full_run(), an_update("ann"), an_evaluation("bob")
    interrupted(
        store,
        lambda transaction: transaction.add_run(run, request_id="r", request_hash="h"),
        lambda transaction: transaction.add_control_request(
            ControlRequest(request_id="c", request_hash="h", run_id=run.run_id, created_at=1.0)
        ),
        lambda transaction: transaction.save_run(run),
        lambda transaction: transaction.add_update(run.run_id, 1, update),
        lambda transaction: transaction.add_evaluation(run.run_id, 1, report),
        lambda transaction: transaction.save_client(a_client()),
        lambda transaction: transaction.add_blob(a_blob("loose")),
        lambda transaction: transaction.add_event(Event(type="run_created", run_id=run.run_id)),
    )
    assert store.find_run(run.run_id) is None
    assert store.find_request("r") is None
    assert store.find_control_request("c") is None
    assert store.find_round(run.run_id, 1) is None
    assert store.list_evaluations(run.run_id) == []
    assert store.list_events(EventQuery()) == []
    assert store.list_clients() == []
    assert store.last_committed("ann") is None
    for blob in (a_blob("loose"), *update.payload.blobs):
        assert store.find_blob(blob.sha256) is None
        assert not store.has_stored("ann", blob.sha256)


def test_a_block_that_raises_keeps_what_was_there_before(store: Store) -> None:
    run = add_run(store, a_full_run())
    interrupted(
        store, lambda transaction: transaction.save_run(replace(run, status=RunStatus.FAILED, reason=Stated("no")))
    )
    assert store.find_run(run.run_id) == run


def test_reads_see_the_last_committed_state_while_a_transaction_is_open(store: Store) -> None:
    run = add_run(store, a_run())
    with store.transaction() as transaction:
        transaction.save_run(replace(run, status=RunStatus.STOPPING))
        transaction.add_event(Event(type="run_stopping", run_id=run.run_id))
        assert store.find_run(run.run_id) == run
        assert store.list_events(EventQuery()) == []
    found = present(store.find_run(run.run_id))
    assert found.status is RunStatus.STOPPING


def test_transactions_of_many_threads_take_turns_and_none_is_lost(store: Store) -> None:
    def write(name: str) -> None:
        for index in range(5):
            with store.transaction() as transaction:
                transaction.add_event(Event(type="step", client_id=name, data={"index": index}))

    threads = [threading.Thread(target=write, args=(f"thread-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = store.list_events(EventQuery())
    assert [event.sequence for event in events] == list(range(1, 21))
    for name in {event.client_id for event in events}:
        assert [event.data["index"] for event in events if event.client_id == name] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("again", ["run", "request", "update", "evaluation"])
def test_a_key_that_must_be_new_is_not_overwritten(store: Store, again: str) -> None:
    run = add_run(store, a_full_run())
    request_id = f"request of {run.run_id}"

    def write() -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(type="run_created"))
            match again:
                case "run":
                    transaction.add_run(replace(run, name="other"), request_id="other", request_hash="")
                case "request":
                    transaction.add_run(replace(run, run_id="other"), request_id=request_id, request_hash="")
                case "update":
                    transaction.add_update(run.run_id, 1, an_update("ann", content="other"))
                case "evaluation":
                    transaction.add_evaluation(run.run_id, 1, an_evaluation("bob", correct=(0, 0, 0)))

    with pytest.raises(Exception, match=r"(?i)unique constraint"):
        write()
    assert store.open_runs() == [run]
    assert store.list_events(EventQuery()) == []


# Runs and rounds


def test_saving_a_run_replaces_its_state_and_keeps_its_updates(store: Store) -> None:
    run = add_run(store, a_full_run())
    assert run.current_round is not None
    moved = replace(
        run,
        status=RunStatus.PAUSED,
        is_pause_requested=False,
        reason=None,
        roster=("ann", "bob", "zoe"),
        current_round=replace(
            run.current_round, phase=RoundPhase.COMMITTED, results_json="{}", phase_started_at={"committed": 5.0}
        ),
        model=a_blob("newer"),
        prototypes=None,
        updated_at=200.0,
    )
    with store.transaction() as transaction:
        transaction.save_run(moved)
    assert store.find_run(run.run_id) == moved


def test_a_removed_update_and_a_removed_report_are_gone_with_what_the_client_had_stored(store: Store) -> None:
    sent = a_round(1, updates={"ann": an_update("ann"), "bob": an_update("bob")})
    sent = replace(sent, evaluations={"ann": an_evaluation("ann"), "bob": an_evaluation("bob")})
    run = add_run(store, a_run(current_round=sent))
    (blob, *_) = sent.updates["bob"].payload.blobs
    assert store.has_stored("bob", blob.sha256)
    for _ in range(2):  # a missing row is fine
        with store.transaction() as transaction:
            transaction.remove_update(run.run_id, 1, sent.updates["bob"])
            transaction.remove_evaluation(run.run_id, 1, "bob")
    found = present(store.find_round(run.run_id, 1))
    assert (set(found.updates), set(found.evaluations)) == ({"ann"}, {"ann"})
    assert not store.has_stored("bob", blob.sha256)


def test_a_run_comes_with_its_latest_round_and_the_others_stay(store: Store) -> None:
    run = add_run(store, a_full_run())
    second = replace(run, current_round=a_round(2, updates={}))
    with store.transaction() as transaction:
        transaction.save_run(second)
    assert store.find_run(run.run_id) == second
    assert store.find_round(run.run_id, 1) == run.current_round
    assert store.find_round(run.run_id, 3) is None
    assert store.find_round("no such run", 1) is None


def test_the_first_report_of_a_client_is_found_in_one_read(store: Store) -> None:
    run = add_run(store, a_full_run())
    assert run.current_round is not None
    first = run.current_round.evaluations["bob"]
    later = replace(first, timings={"seconds": 2.0})
    with store.transaction() as transaction:
        transaction.save_run(replace(run, current_round=a_round(2, updates={}, evaluations={})))
        transaction.add_evaluation(run.run_id, 2, later)
    assert store.first_evaluation(run.run_id, "bob", before=3) == first
    assert store.first_evaluation(run.run_id, "bob", before=2) == first
    assert store.first_evaluation(run.run_id, "bob", before=1) is None
    assert store.first_evaluation(run.run_id, "nobody", before=3) is None
    assert store.first_evaluation("no such run", "bob", before=3) is None


def test_only_runs_that_have_not_ended_are_open_oldest_first(store: Store) -> None:
    for index, status in enumerate(RunStatus):
        add_run(store, a_run(status, run_id=f"run-{status}", created_at=100.0 - index))
    found = store.open_runs()
    assert [run.status for run in found] == [RunStatus.STOPPING, RunStatus.PAUSED, RunStatus.RUNNING, RunStatus.PENDING]
    assert found == [store.find_run(run.run_id) for run in found]


def test_retirements_are_those_of_the_newest_runs_that_have_ended(store: Store) -> None:
    retired = {"ann": Retired(round=2, is_forgotten=True), "bob": Retired(round=0, is_back=True)}
    for number in (1.0, 3.0, 2.0):
        run = a_run(run_id=f"run-{number:.0f}", status=RunStatus.COMPLETED, updated_at=number, retired=retired)
        add_run(store, run)
    add_run(store, a_run(run_id="nobody-retired", status=RunStatus.STOPPED, updated_at=4.0))
    add_run(store, a_run(run_id="open", updated_at=5.0, retired=retired))
    assert store.ended_retirements(limit=2) == [("run-3", retired), ("run-2", retired)]


def test_runs_are_listed_newest_first_page_by_page_each_once(store: Store) -> None:
    # Three were created at the same moment: their ids decide.
    for run_id, created_at in (("d", 5.0), ("b", 7.0), ("a", 7.0), ("c", 7.0), ("e", 9.0)):
        add_run(store, a_run(run_id=run_id, created_at=created_at))
    assert [run.run_id for run in store.list_runs(limit=10)] == ["e", "c", "b", "a", "d"]
    assert store.run_ids() == ["e", "c", "b", "a", "d"]
    seen: list[str] = []
    while page := store.list_runs(limit=2, before=seen[-1] if seen else ""):
        seen += [run.run_id for run in page]
    assert seen == ["e", "c", "b", "a", "d"]


def test_listed_runs_and_rounds_carry_no_updates(store: Store) -> None:
    run = add_run(store, a_full_run())
    assert run.current_round is not None
    bare = replace(run.current_round, updates={}, evaluations={})
    assert store.list_runs(limit=1) == [replace(run, current_round=bare)]
    assert store.list_rounds(run.run_id) == [bare]


def test_rounds_are_listed_in_order_from_the_one_after(store: Store) -> None:
    run = add_run(store, a_run(current_round=a_round(0)))
    for number in (1, 2, 10, 11):
        with store.transaction() as transaction:
            transaction.save_run(replace(run, current_round=a_round(number)))
    assert [found.number for found in store.list_rounds(run.run_id)] == [0, 1, 2, 10, 11]
    assert [found.number for found in store.list_rounds(run.run_id, after=0, limit=2)] == [1, 2]
    assert [found.number for found in store.list_rounds(run.run_id, after=2)] == [10, 11]
    assert store.list_rounds("no such run") == []


def test_evaluations_are_listed_by_round_and_client(store: Store) -> None:
    run = add_run(store, a_full_run())
    with store.transaction() as transaction:
        transaction.add_evaluation(run.run_id, 1, an_evaluation("ann"))
        transaction.add_evaluation(run.run_id, 10, an_evaluation("ann"))
        transaction.add_evaluation(run.run_id, 2, an_evaluation("ann"))
    listed = [(number, report.client_id) for number, report in store.list_evaluations(run.run_id)]
    assert listed == [(1, "ann"), (1, "bob"), (2, "ann"), (10, "ann")]
    assert store.list_evaluations(run.run_id, 10) == [(10, an_evaluation("ann"))]
    assert store.list_evaluations(run.run_id, 3) == []
    in_parts = [store.list_evaluations(run.run_id, after=cursor, limit=1) for cursor in [(-1, ""), *listed]]
    assert [[(number, report.client_id) for number, report in part] for part in in_parts] == [
        *([c] for c in listed),
        [],
    ]
    assert store.list_evaluations(run.run_id, 10, after=(10, "ann")) == []


def test_a_request_is_found_with_its_run_and_hash(store: Store) -> None:
    run = add_run(store, a_run())
    assert store.find_request(f"request of {run.run_id}") == (run.run_id, run.config_hash)
    assert store.find_request("unknown") is None


def test_a_request_to_steer_a_run_is_found_as_it_was_recorded(store: Store, open_store: Open) -> None:
    run = add_run(store, a_run())
    request = ControlRequest(request_id="stop it «now»", request_hash="a" * 64, run_id=run.run_id, created_at=1.25)
    with store.transaction() as transaction:
        transaction.add_control_request(request)
    for again in (store, open_store()):
        assert again.find_control_request("stop it «now»") == request
        assert again.find_control_request("unknown") is None
        assert again.find_request("stop it «now»") is None, "it created no run"
        assert again.find_control_request(f"request of {run.run_id}") is None, "it created one"


# Events


def test_events_come_in_order_after_a_cursor_of_one_run_or_of_some_types(store: Store) -> None:
    events = [
        Event(type="run_created", run_id="one", time=1.5, data={"clients": {"ann": [1, 2.5, None, True]}}),
        Event(type="client_joined", client_id="ann", time=1.0),
        Event(type="run_created", run_id="two"),
        Event(type="round_opened", run_id="one", round=0),
    ]
    for event in events:
        with store.transaction() as transaction:
            transaction.add_event(event)
    stored = [replace(event, sequence=index + 1) for index, event in enumerate(events)]
    assert store.list_events(EventQuery()) == stored
    assert store.list_events(EventQuery(after=2)) == stored[2:]
    assert store.list_events(EventQuery(after=99)) == []
    assert store.list_events(EventQuery(limit=3)) == stored[:3]
    assert store.list_events(EventQuery(run_id="one")) == [stored[0], stored[3]]
    assert store.list_events(EventQuery(run_id="one", after=1)) == [stored[3]]
    assert store.list_events(EventQuery(types=("client_joined", "round_opened"))) == [stored[1], stored[3]]
    assert store.list_events(EventQuery(run_id="two", types=("round_opened",))) == []


def test_events_come_backwards_from_a_cursor_too_and_of_one_client(store: Store) -> None:
    with store.transaction() as transaction:
        for index in range(8):
            transaction.add_event(Event(type="step", run_id="even" if index % 2 else "odd", client_id=f"c{index % 3}"))
    stored = store.list_events(EventQuery())
    assert store.list_events(EventQuery(newest_first=True)) == stored[::-1]
    assert store.list_events(EventQuery(newest_first=True, limit=3)) == stored[:-4:-1]
    assert store.list_events(EventQuery(newest_first=True, limit=3, before=stored[-3].sequence)) == stored[4:1:-1]
    assert store.list_events(EventQuery(newest_first=True, before=1)) == []
    assert store.list_events(EventQuery(before=4)) == stored[:3]
    assert store.list_events(EventQuery(after=2, before=5)) == stored[2:4]
    assert store.list_events(EventQuery(run_id="even", newest_first=True, limit=2)) == [stored[7], stored[5]]
    assert store.list_events(EventQuery(client_id="c1")) == [stored[1], stored[4], stored[7]]
    assert store.list_events(EventQuery(run_id="odd", client_id="c1", types=("step",), newest_first=True)) == [
        stored[4]
    ]
    assert store.list_events(EventQuery(client_id="c1", types=("other",))) == []


def test_events_of_one_transaction_keep_their_order_and_sequences_never_go_back(store: Store, open_store: Open) -> None:
    with store.transaction() as transaction:
        for index in range(20):
            transaction.add_event(Event(type="step", data={"index": index}))
    interrupted(store, lambda transaction: transaction.add_event(Event(type="lost")))
    store.close()
    again = open_store()
    with again.transaction() as transaction:
        transaction.add_event(Event(type="step", data={"index": 20}))
    events = again.list_events(EventQuery())
    assert [event.data["index"] for event in events] == list(range(21))
    assert [event.sequence for event in events] == list(range(1, 22)), "nothing is left out either"
