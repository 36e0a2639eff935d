"""State of a run, reduced from its events and its clients."""

from __future__ import annotations

from tests.support.records.run_history import CLIENTS, a_run_history, an_event, metrics_of


def test_events_tell_round_phase_and_who_is_done() -> None:
    run = a_run_history()
    assert (run.round, run.phase, run.done) == (13, "collecting", {"ward-1"})
    assert len(run.rounds) == 12
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
