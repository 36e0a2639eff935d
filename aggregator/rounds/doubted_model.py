"""Doubts about a run's first model: clients that make another one of specification and seed, and what follows. Pure.

Each client that begins with the first model makes it too. One that makes another trains nothing, and says so. Where these
are more than half of those that did not send it, the run fails with a sentence that names all of them; else it waits for
them, as for every client that cannot do its task. Nothing is known before round 1 opens: a second maker in round 0 would
need a third where two differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from fedplcc.aggregator.rounds.machine import run_facts, run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.errors import FirstModelDiffers
from fedplcc.shared.reasons import Stated
from fedplcc.shared.types import Event, Run, RunStatus

FIRST_ROUND = 1
"""The round that begins with the first model."""
MAX_SHOWN = 10
"""Most clients that a sentence names."""
CURE = (
    "compare their model code and versions of torch; or make a first model yourself, and start a new run with "
    "initial_model = file:PATH"
)


def doubters(run: Run, problems: Iterable[Event], makers: Collection[str]) -> tuple[str, ...]:
    """Return the clients of the open round that make another first model than its makers sent, sorted.

    Args:
        makers: Who sent the first model.
    """
    current = run.current_round
    if current is None or current.number != FIRST_ROUND:
        return ()
    said = {
        event.client_id
        for event in problems
        if event.round == FIRST_ROUND and event.data.get("reason") == FirstModelDiffers.reason
    }
    return tuple(sorted(said & set(current.cohort) - set(current.updates) - set(makers)))


def failed(run: Run, doubting: Sequence[str], makers: Sequence[str]) -> Run:
    """Return the run failed if more than half of those that did not send the first model make another one."""
    current = run.current_round
    if current is None or run.status not in (RunStatus.RUNNING, RunStatus.PAUSED):
        return run
    others = set(current.cohort) - set(makers)
    if 2 * len(doubting) <= len(others):
        return run
    return run_moves.move(run, RunEvent.FAIL, reason=Stated(f"{_fact(doubting, makers)}: {CURE}"))


def warning_of(doubting: Sequence[str], makers: Sequence[str]) -> RunWarning | None:
    """Return the warning about a first model that some clients doubt; None without any."""
    if not doubting:
        return None
    return RunWarning(
        RunWarningKind.FIRST_MODEL_DOUBTED,
        FIRST_ROUND,
        f"{_fact(doubting, makers)}, and at least half of the others do not say so: {CURE}",
        ("run.initial_model",),
    )


def _fact(doubting: Sequence[str], makers: Sequence[str]) -> str:
    return (
        f"the first model, which {_named(makers)} sent, is not what {_named(doubting)} make of specification and seed"
    )


def _named(clients: Sequence[str]) -> str:
    more = f" and {len(clients) - MAX_SHOWN} more" if len(clients) > MAX_SHOWN else ""
    return ", ".join(clients[:MAX_SHOWN]) + more


def first_model_came(before: Run, after: Run) -> bool:
    """Whether a first model has just come that no person chose."""
    is_made = run_facts.has_open_round(before) and not run_facts.has_open_round(after)
    return is_made and before.round_number == 0 and before.model is None


def why_uncompared(run: Run) -> str | None:
    """Return why nobody can compare a run's first model with another; None where others can."""
    return "the run has no other client" if len(run_facts.trainers(run)) < 2 else None
