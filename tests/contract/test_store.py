"""The contract of every store (aggregator/store/base.py); invitations and certificates are in test_identity_store.py."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.event import listen

from fedplcc.aggregator.store.base import ControlRequest, Store, Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import MalformedRequest, StoreUnavailable
from fedplcc.shared.reasons import Dropped, DropReason, Stated
from fedplcc.shared.types import (
    ClientActivity,
    ClientProblem,
    CommittedUpdate,
    Environment,
    Event,
    EventQuery,
    PrototypeCounts,
    Rejections,
    Retired,
    RoundPhase,
    Run,
    RunSpec,
    RunStatus,
    Update,
)
from tests.contract.conftest import Open
from tests.support import of_kind, present
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.builders import a_blob, a_client, a_round, a_run, an_evaluation, an_update


def add_run(store: Store, run: Run) -> Run:
    with store.transaction() as transaction:
        transaction.add_run(run, request_id=f"request of {run.run_id}", request_hash=run.config_hash)
        if run.current_round is not None:
            transaction.save_run(run)
            for update in run.current_round.updates.values():
                transaction.add_update(run.run_id, run.current_round.number, update)
            for evaluation in run.current_round.evaluations.values():
                transaction.add_evaluation(run.run_id, run.current_round.number, evaluation)
    return run


def add_events(store: Store, count: int) -> None:
    with store.transaction() as transaction:
        for _ in range(count):
            transaction.add_event(Event(type="long", data={"text": "x" * 1000}))


def a_full_run() -> Run:
    """A run whose round 1 is being evaluated, with something in every field."""
    current = a_round(
        1,
        RoundPhase.EVALUATING,
        updates={"ann": an_update("ann"), "bob": an_update("bob", losses={"ce": 1e-300})},
        evaluations={"bob": an_evaluation("bob")},
        model=a_blob("new"),
        prototypes=a_blob("new prototypes", "global_cluster"),
        results_json='{"accuracy":0.1}',
        timings_json='{"seconds":0.30000000000000004}',
        prototype_counts=PrototypeCounts(by_class=(2, 0, 1), weights=(0.1, 1 / 3, 1.0)),
        dropped={"cyn": Dropped(DropReason.QUARANTINED, "3 updates: é")},
    )
    refused = Rejections(count=3, reason="MALFORMED_UPDATE", check="finite", detail="é", round=1, last_at=0.1)
    return a_run(
        current_round=current,
        is_pause_requested=True,
        reason=Stated("weil «warum» nicht reicht: ü"),
        quarantined={"cyn": "3 updates were refused", "dan": ""},
        rejections={"cyn": refused, "bob": Rejections(count=1, reason="MALFORMED_UPDATE")},
    )


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


# Clients, updates, blobs


def test_a_client_is_kept_without_what_passes(store: Store) -> None:
    client = a_client(problem=ClientProblem(reason="INVALID_DATA", detail="no images", hint="look", is_fatal=True))
    busy = replace(client, is_connected=True, activity=ClientActivity.TRAINING, run_id="r", round=3, progress=0.5)
    with store.transaction() as transaction:
        transaction.save_client(replace(busy, readings={"loss": 1.0}))
        transaction.save_client(a_client("abe"))
    assert store.find_client("ann") == client
    assert store.list_clients() == [a_client("abe"), client]
    assert store.find_client("eve") is None


def test_clients_come_by_id_in_parts(store: Store) -> None:
    with store.transaction() as transaction:
        for client_id in ("bob", "ann", "Zoe", "éva", "abe"):
            transaction.save_client(a_client(client_id))
    assert [client.client_id for client in store.list_clients()] == ["Zoe", "abe", "ann", "bob", "éva"]
    assert [client.client_id for client in store.list_clients(limit=2)] == ["Zoe", "abe"]
    assert [client.client_id for client in store.list_clients(after="abe", limit=2)] == ["ann", "bob"]
    assert [client.client_id for client in store.list_clients(after="bob")] == ["éva"]
    assert store.list_clients(after="éva") == []


def test_saving_a_client_again_replaces_it(store: Store) -> None:
    changed = a_client(domain="other", num_examples=3, class_counts={"ä": 3}, environment=Environment(), problem=None)
    for client in (a_client(problem=ClientProblem(reason="X", detail="x")), changed):
        with store.transaction() as transaction:
            transaction.save_client(client)
    assert store.list_clients() == [changed]


def test_domains_are_those_of_the_clients_asked_for(store: Store) -> None:
    with store.transaction() as transaction:
        for name in ("ann", "bob", "zoe"):
            transaction.save_client(a_client(name))
    assert store.domains(["zoe", "ann", "eve"]) == {"ann": "ann-domain", "zoe": "zoe-domain"}
    assert store.domains([]) == {}


def test_the_newest_committed_update_of_a_client_is_found_across_runs(store: Store) -> None:
    first, second = add_run(store, a_run(run_id="first")), add_run(store, a_run(run_id="second"))
    assert store.last_committed("ann") is None
    for run, number in ((first, 5), (second, 1), (first, 4)):
        update = an_update("ann", content=f"{run.run_id} {number}")
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, update)
            transaction.add_update(run.run_id, number, an_update("bob", content=f"{run.run_id} {number}"))
        sha256s = tuple(blob.sha256 for blob in update.payload.blobs)
        assert store.last_committed("ann") == CommittedUpdate(run.run_id, number, sha256s)


def test_the_newest_release_of_a_client_is_found_whatever_it_committed_afterwards(store: Store) -> None:
    without = '"privacy":{"claim":"none","clip":null}'
    noisy = f'{{"model":{{"options":{{{without}}}}},"privacy":{{"claim":"site","clip":0.1}}}}'
    plain = add_run(store, a_run(run_id="plain", config_json=f'{{"model":{{"privacy":{{"clip":1}}}},{without}}}'))
    first, second = (add_run(store, a_run(run_id=name, config_json=noisy)) for name in ("first", "second"))
    for run, number in ((plain, 1), (first, 0)):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{run.run_id} {number}"))
        assert store.last_release("ann") is None
    for run, number in ((first, 5), (second, 1), (first, 4)):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{run.run_id} {number}"))
            transaction.add_update(plain.run_id, 1 + number, an_update("ann", content=f"plain {run.run_id} {number}"))
        told = RunSpec(run_id=run.run_id, config_json=noisy, config_hash=run.config_hash)
        assert store.last_release("ann") == (told, number)
        assert store.last_release("bob") is None
    with store.transaction() as transaction:
        transaction.remove_update(first.run_id, 4, an_update("ann", content="first 4"))
    assert store.last_release("ann") == (replace(told, run_id=second.run_id), 1)
    with store.transaction() as transaction:
        transaction.remove_rows(second.run_id, 100)
    assert store.last_release("ann") == (told, 5)
    third = add_run(store, a_run(run_id="third", config_json=noisy))
    with store.transaction() as transaction:
        transaction.add_update(third.run_id, 1, an_update("bob", content="third"))
    assert store.last_release("bob") == (replace(told, run_id=third.run_id), 1)


def test_the_documents_of_all_runs_are_read_for_the_first_join_alone(store: SqlStore) -> None:
    plain, statements = add_run(store, a_run()), list[str]()
    run = add_run(store, a_run(run_id="noisy", config_json='{"privacy":{"claim":"site","clip":0.1}}'))
    listen(store.database.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    for number in range(1, 4):
        with store.transaction() as transaction:
            transaction.add_update(plain.run_id, number, an_update("ann", content=f"{number}"))
            transaction.add_update(run.run_id, number, an_update("ann", content=f"noisy {number}"))
        assert present(store.last_release("ann"))[1] == number
    assert sum("LIKE" in each.upper() for each in statements) == 1


def test_a_commit_costs_the_same_however_many_updates_are_stored(store: SqlStore) -> None:
    run, statements = add_run(store, a_run()), list[str]()
    listen(store.database.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    for number in range(1, 4):
        with store.transaction() as transaction:
            transaction.add_update(run.run_id, number, an_update("ann", content=f"{number}"))
        with suppress(LookupError), store.transaction() as transaction:
            transaction.add_update(run.run_id, 9, an_update("ann", content="undone"))
            raise LookupError
        assert present(store.last_committed("ann")).round == number
    assert sum("max(updates.commit_order)" in each for each in statements) == 1


def test_updates_of_one_run_are_listed_by_round_and_client_in_parts(store: Store) -> None:
    first, second = add_run(store, a_run()), add_run(store, a_run(run_id="test-0001"))
    keys = [(first, 2, "bob"), (first, 1, "bob"), (second, 1, "ann"), (first, 2, "ann"), (first, 10, "ann")]
    made = {(run.run_id, number, name): an_update(name, content=f"{run.run_id} {number}") for run, number, name in keys}
    for (run_id, number, _name), update in made.items():
        with store.transaction() as transaction:
            transaction.add_update(run_id, number, update)
    listed = [(1, "bob"), (2, "ann"), (2, "bob"), (10, "ann")]
    expected = [(number, made[first.run_id, number, name]) for number, name in listed]
    assert store.list_updates(first.run_id) == expected
    assert store.list_updates(first.run_id, limit=3) == expected[:3]
    assert store.list_updates(first.run_id, after=(2, "ann"), limit=1) == expected[2:3]
    assert store.list_updates(first.run_id, after=(2, "")) == expected[1:]
    assert store.list_updates(first.run_id, after=(10, "ann")) == []
    assert store.list_updates("none") == []


def test_the_newest_update_of_each_client_within_some_rounds_of_one_run(store: Store) -> None:
    first, second = add_run(store, a_run()), add_run(store, a_run(run_id="test-0001"))
    keys = [(first, 1, "ann"), (first, 1, "bob"), (first, 3, "ann"), (second, 2, "ann"), (first, 4, "bob")]
    made = {(run.run_id, number, name): an_update(name, content=f"{run.run_id} {number}") for run, number, name in keys}
    for (run_id, number, _name), update in made.items():
        with store.transaction() as transaction:
            transaction.add_update(run_id, number, update)

    def newest(begin: int, end: int) -> dict[str, Update]:
        return store.newest_updates(first.run_id, first=begin, end=end)

    assert newest(1, 5) == {"ann": made["test-0000", 3, "ann"], "bob": made["test-0000", 4, "bob"]}
    assert newest(1, 4) == {"ann": made["test-0000", 3, "ann"], "bob": made["test-0000", 1, "bob"]}
    assert newest(2, 4) == {"ann": made["test-0000", 3, "ann"]}
    assert newest(2, 3) == {}
    assert store.newest_updates("none", first=0, end=9) == {}


def test_a_client_has_stored_what_it_committed_and_nobody_else_has(store: Store) -> None:
    run = add_run(store, a_run())
    update = an_update("ann")
    with store.transaction() as transaction:
        transaction.add_update(run.run_id, 1, update)
        transaction.add_update(run.run_id, 2, update)  # the same blobs again
        transaction.add_blob(a_blob("global"))
    for blob in update.payload.blobs:
        assert store.has_stored("ann", blob.sha256)
        assert not store.has_stored("bob", blob.sha256)
        assert store.find_blob(blob.sha256) == blob.size_bytes
    assert not store.has_stored("ann", a_blob("global").sha256), "naming a blob stores it for nobody"


def test_naming_a_blob_again_changes_nothing(store: Store) -> None:
    for _ in range(2):
        with store.transaction() as transaction:
            transaction.add_blob(a_blob("x"))
    assert store.find_blob(a_blob("x").sha256) == 1
    assert store.find_blob(a_blob("y").sha256) is None


def test_named_blobs_are_listed_in_order_in_parts(store: Store) -> None:
    blobs = [a_blob(content) for content in "abc"]
    with store.transaction() as transaction:
        for blob in blobs:
            transaction.add_blob(blob)
    expected = sorted((blob.sha256, blob.size_bytes) for blob in blobs)
    assert store.list_blobs() == expected
    assert store.list_blobs(limit=2) == expected[:2]
    assert store.list_blobs(after=expected[1][0]) == expected[2:]


def test_a_forgotten_blob_is_nobody_s_and_may_be_named_again(store: Store) -> None:
    update = an_update("ann")
    run = add_run(store, a_run(current_round=a_round(1, updates={"ann": update})))
    with store.transaction() as transaction:
        transaction.add_blob(a_blob("kept"))
    names = [blob.sha256 for blob in update.payload.blobs]
    for _ in range(2):
        with store.transaction() as transaction:
            transaction.forget_blobs(names)
    assert [store.find_blob(name) for name in names] == [None, None]
    assert not any(store.has_stored("ann", name) for name in names)
    assert store.list_blobs() == [(a_blob("kept").sha256, a_blob("kept").size_bytes)]
    found = present(store.find_round(run.run_id, 1))
    assert found.updates["ann"] == update, "the record stays"
    with store.transaction() as transaction:
        transaction.add_update(run.run_id, 2, update)
    assert all(store.has_stored("ann", name) for name in names)


@pytest.mark.parametrize("number", [2**31, 2**40, 2**62])
def test_large_counts_are_kept_exactly(store: Store, number: int) -> None:
    update = an_update("ann", num_examples=number, class_counts=(number, 0, 0))
    run = add_run(store, a_run(current_round=a_round(1, updates={"ann": update})))
    with store.transaction() as transaction:
        transaction.save_client(a_client(num_examples=number, class_counts={"a": number}))
    assert store.find_run(run.run_id) == run
    assert store.find_client("ann") == a_client(num_examples=number, class_counts={"a": number})


@pytest.mark.parametrize("size_bytes", [2**31, 3 << 30, 2**53])
def test_sizes_beyond_32_bits_are_kept(store: Store, size_bytes: int) -> None:
    with store.transaction() as transaction:
        transaction.add_blob(replace(a_blob("large"), size_bytes=size_bytes))
    assert store.find_blob(a_blob("large").sha256) == size_bytes


def test_long_texts_are_kept_whole(store: Store) -> None:
    """The id of a run is its name and more, and may be longer than a name."""
    run = add_run(
        store, a_run(run_id="r" * 100, name="n" * 64, reason=Stated("ü" * 100_000), config_json='{"a":1}' + " " * 10**6)
    )
    assert store.find_run(run.run_id) == run
    with store.transaction() as transaction:
        transaction.add_event(Event(type="long", run_id=run.run_id, data={"text": "é😀" * 50_000}))
    assert store.list_events(EventQuery(run_id=run.run_id))[0].data == {"text": "é😀" * 50_000}


def test_a_text_with_the_character_that_no_database_keeps_is_refused_cleanly(store: Store) -> None:
    run = add_run(store, a_run())

    def write(change: Callable[[Transaction], None]) -> None:
        with store.transaction() as transaction:
            transaction.add_event(Event(type="before"))
            change(transaction)

    for change in (
        lambda transaction: transaction.save_run(replace(run, reason=Stated("a\0b"))),
        lambda transaction: transaction.add_run(replace(run, run_id="other"), request_id="a\0b", request_hash=""),
        lambda transaction: transaction.save_client(a_client("a\0b")),
    ):
        with pytest.raises(MalformedRequest, match=r"'a\\x00b' has the character U\+0000"):
            write(change)
    for look in (store.find_run, store.find_request, store.find_client, store.last_committed):
        with pytest.raises(MalformedRequest, match=r"U\+0000"):
            look("a\0b")
    assert store.list_events(EventQuery()) == [], "nothing of such a transaction is kept"
    assert store.find_run(run.run_id) == run


def test_texts_within_records_may_have_any_character(store: Store) -> None:
    problem = ClientProblem(reason="X", detail="a\0b", hint="\u2028 \x1f \ufffe 😀")
    with store.transaction() as transaction:
        transaction.save_client(a_client(problem=problem))
        transaction.add_event(Event(type="client_problem", data={"a\0b": ["\0", {"\0": None}]}))
    assert store.list_clients() == [a_client(problem=problem)]
    assert store.list_events(EventQuery())[0].data == {"a\0b": ["\0", {"\0": None}]}


def test_numbers_are_read_back_to_the_last_bit(store: Store) -> None:
    numbers = [0.1 + 0.2, 1e-308, 5e-324, 1.7976931348623157e308, -0.0, 2**53]
    with store.transaction() as transaction:
        for number in numbers:
            transaction.add_event(Event(type="number", time=float(number), data={"number": number}))
    events = store.list_events(EventQuery())
    assert [repr(event.data["number"]) for event in events] == [repr(number) for number in numbers]
    assert [event.time for event in events] == numbers


def test_what_is_absent_is_null_in_the_columns_that_say_so(open_store: Open) -> None:
    """A migration adds them as NULL: one row must not say `null` and another NULL of the same."""
    store = of_kind(SqlStore, open_store())
    add_run(store, a_run(current_round=a_round(1)))
    with store._engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM runs JOIN rounds ON rounds.run_id = runs.run_id "
            "WHERE runs.quarantined IS NULL AND runs.rejections IS NULL AND rounds.dropped IS NULL "
            "AND runs.reason_record IS NULL AND rounds.prototype_counts IS NULL"
        )
        assert found.scalar() == 1


# Databases that cannot be used


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "aggregator.sqlite"
    file.write_bytes(b"not a database, but somebody's file\n" * 100)
    with pytest.raises(StoreUnavailable, match="not a database"):
        SqlStore.in_folder(tmp_path)
    assert file.read_bytes().startswith(b"not a database")


def test_a_database_that_cannot_be_opened_is_store_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        SqlStore.in_folder(tmp_path / "missing")
    (tmp_path / "aggregator.sqlite").mkdir()
    with pytest.raises(StoreUnavailable, match="cannot open the database"):
        SqlStore.in_folder(tmp_path)


def test_a_full_database_is_store_unavailable_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = SqlStore.in_folder(tmp_path)
    run = add_run(store, a_full_run())
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreUnavailable, match="full"):
        add_events(store, 100)
    assert store.list_events(EventQuery()) == []
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1073741823")
    add_events(store, 2)
    assert len(store.list_events(EventQuery())) == 2
    assert store.find_run(run.run_id) == run
    store.close()


USES: dict[str, Callable[[Store], object]] = {
    "open_runs": lambda store: store.open_runs(),
    "ended_retirements": lambda store: store.ended_retirements(limit=1),
    "find_run": lambda store: store.find_run("test-0000"),
    "find_request": lambda store: store.find_request("x"),
    "find_control_request": lambda store: store.find_control_request("x"),
    "list_runs": lambda store: store.list_runs(limit=1),
    "run_ids": lambda store: store.run_ids(),
    "list_rounds": lambda store: store.list_rounds("test-0000"),
    "find_round": lambda store: store.find_round("test-0000", 1),
    "first_evaluation": lambda store: store.first_evaluation("test-0000", "ann", before=2),
    "list_evaluations": lambda store: store.list_evaluations("test-0000"),
    "list_events": lambda store: store.list_events(EventQuery()),
    "list_clients": lambda store: store.list_clients(),
    "find_client": lambda store: store.find_client("ann"),
    "last_committed": lambda store: store.last_committed("ann"),
    "last_release": lambda store: store.last_release("ann"),
    "has_stored": lambda store: store.has_stored("ann", "x"),
    "find_blob": lambda store: store.find_blob("x"),
    "domains": lambda store: store.domains(["ann"]),
    "transaction": lambda store: add_events(store, 1),
}


@pytest.mark.parametrize("use", USES)
def test_a_damaged_database_is_store_unavailable(use: str) -> None:
    with memory_folder() as folder:
        store = SqlStore.in_folder(Path(folder))
        add_run(store, a_full_run())
        store.close()
        file = Path(folder) / "aggregator.sqlite"
        data = bytearray(file.read_bytes())
        with sqlite3.connect(file) as connection:
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            roots = connection.execute(
                "SELECT rootpage FROM sqlite_master WHERE tbl_name NOT IN ('alembic_version', 'writer')"
            ).fetchall()
        connection.close()
        # What a start reads stays whole, so that the damage is only met in use.
        for (page,) in roots:
            data[(page - 1) * page_bytes : page * page_bytes] = b"\xa5" * page_bytes
        file.write_bytes(data)
        damaged = SqlStore.in_folder(Path(folder))
        with pytest.raises(StoreUnavailable, match="malformed"):
            USES[use](damaged)
        damaged.close()


def test_sqlite_is_told_to_be_durable(tmp_path: Path) -> None:
    store = SqlStore.in_folder(tmp_path)
    with store._engine.connect() as connection:
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("journal_mode", "synchronous")]
    assert found == ["wal", 2], "2 is FULL: a commit is on the disk before it is answered"
    store.close()
