"""Clients that an open round goes on without."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from fedplcc.aggregator.rounds.machine.round_waits import TAKING, can_do_without, damage_of, done_in, lack_of, owed_by
from fedplcc.aggregator.rounds.machine.run_facts import is_out, trainers, waits_for_quorum
from fedplcc.aggregator.rounds.machine.run_moves import RoundEvent, RunEvent, in_next_phase, move
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.shared.reasons import (
    NAMED_ABSENT,
    Dropped,
    DropReason,
    Lack,
    NoQuorum,
    Reason,
    TooFewClients,
    WaitsForApproval,
)
from fedplcc.shared.types import (
    Round,
    RoundPhase,
    Run,
    RunStatus,
)


def drop_absent(
    run: Run,
    *,
    absent: Mapping[str, Dropped],
    slow: Mapping[str, Dropped] = MappingProxyType({}),
    moving: Collection[str] = (),
    unknown: Collection[str] = (),
    quorum: Quorum = WHOLE_COHORT,
    fails: bool = False,
    now: float,
) -> Run:
    """Return the run without the clients that the open phase need not wait for.

    Absent clients are dropped if the others can make the quorum. If not, no further client is dropped: the run waits with
    the missing clients in its reason, or it fails. The phase waits again for a dropped client that makes progress. If the
    client of round 0 is absent, the next client is asked for the first model, and the phase starts again.

    A client whose owner has not approved the run is not there yet. A run that lacks only such clients waits for them and
    never fails.

    Args:
        run: A run; returned unchanged if it is not running or its round waits for no client.
        absent: The absent clients that an overdue phase need not wait for, with reasons; see presence/deadlines.py.
        slow: Clients that a phase beyond its hard deadline need not wait for, with reasons. Unlike absent ones they are
            expected as long as the others cannot make the quorum.
        moving: Clients that made progress lately.
        unknown: Clients whose state is not known yet. A run that waits for them continues to wait.
        fails: Whether the run fails without a quorum; else it waits.
        now: Time in seconds since the epoch.
    """
    current = run.current_round
    if run.status is not RunStatus.RUNNING or current is None or current.phase not in TAKING:
        return run
    owing = owed_by(run)
    if waits_for_quorum(run) and any(name in unknown for name in owing):
        return run
    if slow and can_do_without(run, {**slow, **absent}, quorum):
        absent = {**slow, **absent}
    current = taking_back(current, {name for name in owing if name in moving and name not in absent})
    late = {name: absent[name] for name in owing if name in absent and name not in current.dropped}
    rest = set(owing) - set(current.dropped) - set(late)
    if current.phase is RoundPhase.INITIALISING:
        others = [name for name in trainers(run) if name not in current.cohort and name not in absent]
        if not rest and others:
            current = replace(dropping(current, late), cohort=tuple(sorted((*current.cohort, others[0]))))
            return replace(
                run, reason=None, current_round=replace(current, phase_started_at={current.phase.value: now})
            )
        lack = None if rest else Lack(clients=TooFewClients(0, 1))
    else:
        lack = lack_of(run, {*done_in(current), *rest}, quorum)
    if lack is None:
        run = with_round(run, dropping(current, late))
        return _with_reason(run, damage_of(run))
    pending = sorted(name for name in owing if name in absent and absent[name].reason is DropReason.APPROVAL)
    if pending and (
        current.phase is RoundPhase.INITIALISING or lack_of(run, {*done_in(current), *rest, *pending}, quorum) is None
    ):
        approval = WaitsForApproval(
            round_number=current.number, clients=tuple(pending[:NAMED_ABSENT]), num_clients=len(pending)
        )
        return _with_reason(with_round(run, current), approval)
    # A client without an update need not report, but may; its report may be the only one that still comes.
    missing: dict[str, Dropped | None] = {
        name: why
        for name, why in current.dropped.items()
        if name not in {*run.quarantined, *done_in(current)} and not is_out(current, name)
    }
    missing |= {name: absent.get(name, current.dropped.get(name)) for name in owing if name not in rest}
    reason = NoQuorum(
        round_number=current.number,
        lack=lack,
        missing=dict(sorted(missing.items())[:NAMED_ABSENT]),
        num_missing=len(missing),
        quarantined=tuple(sorted(set(current.cohort) & set(run.quarantined))),
    )
    return without_quorum(with_round(run, current), reason, fails=fails)


def left_out(run: Run, clients: Collection[str]) -> dict[str, Dropped]:
    """Return why a round goes on without those of the clients that are quarantined."""
    return {name: Dropped(DropReason.QUARANTINED, run.quarantined[name]) for name in clients if name in run.quarantined}


def dropping(current: Round, clients: Mapping[str, Dropped]) -> Round:
    """Return a round that goes on without these clients."""
    return replace(current, dropped=dict(sorted({**current.dropped, **clients}.items()))) if clients else current


def without(current: Round, client_id: str) -> Round:
    """Return an open round without a client's update and report; if it waited for its aggregation, it collects again.

    A model that is aggregated already still holds the client's share.
    """
    if current.phase is RoundPhase.COMMITTED or client_id not in {**current.updates, **current.evaluations}:
        return current
    if current.phase is RoundPhase.AGGREGATING:
        began = min(current.phase_started_at.values())  # of the same phase: its deadline has not moved
        current = in_next_phase(current, RoundEvent.REOPENED, began)
    return replace(
        current,
        updates={name: update for name, update in current.updates.items() if name != client_id},
        evaluations={name: report for name, report in current.evaluations.items() if name != client_id},
    )


def taking_back(current: Round, clients: Collection[str]) -> Round:
    """Return a round that waits again for those of the clients that it dropped, but not for retired ones."""
    clients = {name for name in clients if name in current.dropped and not is_out(current, name)}
    if not clients:
        return current
    return replace(current, dropped={name: why for name, why in current.dropped.items() if name not in clients})


def without_quorum(run: Run, reason: Reason, *, fails: bool) -> Run:
    """Return a run that waits for this reason, or fails for it."""
    return move(run, RunEvent.FAIL, reason=reason) if fails else _with_reason(run, reason)


def _with_reason(run: Run, reason: Reason | None) -> Run:
    return run if run.reason == reason else replace(run, reason=reason)


def with_round(run: Run, current: Round) -> Run:
    """Return the run with its round changed, or the same run where nothing is."""
    return run if run.current_round == current else replace(run, current_round=current)
