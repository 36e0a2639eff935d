"""Clients that come to a run, go, are left out and come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from fedplcc.aggregator.rounds.machine.absences import dropping, left_out, taking_back, with_round, without
from fedplcc.aggregator.rounds.machine.round_waits import done_in
from fedplcc.aggregator.rounds.machine.run_facts import (
    evaluates_only,
    has_open_round,
    has_task_in,
    is_out,
    is_parked,
    is_retired,
    trainers,
)
from fedplcc.shared.config.tables.membership import MembershipSection
from fedplcc.shared.errors import (
    InvalidTransition,
)
from fedplcc.shared.reasons import (
    Dropped,
    DropReason,
)
from fedplcc.shared.types import (
    Retired,
    RoundPhase,
    Run,
    RunStatus,
)


def admit(run: Run, clients: Iterable[str]) -> Run:
    """Return the run with more clients in its roster; they take part from the next round on."""
    return replace(run, roster=tuple(sorted({*run.roster, *clients})))


def record_examples(run: Run, num_examples: Mapping[str, int]) -> Run:
    """Return the run with the samples of clients of its roster; what was recorded of a client before stays."""
    found = {name: num_examples[name] for name in run.roster if name in num_examples}
    return replace(run, admitted_examples=dict(sorted({**found, **run.admitted_examples}.items())))


MAX_ADMISSIONS = 100_000
"""Most admissions by request that a run takes."""


def enter(run: Run, client_id: str) -> Run:
    """Return the run with a client admitted by request: it may be in the cohorts of later rounds, not in the open one's.

    Admitting a client that takes part already changes nothing.

    Raises:
        InvalidTransition: The run has ended or is stopping, has not found its first clients, or takes no more admissions.
    """
    require_open(run)
    if client_id in run.roster and not is_retired(run, client_id):
        return run
    if not run.roster:
        raise InvalidTransition(
            f"run {run.run_id} begins with the clients that join first (run.min_clients); admit others when it has begun",
            run_id=run.run_id,
        )
    if run.num_admissions >= MAX_ADMISSIONS:
        raise InvalidTransition(
            f"run {run.run_id} has taken {MAX_ADMISSIONS} admissions, the most that a run takes", run_id=run.run_id
        )
    return _entered(run, client_id)


def _entered(run: Run, client_id: str) -> Run:
    retired = dict(run.retired)
    former = retired.pop(client_id, None)
    if former is not None and former.is_forgotten:
        retired[client_id] = replace(former, is_back=True)
    entered = replace(run, retired=dict(sorted(retired.items())), num_admissions=run.num_admissions + 1)
    return admit(entered, [client_id])


def come_back(run: Run, client_id: str) -> Run:
    """Return the run with a client whose site's owner ended its part, and has approved the run again.

    A client that was retired by request, or by the plan, stays out, and so does a quarantined one: that is no owner's word.

    Raises:
        InvalidTransition: See `enter`.
    """
    return enter(run, client_id) if has_owner_ended(run, client_id) else run


def follow_plan(run: Run, plan: MembershipSection, *, has_roster: bool) -> Run:
    """Return the run between two rounds with the clients that its plan has come or go with the next one.

    Without changes it is the same run. What people ask for by hand is not undone: the plan changes a client where its
    rounds begin and end alone.

    Args:
        plan: Rounds in which clients take part.
        has_roster: Whether the configuration names the clients; else those that come are admitted as all that connect.
    """
    number = run.round_number + 1
    for client_id, comes in plan.changes(number):
        takes_part = client_id in run.roster and not is_retired(run, client_id)
        if comes and has_roster and not takes_part:
            run = _entered(run, client_id)
        elif not comes and (takes_part or has_owner_ended(run, client_id)):
            run = _leaving(run, client_id, forgets=False)
    return run


def has_owner_ended(run: Run, client_id: str) -> bool:
    """Whether a client is out of the run by the word of its site's owner alone."""
    return is_retired(run, client_id) and run.retired[client_id].by_owner


def _leaving(run: Run, client_id: str, *, forgets: bool, by_owner: bool = False) -> Run:
    """Return the run with a client's retirement noted; who was to be forgotten once stays so."""
    former = run.retired.get(client_id)
    is_forgotten = forgets or (former is not None and former.is_forgotten)
    record = Retired(round=run.round_number, is_forgotten=is_forgotten, by_owner=by_owner)
    return replace(run, retired=dict(sorted({**run.retired, client_id: record}.items())))


