"""Facts of a run and of its open round, which follow from its record alone."""

from __future__ import annotations

from fedplcc.shared.reasons import (
    BlobDamaged,
    DropReason,
    NobodyLeft,
    NoQuorum,
    Parked,
    WaitsForApproval,
)
from fedplcc.shared.types import (
    Round,
    RoundPhase,
    Run,
    RunStatus,
)


def is_parked(run: Run) -> bool:
    """Whether the run is paused because of an error in its own step, or of damage that only a person can repair."""
    return run.status is RunStatus.PAUSED and isinstance(run.reason, Parked | BlobDamaged)


def last_committed(run: Run) -> int | None:
    """Number of the last round that has committed, or None."""
    if run.current_round is None:
        return None
    number = run.round_number - has_open_round(run)
    return number if number >= 0 else None


def has_open_round(run: Run) -> bool:
    """Whether a round has opened and not committed."""
    return run.current_round is not None and run.current_round.phase is not RoundPhase.COMMITTED


def may_open_another(run: Run) -> bool:
    """Whether the run is between two rounds and has rounds left."""
    return run.status is RunStatus.RUNNING and not has_open_round(run) and run.round_number < run.total_rounds


def eligible(run: Run) -> tuple[str, ...]:
    """Clients of the roster that may take part in a round, sorted."""
    return tuple(name for name in sorted(set(run.roster) - set(run.quarantined)) if not is_retired(run, name))


def evaluates_only(run: Run, client_id: str) -> bool:
    """Whether a client of the run said when it joined that it has no image to train on: it reports, and never trains."""
    return run.admitted_examples.get(client_id) == 0


def trainers(run: Run) -> tuple[str, ...]:
    """Eligible clients that train, sorted: those of which cohorts are drawn."""
    return tuple(name for name in eligible(run) if not evaluates_only(run, name))


def evaluators(run: Run) -> tuple[str, ...]:
    """Eligible clients that report on every evaluated round and never train, sorted."""
    return (
        tuple(name for name in eligible(run) if evaluates_only(run, name))
        if 0 in run.admitted_examples.values()
        else ()
    )


def has_task_in(run: Run, client_id: str) -> bool:
    """Whether the open round may have a task for a client: of the cohort, or of an evaluator while it is evaluated."""
    current = run.current_round
    if current is None:
        return False
    return client_id in current.cohort or (current.phase is RoundPhase.EVALUATING and evaluates_only(run, client_id))


def is_retired(run: Run, client_id: str) -> bool:
    """Whether a client was retired from the run and not admitted again."""
    retired = run.retired.get(client_id)
    return retired is not None and not retired.is_back


def takes_no_part(run: Run, client_id: str) -> bool:
    """Whether a client is retired, or was when the open round had it: an admission counts from the next round on."""
    return is_retired(run, client_id) or (run.current_round is not None and is_out(run.current_round, client_id))


def waits_for_quorum(run: Run) -> bool:
    """Whether a running run waits because it has too few clients, or too few whose owners have approved it."""
    return run.status is RunStatus.RUNNING and isinstance(run.reason, NoQuorum | WaitsForApproval | NobodyLeft)


def is_out(current: Round, client_id: str) -> bool:
    """Whether the round is without a client that was retired while it was open."""
    why = current.dropped.get(client_id)
    return why is not None and why.reason is DropReason.RETIRED
