"""The two state machines, of a run and of a round, as pure functions over frozen records.

    run      PENDING --roster_met--> RUNNING <--pause/resume--> PAUSED
             RUNNING --finish--> COMPLETED        PENDING, RUNNING, PAUSED --fail--> FAILED
             PENDING, RUNNING, PAUSED --stop--> STOPPING --all_idle--> STOPPED

    round 0  INITIALISING --collected--> COMMITTED
    round t  COLLECTING --collected--> AGGREGATING --aggregated--> EVALUATING --evaluated--> COMMITTED

Every function takes a `Run` and returns the next one, or raises; none looks at a clock, a disk or a socket. The service
writes the result and the event that caused it in one transaction, and only then acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from aggregator.selection import select_cohort
from shared.errors import (
    EarlyReport,
    FutureRound,
    InvalidTransition,
    LateReport,
    LateUpdate,
    NotInCohort,
    RoundClosed,
    RunEnded,
    StaleRound,
    UpdateConflict,
)
from shared.types import BlobRef, Evaluation, Round, RoundPhase, Run, RunStatus, Update


class RunEvent(StrEnum):
    """What can happen to a run."""

    ROSTER_MET = "roster_met"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    ALL_IDLE = "all_idle"
    FINISH = "finish"
    FAIL = "fail"


class RoundEvent(StrEnum):
    """What can happen to a round as a whole."""

    COLLECTED = "collected"
    AGGREGATED = "aggregated"
    EVALUATED = "evaluated"


RUN_TRANSITIONS: Mapping[tuple[RunStatus, RunEvent], RunStatus] = MappingProxyType(
    {
        (RunStatus.PENDING, RunEvent.ROSTER_MET): RunStatus.RUNNING,
        (RunStatus.PENDING, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.PENDING, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.RUNNING, RunEvent.PAUSE): RunStatus.PAUSED,
        (RunStatus.RUNNING, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.RUNNING, RunEvent.FINISH): RunStatus.COMPLETED,
        (RunStatus.RUNNING, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.PAUSED, RunEvent.RESUME): RunStatus.RUNNING,
        (RunStatus.PAUSED, RunEvent.STOP): RunStatus.STOPPING,
        (RunStatus.PAUSED, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.STOPPING, RunEvent.ALL_IDLE): RunStatus.STOPPED,
    }
)
"""Every move of a run; what is not here is refused."""

ROUND_TRANSITIONS: Mapping[tuple[RoundPhase, RoundEvent], RoundPhase] = MappingProxyType(
    {
        (RoundPhase.INITIALISING, RoundEvent.COLLECTED): RoundPhase.COMMITTED,
        (RoundPhase.COLLECTING, RoundEvent.COLLECTED): RoundPhase.AGGREGATING,
        (RoundPhase.AGGREGATING, RoundEvent.AGGREGATED): RoundPhase.EVALUATING,
        (RoundPhase.EVALUATING, RoundEvent.EVALUATED): RoundPhase.COMMITTED,
    }
)
"""Every move of a round."""


def move(run: Run, event: RunEvent, *, reason: str = "") -> Run:
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
    """Return the run paused, or with a pause waiting for its open round to commit. Pausing twice changes nothing."""
    if run.status is RunStatus.PAUSED:
        return run
    if now or (run.status is RunStatus.RUNNING and not has_open_round(run)):
        return move(run, RunEvent.PAUSE)
    if run.status is not RunStatus.RUNNING:
        return move(run, RunEvent.PAUSE)  # raises
    return replace(run, is_pause_requested=True)


def resume(run: Run) -> Run:
    """Return the run running again, or with its waiting pause taken back. Resuming twice changes nothing."""
    if run.status is RunStatus.RUNNING:
        return replace(run, is_pause_requested=False)
    return move(run, RunEvent.RESUME)


def stop(run: Run, *, reason: str) -> Run:
    """Return the run stopping. Stopping one that stops or has ended changes nothing."""
    if run.status is RunStatus.STOPPING or run.status.is_final:
        return run
    return move(run, RunEvent.STOP, reason=reason)


def last_committed(run: Run) -> int | None:
    """Number of the last round that has committed, or None."""
    if run.round is None:
        return None
    number = run.round_number - has_open_round(run)
    return number if number >= 0 else None


def has_open_round(run: Run) -> bool:
    """Whether a round has opened and not committed."""
    return run.round is not None and run.round.phase is not RoundPhase.COMMITTED


def may_open_another(run: Run) -> bool:
    """Whether the run stands between two rounds."""
    return run.status is RunStatus.RUNNING and not has_open_round(run) and run.round_number < run.total_rounds


def next_step(run: Run, *, cohort_size: int | None, now: float) -> Run:
    """Return the run one step on from a committed round: paused, completed, or with the next round open.

    A run that is not running, or whose round is open, is returned as it is.
    """
    if run.status is not RunStatus.RUNNING or has_open_round(run):
        return run
    if run.round_number >= run.total_rounds:
        return move(run, RunEvent.FINISH)
    if run.is_pause_requested:
        return move(run, RunEvent.PAUSE)
    return open_round(run, run.round_number + 1, cohort_size=cohort_size, now=now)


def open_round(run: Run, number: int, *, cohort_size: int | None, now: float) -> Run:
    """Return the run with a new round. Round 0 asks the lowest client id of the roster for the first model."""
    phase = RoundPhase.COLLECTING if number else RoundPhase.INITIALISING
    cohort = select_cohort(run.roster, seed=run.seed, round_number=number, cohort_size=cohort_size)
    if number == 0:
        cohort = (min(run.roster),)
    opened = Round(number=number, phase=phase, cohort=cohort, phase_started_at={phase.value: now})
    return replace(run, round=opened)


def admit(run: Run, clients: Iterable[str]) -> Run:
    """Return the run with more clients in its roster; they take part from the next round on."""
    return replace(run, roster=tuple(sorted({*run.roster, *clients})))


def add_update(run: Run, number: int, update: Update, *, now: float) -> Run:
    """Return the run with one more committed update; the round moves on when its cohort is complete.

    The same update again returns the run as it is.

    Raises:
        UpdateConflict: Another update of this client is committed in this round.
        RoundClosed: The round is not the open one, or does not collect.
        NotInCohort: The client was not asked.
    """
    current = _round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), update.client_id, "updates")
    known = current.updates.get(update.client_id)
    if known is not None:
        return _same_or_conflict(run, known, update)
    updates = {**current.updates, update.client_id: update}
    current = replace(current, updates=updates)
    if len(updates) == len(current.cohort):
        current = _advance(current, RoundEvent.COLLECTED, now)
    run = replace(run, round=current)
    if number == 0:
        model = update.payload.tensor_group("model")
        run = replace(run, model=model, round=replace(current, model=model, prototypes=run.prototypes))
    return run


def check_takes_updates(run: Run, number: int, client_id: str) -> None:
    """Check that a round takes an update of this client now.

    Raises:
        RoundClosed, NotInCohort: It does not.
    """
    _round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), client_id, "updates")


def aggregated(run: Run, number: int, *, model: BlobRef, prototypes: BlobRef, now: float) -> Run:
    """Return the run with its round's new model and prototypes, ready to be evaluated."""
    current = run.round
    if current is None or current.number != number or current.phase is not RoundPhase.AGGREGATING:
        raise RoundClosed(f"round {number} is not being aggregated", run_id=run.run_id, round=number)
    current = replace(current, model=model, prototypes=prototypes)
    return replace(run, reason="", round=_advance(current, RoundEvent.AGGREGATED, now))


