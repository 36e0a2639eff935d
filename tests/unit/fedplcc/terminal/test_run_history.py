"""State of a run, reduced from its events and its clients."""

from __future__ import annotations

from fedplcc.shared.types import RunStatus
from fedplcc.terminal.run_history import RunHistory
from tests.support.records.run_history import (
    CLIENTS,
    a_client,
    a_run_history,
    an_event,
    metrics_of,
    the_clients,
)
from tests.unit.fedplcc.records import a_run_document


def test_a_runs_document_is_where_it_begins() -> None:
    run = RunHistory.of(a_run_document(RunStatus.PAUSED))
    document = a_run_document(RunStatus.PAUSED)
    assert (run.run_id, run.method, run.total_rounds) == (document.run_id, document.method, document.total_rounds)
    assert run.status == "paused"


def test_events_tell_round_phase_and_who_is_done() -> None:
    run = a_run_history()
    assert (run.status, run.round, run.phase, run.done) == ("running", 13, "collecting", {"ward-1"})
    assert len(run.rounds) == 12
    assert run.roster == frozenset(CLIENTS)
    for name in CLIENTS[1:]:
        run.take(an_event("update_committed", 13, name))
    run.take(an_event("round_aggregating", 13))
    assert (run.phase, run.done) == ("aggregating", set())
    run.take(an_event("round_evaluating", 13))
    run.take(an_event("evaluation_reported", 13, "lab"))
    assert (run.phase, run.done) == ("evaluating", {"lab"})


def test_a_round_expects_whom_it_was_not_left_by() -> None:
    run = a_run_history()
    run.take(an_event("client_dropped", 13, "ward-4", reason="lost", detail="not connected"))
    assert run.expected == set(CLIENTS) - {"ward-4"}
    run.take(an_event("client_returned", 13, "ward-4"))
    assert run.expected == set(CLIENTS)


def test_rounds_that_were_not_evaluated_have_no_accuracy() -> None:
    run = a_run_history(0)
    run.take(an_event("round_committed", 1, metrics={**metrics_of(1), "accuracy": None}))
    run.take(an_event("round_committed", 2, metrics=metrics_of(2)))
    assert ([line["round"] for line in run.evaluated], len(run.rounds)) == ([2], 2)


def test_the_status_follows_the_events() -> None:
    run = a_run_history()
    for name, status in (("run_paused", "paused"), ("run_resumed", "running"), ("run_stopping", "stopping")):
        run.take(an_event(name, 13, reason="why"))
        assert run.status == status


def test_only_the_runs_own_clients_are_kept() -> None:
    run = a_run_history()
    run.take_clients([*the_clients(), a_client("stranger")])
    assert [client.client_id for client in run.clients] == list(CLIENTS)


def test_quarantine_and_release_are_remembered() -> None:
    run = a_run_history()
    run.take(an_event("client_quarantined", 13, "lab", reason="3 updates were refused"))
    assert run.quarantined == {"lab"}
    run.take(an_event("client_released", 13, "lab"))
    assert run.quarantined == set()
