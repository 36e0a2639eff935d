"""What the open phase of a run waits for: clients that owe their part, and a quorum."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fedplcc.aggregator.rounds.machine.run_facts import evaluators, is_out, trainers
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.shared.reasons import (
    Lack,
    UpdateDamaged,
)
from fedplcc.shared.types import (
    Round,
    RoundPhase,
    Run,
)


def damage_of(run: Run) -> UpdateDamaged | None:
    """Return the reason of a run that waits for damaged updates; None if it waits for none."""
    current = run.current_round
    if current is None or current.phase is not RoundPhase.COLLECTING:
        return None
    waiting = waited_for(run)
    blobs = {name: asked.sha256s for name, asked in current.asked_again.items() if name in waiting}
    return UpdateDamaged(round_number=current.number, blobs=blobs) if blobs else None


def is_evaluated(run: Run, quorum: Quorum = WHOLE_COHORT, *, is_asked: bool = True) -> bool:
    """Whether the open round has a quorum of reports and waits for no more.

    Args:
        is_asked: Whether clients are asked for reports on this round; if not, none is missing.
    """
    current = run.current_round
    if current is None or current.phase is not RoundPhase.EVALUATING:
        return False
    if not is_asked:
        return True
    return not is_waiting(run) and not lack_of(run, current.evaluations, quorum)


def waited_for(run: Run) -> tuple[str, ...]:
    """Clients that the open phase waits for, sorted: in the cohort, not done, neither dropped nor quarantined."""
    current = run.current_round
    return () if current is None else tuple(name for name in owed_by(run) if name not in current.dropped)


TAKING = (RoundPhase.INITIALISING, RoundPhase.COLLECTING, RoundPhase.EVALUATING)
"""Phases in which clients have a task."""


def done_in(current: Round) -> Collection[str]:
    """Clients that have done their part of the current phase."""
    return current.evaluations.keys() if current.phase is RoundPhase.EVALUATING else current.updates.keys()


def _asked(run: Run, current: Round) -> Collection[str]:
    """Clients of whom the phase wants something: an update of the cohort, a report of those with one and of evaluators."""
    return {*current.updates, *evaluators(run)} if current.phase is RoundPhase.EVALUATING else current.cohort


def asked_of(run: Run) -> tuple[str, ...]:
    """Clients with a part in the open phase, sorted: the cohort and, while it is evaluated, those that evaluate only."""
    current = run.current_round
    if current is None:
        return ()
    more = evaluators(run) if current.phase is RoundPhase.EVALUATING else ()
    return tuple(sorted({*current.cohort, *more})) if more else current.cohort


def owed_by(run: Run) -> list[str]:
    """Clients whose part of the open phase is missing, sorted; a client without an update need not report."""
    current = run.current_round
    if current is None or current.phase not in TAKING:
        return []
    missing = set(_asked(run, current)) - set(done_in(current)) - set(run.quarantined)
    return sorted(name for name in missing if not is_out(current, name))


def is_waiting(run: Run) -> bool:
    """Whether the open phase waits for a client; known by counting while many are missing."""
    current = run.current_round
    if current is not None and current.phase in TAKING:
        asked = current.updates if current.phase is RoundPhase.EVALUATING else current.cohort
        if len(done_in(current)) + len(current.dropped) + len(run.quarantined) < len(asked):
            return True
    return bool(waited_for(run))


def can_do_without(run: Run, away: Collection[str], quorum: Quorum) -> bool:
    """Whether the open phase can go on without these clients."""
    current = run.current_round
    assert current is not None
    rest = [name for name in owed_by(run) if name not in away]
    if current.phase is RoundPhase.INITIALISING:
        return any(name not in current.cohort and name not in away for name in trainers(run))
    return lack_of(run, {*done_in(current), *rest}, quorum) is None


def lack_of(run: Run, here: Collection[str], quorum: Quorum) -> Lack | None:
    """Return the clients or domains that the open phase lacks for its quorum; a client without an update need not report."""
    current = run.current_round
    assert current is not None
    asked = _asked(run, current)
    left = [name for name in asked if not is_out(current, name)]
    if current.phase is RoundPhase.EVALUATING and len(left) < len(asked):
        # A report is no share of the model: where clients were retired, fewer reports do, or none.
        if not left:
            return None
        if quorum.min_clients is not None:
            quorum = replace(quorum, min_clients=min(quorum.min_clients, len(left)))
    return quorum.lack([name for name in left if name not in run.quarantined], here)
