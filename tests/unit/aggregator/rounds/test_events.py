"""Events of each step of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.aggregator.rounds.events import FINAL_EVENTS, events_between
from fedplcc.aggregator.rounds.machine import round_parts, run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.shared.reasons import Parked, Stated
from fedplcc.shared.types import RoundPhase, Run, RunStatus
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update


def types(before: Run, after: Run) -> list[str]:
    return [event.type for event in events_between(before, after, now=5.0)]


def test_nothing_happened_between_equal_states() -> None:
    run = a_run(current_round=a_round())
    assert events_between(run, replace(run, updated_at=9.0), now=5.0) == []


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (RunStatus.PENDING, RunStatus.RUNNING, "run_started"),
        (RunStatus.PAUSED, RunStatus.RUNNING, "run_resumed"),
        (RunStatus.RUNNING, RunStatus.PAUSED, "run_paused"),
        (RunStatus.RUNNING, RunStatus.STOPPING, "run_stopping"),
        (RunStatus.STOPPING, RunStatus.STOPPED, "run_stopped"),
        (RunStatus.RUNNING, RunStatus.COMPLETED, "run_completed"),
        (RunStatus.PAUSED, RunStatus.FAILED, "run_failed"),
    ],
)
def test_every_status_has_its_event(before: RunStatus, after: RunStatus, name: str) -> None:
    (event,) = events_between(a_run(before), a_run(after, reason=Stated("because")), now=5.0)
    assert (event.type, event.run_id, event.round, event.time) == (name, "test-0000", -1, 5.0)
    assert event.data == {"reason": "because"}


def test_every_move_of_the_table_has_an_event_and_the_final_ones_are_known() -> None:
    for (before, event), after in run_moves.RUN_TRANSITIONS.items():
        reason = Parked(round_number=1, detail="a bug") if event is RunEvent.PARK else None
        (name,) = types(a_run(before), a_run(after, reason=reason))
        assert (name == "run_parked") is (event is RunEvent.PARK)
        assert (name in FINAL_EVENTS) is after.is_final


def test_a_pause_that_is_asked_for_and_taken_back_is_told() -> None:
    run = a_run(current_round=a_round())
    waiting = run_moves.pause(run, now=False)
    assert types(run, waiting) == ["pause_requested"]
    assert types(waiting, run_moves.resume(waiting)) == ["pause_withdrawn"]
    assert types(waiting, run_moves.pause(waiting, now=True)) == ["run_paused"], "it was granted, not withdrawn"


def test_a_round_that_opens_tells_its_cohort() -> None:
    run = a_run()
    (event,) = events_between(run, replace(run, current_round=a_round(1)), now=5.0)
    assert (event.type, event.round) == ("round_opened", 1)
    assert event.data == {"cohort": ["ann", "bob"], "phase": "collecting"}


def test_an_update_and_the_phase_it_completes_are_told_in_this_order() -> None:
    before = a_run(current_round=a_round(1, updates={"ann": an_update("ann")}))
    after = round_parts.add_update(before, 1, an_update("bob"), now=1.0)
    first, second = events_between(before, after, now=5.0)
    assert (first.type, first.client_id, first.data) == (
        "update_committed",
        "bob",
        {"num_examples": 12, "num_prototypes": 4},
    )
    assert (second.type, second.client_id) == ("round_aggregating", "")


def test_a_report_is_told_and_a_committed_round_tells_its_metrics() -> None:
    current = a_round(1, RoundPhase.EVALUATING, model=a_blob(), prototypes=a_blob())
    before = a_run(current_round=replace(current, evaluations={"ann": an_evaluation("ann")}))
    reported = round_parts.add_evaluation(before, 1, an_evaluation("bob"))
    assert types(before, reported) == ["evaluation_reported"]
    done = round_parts.commit_round(reported, results_json='{"loss":{"ce":1.5}}', timings_json="{}", now=1.0)
    (event,) = events_between(reported, done, now=5.0)
    assert (event.type, event.data) == ("round_committed", {"metrics": {"loss": {"ce": 1.5}}})
