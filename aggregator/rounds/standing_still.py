"""Why a round stands still: clients that cannot train on its global model, and the accepted update behind it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fedplcc.aggregator.rounds.far_updates import FarUpdate
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.types import ClientProblem, RoundPhase, Run, RunStatus

CANNOT_TRAIN = "TRAINING_DIVERGED"
"""Problem of a client whose training is not finite."""
MAX_SHOWN = 10
"""Most clients that a sentence names."""
RECENT = 3
"""Rounds before the open one whose far updates may be the cause."""


def cannot_train(
    run: Run, problems: Mapping[str, ClientProblem], far: Sequence[FarUpdate], makers: Sequence[str]
) -> RunWarning | None:
    """Return whom a round waits for because training is not finite, since when, and what is likely behind it.

    Args:
        problems: Fatal problems of clients of the open round.
        makers: Who made the first model, in the round that begins with it.
    """
    current = run.current_round
    if run.status is not RunStatus.RUNNING or current is None or current.phase is not RoundPhase.COLLECTING:
        return None
    waiting = sorted(
        name
        for name, problem in problems.items()
        if problem.reason == CANNOT_TRAIN and name in current.cohort and name not in current.updates
    )
    if not waiting:
        return None
    began = current.phase_started_at.get(RoundPhase.COLLECTING.value)
    since = "" if began is None else f" since {datetime.fromtimestamp(began, UTC):%Y-%m-%dT%H:%M:%SZ}"
    named = ", ".join(waiting[:MAX_SHOWN])
    more = f" and {len(waiting) - MAX_SHOWN} more" if len(waiting) > MAX_SHOWN else ""
    return RunWarning(
        RunWarningKind.CANNOT_TRAIN,
        current.number,
        f"round {current.number} is without updates of {named}{more}{since}: their training is not finite; "
        + _cause(run, current.number, far, makers),
        ("run.initial_model",),
    )


def _cause(run: Run, number: int, far: Sequence[FarUpdate], makers: Sequence[str]) -> str:
    recent = [each for each in far if number - RECENT <= each.round < number]
    if recent:
        first = min(recent, key=lambda each: (each.round, -each.norm))
        return (
            f"an accepted update far from the others' is the likely cause, {first.sentence}: quarantine that client, and "
            f'start a new run from the model before it, initial_model = "run:{run.run_id}@{first.round - 1}"'
        )
    if makers:
        return (
            f"it begins with the first model, which {', '.join(makers[:MAX_SHOWN])} made: start a new run with another"
        )
    return "no accepted update stands out by its norm: start a new run from an earlier model with a lower learning rate"