def retire(
    run: Run, client_id: str, *, forgets: bool = False, min_clients: int | None = None, by_owner: bool = False
) -> Run:
    """Return the run with a client retired: its part in the open round ends, and no later cohort has it.

    What the client has committed in the open round stays. Retiring it again changes nothing, but it may be forgotten
    later.

    Args:
        forgets: Whether later pools are without the client's earlier prototypes.
        min_clients: Fewest clients of a round, where the run says so.
        by_owner: Whether the owner of its site has ended its part. Nobody may refuse that: a run that lacks clients then
            waits for others, or fails.

    Raises:
        InvalidTransition: The run has ended or is stopping, or its rounds would wait for ever without the client.
    """
    require_open(run)
    former, after = run.retired.get(client_id), _leaving(run, client_id, forgets=forgets, by_owner=by_owner)
    if former is not None and replace(former, round=run.round_number) == after.retired[client_id]:
        return run
    if by_owner and is_retired(run, client_id):
        return run  # it is out already, by others' word, which the owner's does not replace
    if is_retired(run, client_id):
        return after
    if not by_owner:
        _require_rest(after, client_id, set(trainers(after)), "the run", min_clients)
    current = run.current_round
    if current is None or not has_open_round(run) or not has_task_in(run, client_id):
        return after
    if current.phase is RoundPhase.EVALUATING and client_id in current.evaluations:
        return after
    why = "its site's owner ended its part" if by_owner else "retired by request"
    dropped = dropping(current, {client_id: Dropped(DropReason.RETIRED, why)})
    if current.phase is RoundPhase.COLLECTING and not by_owner:
        rest = {name for name in current.cohort if name in current.updates or not is_out(dropped, name)}
        _require_rest(after, client_id, rest, f"round {current.number}", min_clients)
    return replace(after, current_round=dropped)


def _require_rest(run: Run, client_id: str, rest: Collection[str], what: str, min_clients: int | None) -> None:
    needed = max(1, min_clients or 0)
    if len(rest) < needed:
        raise InvalidTransition(
            f"without client {client_id} {what} has {len(rest)} of the {needed} clients that a round needs, and would wait "
            "for ever: admit another client first and wait for the next round, or stop the run",
            run_id=run.run_id,
        )


def require_open(run: Run) -> None:
    """Check that clients and stages may change.

    Raises:
        InvalidTransition: The run has ended or is stopping.
    """
    if run.status.is_final or run.status is RunStatus.STOPPING:
        raise InvalidTransition(
            f"the run is {run.status}; no client comes or goes any more", run_id=run.run_id, status=run.status
        )


def quarantine(run: Run, client_id: str, reason: str) -> Run:
    """Return the run with a client quarantined: dropped from the open round, and in no later cohort.

    Updates and reports that the client has committed in the open round stay, unless the run is parked: they may be the
    cause. Quarantining it again changes nothing else, and in a run that has ended nothing at all.
    """
    if run.status.is_final:
        return run
    if is_parked(run) and run.current_round is not None:
        run = with_round(run, without(run.current_round, client_id))
    if client_id not in run.quarantined:
        run = replace(run, quarantined=dict(sorted({**run.quarantined, client_id: reason}.items())))
    current = run.current_round
    if current is None or not has_task_in(run, client_id) or not has_open_round(run):
        return run
    if client_id in done_in(current) or is_out(current, client_id):
        return run
    return with_round(run, dropping(current, left_out(run, [client_id])))


def release(run: Run, client_id: str) -> Run:
    """Return the run with a quarantined client released, and its refusals forgotten.

    The client is part of the open round again if it is in the cohort and the phase still takes its part; a round that went
    on without its update stays without it. Later cohorts may have it. Releasing a client that is not quarantined, or in a
    run that has ended, changes nothing.
    """
    if run.status.is_final or client_id not in run.quarantined:
        return run
    run = replace(
        run,
        quarantined={name: why for name, why in run.quarantined.items() if name != client_id},
        rejections={name: entry for name, entry in run.rejections.items() if name != client_id},
    )
    current = run.current_round
    if current is None or not has_open_round(run):
        return run
    takes_updates = current.phase in (RoundPhase.INITIALISING, RoundPhase.COLLECTING)
    takes_part = takes_updates or client_id in current.updates or evaluates_only(run, client_id)
    return with_round(run, taking_back(current, [client_id] if takes_part else []))