def add_evaluation(run: Run, number: int, evaluation: Evaluation) -> Run:
    """Return the run with one more report; the first one of a client counts.

    Raises:
        RoundClosed: The round is not being evaluated.
        NotInCohort: The client was not asked.
    """
    current = _round_in(run, number, (RoundPhase.EVALUATING,), evaluation.client_id, "evaluations")
    if evaluation.client_id in current.evaluations:
        return run
    return replace(run, round=replace(current, evaluations={**current.evaluations, evaluation.client_id: evaluation}))


def is_evaluated(run: Run) -> bool:
    """Whether every client of the open round has reported."""
    current = run.round
    return (
        current is not None
        and current.phase is RoundPhase.EVALUATING
        and len(current.evaluations) == len(current.cohort)
    )


def commit_round(run: Run, *, metrics_json: str, timings_json: str, now: float) -> Run:
    """Return the run with its evaluated round committed: its model and prototypes are the run's from here on."""
    assert run.round is not None
    current = _advance(run.round, RoundEvent.EVALUATED, now)
    current = replace(current, metrics_json=metrics_json, timings_json=timings_json)
    return replace(run, round=current, model=current.model, prototypes=current.prototypes)


def _advance(current: Round, event: RoundEvent, now: float) -> Round:
    phase = ROUND_TRANSITIONS.get((current.phase, event))
    if phase is None:
        raise InvalidTransition(f"a round that is {current.phase} does not take {event}", round=current.number)
    return replace(current, phase=phase, phase_started_at={**current.phase_started_at, phase.value: now})


def _round_in(run: Run, number: int, phases: tuple[RoundPhase, ...], client_id: str, what: str) -> Round:
    """The open round, if it takes this of this client: the run is asked first, then the round, the client, the phase."""
    current = run.round
    facts = {"run_id": run.run_id, "round": number}
    if run.status.is_final or run.status is RunStatus.STOPPING:
        raise RunEnded(f"the run is {run.status} and takes no more {what}", **facts)
    if current is None or current.number < number:
        opened = "none" if current is None else current.number
        raise FutureRound(f"round {number} takes no {what} yet; the latest round is {opened}", **facts)
    if current.number > number:
        raise StaleRound(f"round {number} takes no more {what}; the latest round is {current.number}", **facts)
    if client_id not in current.cohort:
        raise NotInCohort(f"client {client_id} was not asked to take part in round {number}", **facts)
    if current.phase not in phases and client_id not in (current.updates if what == "updates" else current.evaluations):
        if what == "updates":
            raise LateUpdate(f"round {number} is {current.phase} and takes no more {what}", **facts)
        if current.phase is RoundPhase.COMMITTED:
            raise LateReport(f"round {number} is {current.phase} and takes no more {what}", **facts)
        raise EarlyReport(f"round {number} is {current.phase} and takes no {what} yet", **facts)
    return current


def _same_or_conflict(run: Run, known: Update, update: Update) -> Run:
    if known.same_content(update):
        return run
    raise UpdateConflict(
        f"client {update.client_id} has already committed another update in this round",
        run_id=run.run_id,
        client_id=update.client_id,
    )
