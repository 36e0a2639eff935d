"""Events of each step of a run."""

from __future__ import annotations

import pytest

from fedplcc.aggregator.rounds.events import FINAL_EVENTS, events_between
from fedplcc.aggregator.rounds.machine import run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.shared.reasons import Parked, Stated
from fedplcc.shared.types import Run, RunStatus
from tests.support.records.builders import a_run


def types(before: Run, after: Run) -> list[str]:
    return [event.type for event in events_between(before, after, now=5.0)]


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
