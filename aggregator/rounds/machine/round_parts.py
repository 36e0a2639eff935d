"""Parts of an open round: updates, their aggregation, reports and the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fedplcc.aggregator.rounds.machine.absences import dropping, left_out, taking_back
from fedplcc.aggregator.rounds.machine.round_waits import damage_of, is_waiting, lack_of
from fedplcc.aggregator.rounds.machine.run_facts import evaluates_only, is_parked, takes_no_part
from fedplcc.aggregator.rounds.machine.run_moves import RoundEvent, in_next_phase
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.shared.errors import (
    ClientQuarantined,
    EarlyReport,
    FutureRound,
    LateReport,
    LateUpdate,
    NotInCohort,
    RoundClosed,
    RunEnded,
    StaleRound,
    UpdateConflict,
)
from fedplcc.shared.reasons import (
    UpdateDamaged,
)
from fedplcc.shared.types import (
    AskedAgain,
    BlobRef,
    Evaluation,
    PrototypeCounts,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)


def add_update(run: Run, number: int, update: Update, *, now: float, quorum: Quorum = WHOLE_COHORT) -> Run:
    """Return the run with one more committed update; the phase closes if no other client is missing.

    A repeated update returns the run unchanged. A dropped client that sends its update is part of the round again.

    Raises:
        UpdateConflict: Another update of this client is committed in this round.
        RoundClosed: The round is not the open one, or is not collecting.
        NotInCohort: The client is not in the cohort.
    """
    current = round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), update.client_id, "updates")
    known = current.updates.get(update.client_id)
    if known is not None:
        return _same_or_conflict(run, known, update)
    current = replace(taking_back(current, {update.client_id}), updates={**current.updates, update.client_id: update})
    if number == 0:
        model = update.payload.tensor_group("model")
        run = replace(run, model=model)
        current = replace(current, model=model, prototypes=run.prototypes)
    run = replace(run, current_round=current)
    if isinstance(run.reason, UpdateDamaged):
        run = replace(run, reason=damage_of(run))
    return close_updates(run, now=now, quorum=quorum)


def close_updates(run: Run, *, now: float, quorum: Quorum = WHOLE_COHORT) -> Run:
    """Return the run with its collecting phase closed, if no client is missing and there is a quorum.

    Round 0 needs one model, from any client.
    """
    current = run.current_round
    if current is None or current.phase not in (RoundPhase.INITIALISING, RoundPhase.COLLECTING):
        return run
    if run.status not in (RunStatus.RUNNING, RunStatus.PAUSED):
        return run
    is_made = current.phase is RoundPhase.INITIALISING and bool(current.updates)
    if is_parked(run) and not is_made:
        return run
    if not is_made and (is_waiting(run) or not current.updates or lack_of(run, current.updates, quorum)):
        return run
    reason = run.reason if is_parked(run) else None
    return replace(run, reason=reason, current_round=in_next_phase(current, RoundEvent.COLLECTED, now))


def check_takes_updates(run: Run, number: int, client_id: str) -> None:
    """Check that a round takes an update of this client now.

    Raises:
        RoundClosed: The round is not the open one, or is not collecting.
        NotInCohort: The client is not in the cohort.
    """
    round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), client_id, "updates")


def aggregated(
    run: Run,
    number: int,
    *,
    model: BlobRef,
    prototypes: BlobRef,
    prototype_counts: PrototypeCounts,
    start: BlobRef | None = None,
    server_state: Mapping[str, BlobRef] = MappingProxyType({}),
    now: float,
) -> Run:
    """Return the run with its round's new model, prototypes and server state, ready to be evaluated.

    Raises:
        RoundClosed: The round is not the open one, or is not being aggregated.
    """
    current = _being_aggregated(run, number)
    current = replace(
        current,
        model=model,
        prototypes=prototypes,
        prototype_counts=prototype_counts,
        start=start,
        server_state=dict(server_state),
    )
    return replace(run, reason=None, current_round=in_next_phase(current, RoundEvent.AGGREGATED, now))


def ask_again(run: Run, number: int, damaged: Mapping[str, tuple[str, ...]], *, now: float) -> Run:
    """Return the run collecting again: the damaged updates leave the round, and their clients are asked for them again.

    Args:
        number: The round that cannot be aggregated.
        damaged: SHA-256 of damaged or missing blobs by the client that committed them; not empty.
        now: Time in seconds since the epoch.

    Raises:
        RoundClosed: The round is not the open one, or is not being aggregated.
    """
    current = _being_aggregated(run, number)
    asked = {
        name: AskedAgain(times=current.asked_again[name].times + 1 if name in current.asked_again else 1, sha256s=blobs)
        for name, blobs in damaged.items()
    }
    current = replace(
        in_next_phase(current, RoundEvent.REOPENED, now),
        updates={name: update for name, update in current.updates.items() if name not in damaged},
        asked_again=dict(sorted({**current.asked_again, **asked}.items())),
    )
    current = dropping(current, left_out(run, damaged))
    run = replace(run, current_round=current)
    return replace(run, reason=damage_of(run))


def add_evaluation(run: Run, number: int, evaluation: Evaluation) -> Run:
    """Return the run with one more report; the first one of a client counts.

    Raises:
        RoundClosed: The round is not being evaluated.
        NotInCohort: The client is not in the cohort.
    """
    current = round_in(run, number, (RoundPhase.EVALUATING,), evaluation.client_id, "evaluations")
    if evaluation.client_id in current.evaluations:
        return run
    if evaluation.client_id in current.updates or evaluates_only(run, evaluation.client_id):
        current = taking_back(current, {evaluation.client_id})
    return replace(
        run, current_round=replace(current, evaluations={**current.evaluations, evaluation.client_id: evaluation})
    )


def commit_round(run: Run, *, results_json: str, timings_json: str, now: float) -> Run:
    """Return the run with its evaluated round committed; the run takes over the round's results."""
    assert run.current_round is not None
    current = in_next_phase(run.current_round, RoundEvent.EVALUATED, now)
    current = replace(current, results_json=results_json, timings_json=timings_json)
    return replace(
        run,
        current_round=current,
        model=current.model,
        prototypes=current.prototypes,
        start=current.start,
        server_state=current.server_state,
    )


