"""Moves of a run and of its round: the two tables, and what people ask of a whole run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from fedplcc.aggregator.rounds.machine.round_waits import damage_of
from fedplcc.aggregator.rounds.machine.run_facts import has_open_round, is_parked
from fedplcc.shared.errors import (
    InvalidTransition,
)
from fedplcc.shared.reasons import (
    NobodyJoined,
    Parked,
    Reason,
    Stated,
    StoppedEarly,
    WaitsForClients,
)
from fedplcc.shared.types import (
    Round,
    RoundPhase,
    Run,
    RunStatus,
)

DAY_S = 86_400.0
"""Seconds of a day."""


class RunEvent(StrEnum):
    """Events that move a run."""

    ROSTER_MET = "roster_met"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    ALL_IDLE = "all_idle"
    FINISH = "finish"
    FAIL = "fail"
    PARK = "park"
    WAIT = "wait"
    EXTEND = "extend"


class RoundEvent(StrEnum):
    """Events that move a round to its next phase."""

    COLLECTED = "collected"
    AGGREGATED = "aggregated"
    EVALUATED = "evaluated"
    REOPENED = "reopened"


RUN_TRANSITIONS: Mapping[tuple[RunStatus, RunEvent], RunStatus] = MappingProxyType(
    {
        (RunStatus.PENDING, RunEvent.ROSTER_MET): RunStatus.RUNNING,
        (RunStatus.PENDING, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.PENDING, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.PENDING, RunEvent.PARK): RunStatus.PAUSED,
        (RunStatus.RUNNING, RunEvent.PAUSE): RunStatus.PAUSED,
        (RunStatus.RUNNING, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.RUNNING, RunEvent.FINISH): RunStatus.COMPLETED,
        (RunStatus.RUNNING, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.RUNNING, RunEvent.PARK): RunStatus.PAUSED,
        (RunStatus.PAUSED, RunEvent.RESUME): RunStatus.RUNNING,
        (RunStatus.PAUSED, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.PAUSED, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.PAUSED, RunEvent.PARK): RunStatus.PAUSED,
        (RunStatus.PAUSED, RunEvent.WAIT): RunStatus.PENDING,
        (RunStatus.STOPPING, RunEvent.ALL_IDLE): RunStatus.STOPPED,
        (RunStatus.COMPLETED, RunEvent.EXTEND): RunStatus.RUNNING,
    }
)
"""Every move of a run; any other is refused."""
ROUND_TRANSITIONS: Mapping[tuple[RoundPhase, RoundEvent], RoundPhase] = MappingProxyType(
    {
        (RoundPhase.INITIALISING, RoundEvent.COLLECTED): RoundPhase.COMMITTED,
        (RoundPhase.COLLECTING, RoundEvent.COLLECTED): RoundPhase.AGGREGATING,
        (RoundPhase.AGGREGATING, RoundEvent.AGGREGATED): RoundPhase.EVALUATING,
        (RoundPhase.AGGREGATING, RoundEvent.REOPENED): RoundPhase.COLLECTING,
        (RoundPhase.EVALUATING, RoundEvent.EVALUATED): RoundPhase.COMMITTED,
    }
)
"""Every move of a round."""


def move(run: Run, event: RunEvent, *, reason: Reason | None = None) -> Run:
    """Return the run after an event.

    Raises:
        InvalidTransition: The table has no such move.
    """
    status = RUN_TRANSITIONS.get((run.status, event))
    if status is None:
        raise InvalidTransition(
            f"a run that is {run.status} does not take {event}", run_id=run.run_id, status=run.status
        )
    return replace(run, status=status, reason=reason, is_pause_requested=False)


def pause(run: Run, *, now: bool) -> Run:
    """Return the paused run, or the run with a pause requested for the end of its open round. Repeating changes nothing."""
    if run.status is RunStatus.PAUSED:
        return run
    if now or (run.status is RunStatus.RUNNING and not has_open_round(run)):
        return move(run, RunEvent.PAUSE)
    if run.status is not RunStatus.RUNNING:
        return move(run, RunEvent.PAUSE)  # raises
    return replace(run, is_pause_requested=True)


def extend(run: Run, *, rounds: int, config_json: str, config_hash: str) -> Run:
    """Return a completed run with more rounds, under a configuration that differs in their number alone.

    Raises:
        InvalidTransition: It has not completed, or it completed early because it got no better.
    """
    if isinstance(run.reason, StoppedEarly):
        raise InvalidTransition(
            f"run {run.run_id} stopped early, after run.patience rounds without a better one; begin another run with its "
            f"model instead: run.initial_model = run:{run.run_id}@{run.reason.best_round}",
            run_id=run.run_id,
            status=run.status,
        )
    moved = move(run, RunEvent.EXTEND)
    return replace(moved, total_rounds=rounds, config_json=config_json, config_hash=config_hash)


def resume(run: Run) -> Run:
    """Return the resumed run, or the run with its requested pause withdrawn. Resuming twice changes nothing."""
    if run.status is RunStatus.RUNNING:
        return replace(run, is_pause_requested=False)
    if isinstance(run.reason, Parked) and run.reason.is_pending:
        return move(run, RunEvent.WAIT, reason=WaitsForClients())
    resumed = move(run, RunEvent.RESUME)
    return replace(resumed, reason=damage_of(resumed))


def park(run: Run, reason: Reason) -> Run:
    """Return the run paused because it cannot go on without a person; `resume` tries again.

    A run that is parked, is stopping or has ended is returned unchanged.
    """
    if run.status is RunStatus.STOPPING or run.status.is_final or is_parked(run):
        return run
    return move(run, RunEvent.PARK, reason=reason)


def stop(run: Run, *, reason: str) -> Run:
    """Return the stopping run. Stopping a run that is stopping or has ended changes nothing."""
    if run.status is RunStatus.STOPPING or run.status.is_final:
        return run
    return move(run, RunEvent.STOP, reason=Stated(reason))


def expire(run: Run, *, now: float, pending_s: float) -> Run:
    """Return the run stopping if its roster has been incomplete for longer than `pending_s`; else unchanged."""
    if run.status is not RunStatus.PENDING or now - run.created_at <= pending_s:
        return run
    return move(run, RunEvent.STOP, reason=NobodyJoined(pending_s / DAY_S))


def in_next_phase(current: Round, event: RoundEvent, now: float) -> Round:
    """Return the round after an event, in its next phase.

    Raises:
        InvalidTransition: The table has no such move.
    """
    phase = ROUND_TRANSITIONS.get((current.phase, event))
    if phase is None:
        raise InvalidTransition(f"a round that is {current.phase} does not take {event}", round=current.number)
    return replace(current, phase=phase, phase_started_at={**current.phase_started_at, phase.value: now})
