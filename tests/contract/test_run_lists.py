"""Lists of runs, labels and deletions: what every store answers, and what the REST interface makes of it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.database import run_list_rows
from fedplcc.shared.convert.run_lists import page_token, query_from_proto, query_to_proto
from fedplcc.shared.errors import MalformedRequest, RowCorrupt
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as pb2
from fedplcc.shared.reasons import RowDamaged
from fedplcc.shared.run_lists import RunLabels, RunOrder, RunQuery, RunShow, RunSummary
from fedplcc.shared.types import Run, RunStatus
from tests.support.records.builders import a_client, a_round, a_run, an_evaluation, an_update
from tests.support.records.stored_runs import add_run

NAMES = ("b", "Scans_1", "scans-2", "a%b", "d")
LINE = '{"accuracy":{"far":0.25,"mean":0.5,"near":0.75,"worst":0.25},"round":1}'
UNEVALUATED = '{"accuracy":null,"round":2}'


def a_full_run(status: RunStatus, **changes: Any) -> Run:
    """A run with an update and a report in its round."""
    current = a_round(1, updates={"ann": an_update("ann")}, evaluations={"ann": an_evaluation("ann")})
    return a_run(status, current_round=current, **changes)


@pytest.fixture
def filled(store: Store) -> Store:
    """Five runs with other names, statuses, methods and labels; two were created at one moment."""
    statuses = (RunStatus.RUNNING, RunStatus.STOPPING, RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.STOPPED)
    labels = (
        None,
        RunLabels(tags=("a", "a/b")),
        RunLabels(tags=("a",), notes="two\nlines"),
        RunLabels(is_archived=True),
        RunLabels(tags=("A",), deleted_at=9.0),
    )
    for index, (name, status, label) in enumerate(zip(NAMES, statuses, labels, strict=True)):
        run = a_run(
            status,
            run_id=f"id-{index}",
            name=name,
            method="fedplcc" if index % 2 else "fedavg",
            created_at=float(index // 2),
            updated_at=10.0 - index,
        )
        add_run(store, run, label)
    return store


def ids(store: Store, **asked: Any) -> list[str]:
    return [run.run_id[-1] for run in store.find_runs(RunQuery(**asked)).runs]


def test_each_filter_is_obeyed_and_all_together(filled: Store) -> None:
    everything = {"show": RunShow.ALL}
    assert ids(filled) == ["2", "1", "0"]
    assert ids(filled, show=RunShow.ARCHIVED) == ["3"]
    assert ids(filled, show=RunShow.DELETED) == ["4"]
    assert ids(filled, **everything) == ["4", "3", "2", "1", "0"]
    assert ids(filled, statuses=(RunStatus.RUNNING,)) == ["1", "0"], "a run that is stopping counts as running"
    assert ids(filled, statuses=(RunStatus.STOPPING,)) == ["1"]
    assert ids(filled, statuses=(RunStatus.COMPLETED, RunStatus.FAILED), **everything) == ["3", "2"]
    assert ids(filled, method="fedplcc", **everything) == ["3", "1"]
    assert ids(filled, name="SCANS") == ["2", "1"]
    assert ids(filled, name="ID-0") == ["0"]
    assert ids(filled, name="%", **everything) == ["3"], "a sign of the database's own is one of the name"
    assert ids(filled, name="s_1") == ["1"]
    assert ids(filled, tags=("a",)) == ["2", "1"]
    assert ids(filled, tags=("a", "a/b")) == ["1"]
    assert ids(filled, tags=("A",), **everything) == ["4"]
    assert ids(filled, since=1.0, **everything) == ["4", "3", "2"]
    assert ids(filled, since=1.0, tags=("a",), method="fedavg", statuses=(RunStatus.COMPLETED,)) == ["2"]


def test_the_counts_are_of_all_pages_and_of_all_statuses(filled: Store) -> None:
    found = filled.find_runs(RunQuery(statuses=(RunStatus.RUNNING,), show=RunShow.ALL, limit=1))
    assert (len(found.runs), found.total) == (1, 2)
    counts = {status.value: number for status, number in found.totals.items()}
    assert counts == {"pending": 0, "running": 2, "paused": 0, "completed": 1, "stopped": 1, "failed": 1}


IN_ORDER = {
    RunOrder.NEWEST: "43210",
    RunOrder.OLDEST: "01234",
    RunOrder.UPDATED: "01234",
    RunOrder.NAME: "13042",
    RunOrder.STATUS: "23014",
    RunOrder.METHOD: "02413",
    RunOrder.ROUNDS: "43210",
    RunOrder.MEAN: "43210",
    RunOrder.WORST: "43210",
    RunOrder.TOOK: "23410",
}
"""Last letters of the ids; 0 and 1 have not ended."""


def test_pages_have_each_run_once_in_order(filled: Store) -> None:
    for order, limit, is_reversed in itertools.product(RunOrder, (1, 2, 3), (False, True)):
        query = RunQuery(show=RunShow.ALL, order=order, is_reversed=is_reversed, limit=limit)
        expected = IN_ORDER[order]
        if is_reversed:
            expected = "43201" if order is RunOrder.TOOK else expected[::-1]
        assert paged(filled, query) == expected, query


def paged(store: Store, query: RunQuery) -> str:
    """The last letters of the ids of all pages."""
    seen: list[RunSummary] = []
    while page := store.find_runs(query).runs:
        seen += page
        query = replace(query, after=page[-1].cursor(query))
        assert len(seen) < 100, "the pages do not end"
    return "".join(run.run_id[-1] for run in seen)


def test_runs_are_sorted_by_what_they_came_to_over_all_pages(store: Store) -> None:
    means = {"a": (0.5, 0.4), "b": (0.9, 0.1), "c": None, "d": (0.7, 0.7), "e": (0.7, 0.2)}
    for name, values in means.items():
        line = (
            "" if values is None else json.dumps({"accuracy": {"x": values[1], "mean": values[0], "worst": values[1]}})
        )
        add_run(store, a_run(RunStatus.RUNNING, run_id=f"id-{name}", current_round=a_round(1, results_json=line)))

    for limit in (1, 2, 9):
        of_mean, of_worst = (RunQuery(order=order, limit=limit) for order in (RunOrder.MEAN, RunOrder.WORST))
        assert paged(store, of_mean) == "bedac"
        assert paged(store, replace(of_mean, is_reversed=True)) == "adebc", "who has no score comes last"
        assert paged(store, of_worst) == "daebc"
        assert paged(store, replace(of_worst, is_reversed=True)) == "beadc"


def test_more_runs_than_can_be_sorted_by_score_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list_rows, "MAX_BY_SCORE", 1)
    for index in range(2):
        add_run(store, a_run(RunStatus.COMPLETED, run_id=f"id-{index}", name=f"scans-{index}"))
    with pytest.raises(MalformedRequest, match="2 runs match, and at most 1 are sorted by mean; narrow the search"):
        store.find_runs(RunQuery(order=RunOrder.MEAN))
    assert len(store.find_runs(RunQuery(order=RunOrder.MEAN, name="scans-1")).runs) == 1


def test_a_line_has_what_the_run_is_and_came_to(store: Store) -> None:
    run = add_run(store, a_run(RunStatus.RUNNING, current_round=a_round(1, results_json=LINE)))
    with store.transaction() as transaction:
        transaction.save_run(replace(run, current_round=a_round(2, results_json=UNEVALUATED)))
        transaction.save_run(replace(run, current_round=a_round(3)))
    (line,) = store.find_runs(RunQuery()).runs
    assert (line.round, line.phase, line.num_clients) == (3, a_round(3).phase, len(run.roster))
    assert (line.mean_accuracy, line.worst_accuracy, line.worst_domain) == (0.5, 0.25, "far")
    assert (line.name, line.config_hash, line.total_rounds) == (run.name, run.config_hash, run.total_rounds)


def test_labels_are_replaced_and_found_also_of_a_deleted_run(store: Store) -> None:
    run = add_run(store, a_full_run(RunStatus.COMPLETED))
    assert store.find_labels(run.run_id) == store.find_labels("nothing") == RunLabels()
    for labels in (
        RunLabels(tags=("a", "b"), notes="one"),
        RunLabels(tags=("b",), is_archived=True),
        RunLabels(notes="gone", deleted_at=7.5),
    ):
        with store.transaction() as transaction:
            transaction.save_labels(run.run_id, labels)
        assert store.find_labels(run.run_id) == labels
    assert store.find_runs(RunQuery(tags=("b",), show=RunShow.ALL)).total == 0


def test_a_deleted_run_is_found_by_no_other_read(store: Store) -> None:
    run, other = (
        add_run(store, a_full_run(RunStatus.COMPLETED)),
        add_run(store, a_run(RunStatus.FAILED, run_id="other")),
    )
    with store.transaction() as transaction:
        transaction.save_labels(run.run_id, RunLabels(deleted_at=1.0))
    assert store.find_run(run.run_id) is None
    assert store.find_status(run.run_id) is None
    assert store.list_runs(limit=9) == [other]
    assert store.run_ids() == ["other"]
    assert store.deleted_runs() == store.deleted_runs(with_rows=True) == [run.run_id]
    assert store.find_request(f"request of {run.run_id}") == (run.run_id, run.config_hash), (
        "its request is not forgotten"
    )


def test_rows_go_a_few_at_a_time(store: Store) -> None:
    run = add_run(store, a_full_run(RunStatus.COMPLETED))
    add_run(store, a_full_run(RunStatus.STOPPED, run_id="other"))
    with store.transaction() as transaction:
        transaction.save_labels(run.run_id, RunLabels(deleted_at=1.0))
    removed = []
    while store.deleted_runs(with_rows=True):
        with store.transaction() as transaction:
            removed.append(transaction.remove_rows(run.run_id, 2))
    assert all(number == 2 for number in removed[:-1])
    assert (store.list_rounds(run.run_id), store.list_updates(run.run_id)) == ([], [])
    assert store.list_evaluations(run.run_id) == []
    assert store.list_rounds("other")
    with store.transaction() as transaction:
        assert transaction.remove_rows(run.run_id, 2) == 0


def test_a_forgotten_client_has_stored_nothing(store: Store) -> None:
    run = add_run(store, a_full_run(RunStatus.COMPLETED))
    assert run.current_round is not None
    update = run.current_round.updates["ann"]
    with store.transaction() as transaction:
        transaction.save_client(a_client("ann"))
        transaction.save_client(a_client("bob"))
    name = update.payload.blobs[0].sha256
    assert store.has_stored("ann", name)
    with store.transaction() as transaction:
        transaction.forget_client("ann")
        transaction.forget_client("nobody")
    assert [client.client_id for client in store.list_clients()] == ["bob"]
    assert not store.has_stored("ann", name)
    assert store.find_blob(name) is not None
    assert store.list_updates(run.run_id) == [(1, update)], "what it did stays"


def test_a_damaged_row_is_said_in_the_line_of_its_run(store: Any) -> None:
    for index, table in enumerate(("runs", "rounds", "run_labels")):
        run = a_run(RunStatus.COMPLETED, run_id=f"id-{index}", current_round=a_round(1, results_json=LINE))
        add_run(store, run, RunLabels(tags=("a",)))
        column = {"runs": "total_rounds = 7", "rounds": "cohort = '[]'", "run_labels": "notes = 'other'"}[table]
        with store.database.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {table} SET {column} WHERE run_id = 'id-{index}'")
    lines = {run.run_id: run for run in store.find_runs(RunQuery()).runs}
    assert [lines[f"id-{index}"].reason for index in range(3)] == [
        RowDamaged(table="runs", key="id-0"),
        RowDamaged(table="rounds", key="id-1/1"),
        RowDamaged(table="run_labels", key="id-2"),
    ]
    with pytest.raises(RowCorrupt):
        store.find_labels("id-2")


def test_a_damaged_deletion_is_told(store: Any) -> None:
    run = add_run(store, a_run(RunStatus.COMPLETED), RunLabels(deleted_at=1.0))
    assert store.damaged_deletions() == []
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE run_labels SET notes = 'x'")
    assert store.damaged_deletions() == [run.run_id]


# Tokens

A_SUMMARY = RunSummary(
    run_id="id-1",
    name="scans",
    status=RunStatus.COMPLETED,
    method="fedavg",
    round=1,
    total_rounds=1,
    phase=None,
    num_clients=2,
    is_pause_requested=False,
    reason=None,
    created_at=1e9 + 0.1,
    updated_at=1e9 + 0.3,
    config_hash="hash",
)


def test_a_token_names_the_run_and_its_order() -> None:
    ways = [RunQuery(order=order, is_reversed=is_reversed) for order in RunOrder for is_reversed in (False, True)]
    for query, other in itertools.product(ways, ways):
        request = query_to_proto(other, page_token=page_token(A_SUMMARY, query))
        if query is other:
            assert query_from_proto(request, limit=1).after == A_SUMMARY.cursor(query)
        else:
            with pytest.raises(MalformedRequest, match="page_token"):
                query_from_proto(request, limit=1)


@given(st.text(max_size=60) | st.text("ABCDEFabcdef0123456789-_", max_size=60))
def test_any_other_token_is_refused(token: str) -> None:
    if token:
        with pytest.raises(MalformedRequest, match="page_token"):
            query_from_proto(pb2.ListRunsRequest(page_token=token), limit=1)