def round_in(run: Run, number: int, phases: tuple[RoundPhase, ...], client_id: str, what: str) -> Round:
    """Return the open round if it takes an update or a report of this client; checks run, round, client, then phase."""
    current = run.current_round
    facts = {"run_id": run.run_id, "round": number}
    if run.status.is_final or run.status is RunStatus.STOPPING:
        raise RunEnded(f"the run is {run.status} and takes no more {what}", **facts)
    if current is None or current.number < number:
        opened = "none" if current is None else current.number
        raise FutureRound(f"round {number} takes no {what} yet; the latest round is {opened}", **facts)
    if current.number > number:
        raise StaleRound(f"round {number} takes no more {what}; the latest round is {current.number}", **facts)
    known = current.updates if what == "updates" else current.evaluations
    if client_id in run.quarantined and client_id not in known:
        raise ClientQuarantined(f"client {client_id} is quarantined in this run: {run.quarantined[client_id]}", **facts)
    if takes_no_part(run, client_id) and client_id not in known:
        raise NotInCohort(f"client {client_id} was retired from this run, and takes no part in round {number}", **facts)
    if what == "updates" and evaluates_only(run, client_id):
        raise NotInCohort(f"client {client_id} said that it evaluates only: the run takes no update of it", **facts)
    if client_id not in current.cohort and not evaluates_only(run, client_id):
        raise NotInCohort(f"client {client_id} was not asked to take part in round {number}", **facts)
    if current.phase not in phases and client_id not in known:
        if what == "updates":
            raise LateUpdate(f"round {number} is {current.phase} and takes no more {what}", **facts)
        if current.phase is RoundPhase.COMMITTED:
            raise LateReport(f"round {number} is {current.phase} and takes no more {what}", **facts)
        raise EarlyReport(f"round {number} is {current.phase} and takes no {what} yet", **facts)
    return current


def _being_aggregated(run: Run, number: int) -> Round:
    current = run.current_round
    if current is None or current.number != number or current.phase is not RoundPhase.AGGREGATING:
        raise RoundClosed(f"round {number} is not being aggregated", run_id=run.run_id, round=number)
    return current


def _same_or_conflict(run: Run, known: Update, update: Update) -> Run:
    if known.same_content(update):
        return run
    raise UpdateConflict(
        f"client {update.client_id} has already committed another update in this round",
        run_id=run.run_id,
        client_id=update.client_id,
    )
