"""The two state machines, of a run and of a round, as pure functions over frozen records.

    run      PENDING --roster_met--> RUNNING <--pause/resume--> PAUSED
             RUNNING --finish--> COMPLETED        PENDING, RUNNING, PAUSED --fail--> FAILED
             PENDING, RUNNING, PAUSED --stop--> STOPPING --all_idle--> STOPPED
             PENDING, RUNNING, PAUSED --park--> PAUSED --wait--> PENDING, if it was pending
             COMPLETED --extend--> RUNNING, with more rounds
             (all_idle: no client of the roster says that it works for the run, or the stop is two leases old)

    round 0  INITIALISING --collected--> COMMITTED
    round t  COLLECTING --collected--> AGGREGATING --aggregated--> EVALUATING --evaluated--> COMMITTED
             AGGREGATING --reopened--> COLLECTING

A round that the configuration leaves unevaluated passes EVALUATING within the transaction of its aggregation: no client is
ever asked for a report.

A run is parked if its own next step meets an error: it is paused, its reason names the cause, and it takes no step by itself
until a person resumes it. In a parked run a quarantine also removes what the client sent in the open phase.

A phase closes when all clients that it waits for are done and they make a quorum, by default the whole cohort. With a
smaller quorum, clients that are absent when the phase is overdue are dropped while the others can make it (`drop_absent`).

Every function takes a `Run` and returns the next one, or raises; none reads a clock, a disk or a socket. The ledger writes
the result and its events in one transaction, and only then acts on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.membership import MembershipSection
from fedplcc.shared.config.stream import NO_STREAM, StreamSection
from fedplcc.shared.errors import (
    ClientQuarantined,
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
from fedplcc.shared.reasons import (
    NAMED_ABSENT,
    BlobDamaged,
    Dropped,
    DropReason,
    Lack,
    NobodyJoined,
    NobodyLeft,
    NoQuorum,
    Parked,
    Reason,
    Stated,
    StoppedEarly,
    TooFewClients,
    UpdateDamaged,
    WaitsForClients,
)
from fedplcc.shared.types import (
    AskedAgain,
    BlobRef,
    Evaluation,
    PrototypeCounts,
    Retired,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
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
    return replace(resumed, reason=_damage(resumed))


def park(run: Run, reason: Reason) -> Run:
    """Return the run paused because it cannot go on without a person; `resume` tries again.

    A run that is parked, is stopping or has ended is returned unchanged.
    """
    if run.status is RunStatus.STOPPING or run.status.is_final or is_parked(run):
        return run
    return move(run, RunEvent.PARK, reason=reason)


def is_parked(run: Run) -> bool:
    """Whether the run is paused because of an error in its own step, or of damage that only a person can repair."""
    return run.status is RunStatus.PAUSED and isinstance(run.reason, Parked | BlobDamaged)


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


def is_retired(run: Run, client_id: str) -> bool:
    """Whether a client was retired from the run and not admitted again."""
    retired = run.retired.get(client_id)
    return retired is not None and not retired.is_back


def takes_no_part(run: Run, client_id: str) -> bool:
    """Whether a client is retired, or was when the open round had it: an admission counts from the next round on."""
    return is_retired(run, client_id) or (run.current_round is not None and _is_out(run.current_round, client_id))


def next_step(
    run: Run,
    *,
    cohort_size: int | None,
    now: float,
    stream: StreamSection = NO_STREAM,
    fails: bool = False,
    stops_early: StoppedEarly | None = None,
) -> Run:
    """Return the run after a committed round: completed, paused, or with the next round open.

    A run that is not running, or whose round is open, is returned unchanged. A run without any eligible client waits for
    one and has a reason; with `fails` it fails instead. With `stops_early` it completes for that reason.
    """
    if run.status is not RunStatus.RUNNING or has_open_round(run):
        return run
    if run.round_number >= run.total_rounds:
        return move(run, RunEvent.FINISH)
    if stops_early is not None:
        return move(run, RunEvent.FINISH, reason=stops_early)
    if run.is_pause_requested:
        return move(run, RunEvent.PAUSE)
    if not eligible(run):
        return _without_quorum(run, NobodyLeft(), fails=fails)
    return open_round(run, run.round_number + 1, cohort_size=cohort_size, now=now, stream=stream)


def open_round(run: Run, number: int, *, cohort_size: int | None, now: float, stream: StreamSection = NO_STREAM) -> Run:
    """Return the run with a new round. Round 0 asks the lowest client id of the roster for the first model.

    A run in whose next stage no client has an image fails.
    """
    phase = RoundPhase.COLLECTING if number else RoundPhase.INITIALISING
    cohort = cohort_of(run, number, cohort_size=cohort_size, stream=stream) if number else eligible(run)[:1]
    if not cohort:
        return _without_data(run, number, stream)
    opened = Round(number=number, phase=phase, cohort=cohort, phase_started_at={phase.value: now})
    return replace(run, current_round=opened, reason=None)


def cohort_of(run: Run, number: int, *, cohort_size: int | None, stream: StreamSection = NO_STREAM) -> tuple[str, ...]:
    """Return the clients that are drawn for a round, sorted: a function of the configuration and of recorded facts.

    Clients that have nothing to train on in the round's stage are in none of its cohorts. A cohort of a whole pass is drawn
    once, and is smaller in a stage for which some of its clients have nothing.
    """
    place = stream.place(number, run.stage_began)
    clients = eligible(run)
    if place is None:
        return select_cohort(clients, seed=run.seed, round_number=number, cohort_size=cohort_size)
    having = [name for name in clients if place.stage not in run.without_data.get(name, ())]
    if stream.cohort == "round":
        return select_cohort(having, seed=run.seed, round_number=number, cohort_size=cohort_size)
    of_pass = select_cohort(clients, seed=run.seed, round_number=stream.first_of_pass(place), cohort_size=cohort_size)
    return tuple(name for name in of_pass if name in having)


def leave_stage(
    run: Run,
    number: int,
    client_id: str,
    *,
    cohort_size: int | None,
    stream: StreamSection,
    now: float,
    quorum: Quorum = WHOLE_COHORT,
) -> Run:
    """Return the run without a client in the open round's stage: it has nothing to train on there, in no pass.

    Another client is drawn in its place where the run draws for every round. The run fails if nobody is left.

    Raises:
        RoundClosed: The round is not the open one, or is not collecting.
        NotInCohort: The client is not in the cohort.
    """
    current = _round_in(run, number, (RoundPhase.COLLECTING,), client_id, "updates")
    if client_id in current.updates:
        raise UpdateConflict(f"client {client_id} has already committed an update in round {number}")
    place = stream.place(number, run.stage_began)
    assert place is not None
    stages = tuple(sorted({*run.without_data.get(client_id, ()), place.stage}))
    run = replace(run, without_data=dict(sorted({**run.without_data, client_id: stages}.items())))
    drawn = {*cohort_of(run, number, cohort_size=cohort_size, stream=stream), *current.cohort} - {client_id}
    kept = {name for name in drawn if place.stage not in run.without_data.get(name, ())}
    cohort = tuple(sorted(kept))
    run = replace(run, current_round=replace(current, cohort=cohort))
    return close_updates(run, now=now, quorum=quorum) if cohort else _without_data(run, number, stream)


def _without_data(run: Run, number: int, stream: StreamSection) -> Run:
    place = stream.place(number, run.stage_began)
    stage = "" if place is None else f" of stage {place.stage}"
    return move(
        run,
        RunEvent.FAIL,
        reason=Stated(
            f"no client has an image{stage} to train on: begin a run whose clients have data for every stage"
        ),
    )


def advance(run: Run, stream: StreamSection) -> Run:
    """Return the run with its next stage, which begins with the next round.

    Asking again before that round has opened changes nothing.

    Raises:
        InvalidTransition: People do not end the run's stages, it has ended, or its last stage has begun.
    """
    if not stream.is_manual:
        raise InvalidTransition(
            f'run {run.run_id} ends its stages by itself or has none; only runs with stream.advance = "manual" are told to',
            run_id=run.run_id,
        )
    _require_open(run)
    first = max(run.round_number, 0) + 1
    if first in run.stage_began:
        return run
    if len(run.stage_began) + 1 >= stream.stages:
        raise InvalidTransition(f"run {run.run_id} is in its last stage, {stream.stages}", run_id=run.run_id)
    return replace(run, stage_began=(*run.stage_began, first))


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
    _require_open(run)
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


def follow_plan(run: Run, plan: MembershipSection, *, has_roster: bool) -> Run:
    """Return the run between two rounds with the clients that its plan has come or go with the next one.

    Without changes it is the same run. What people ask for by hand is not undone: the plan changes a client where its
    rounds begin and end alone.

    Args:
        run: The run.
        plan: Rounds in which clients take part.
        has_roster: Whether the configuration names the clients; else those that come are admitted as all that connect.
    """
    number = run.round_number + 1
    for client_id, comes in plan.changes(number):
        takes_part = client_id in run.roster and not is_retired(run, client_id)
        if comes and has_roster and not takes_part:
            run = _entered(run, client_id)
        elif not comes and takes_part:
            run = _leaving(run, client_id, forgets=False)
    return run


def _leaving(run: Run, client_id: str, *, forgets: bool) -> Run:
    """Return the run with a client's retirement noted; who was to be forgotten once stays so."""
    former = run.retired.get(client_id)
    is_forgotten = forgets or (former is not None and former.is_forgotten)
    record = Retired(round=run.round_number, is_forgotten=is_forgotten)
    return replace(run, retired=dict(sorted({**run.retired, client_id: record}.items())))


def retire(run: Run, client_id: str, *, forgets: bool = False, min_clients: int | None = None) -> Run:
    """Return the run with a client retired: its part in the open round ends, and no later cohort has it.

    What the client has committed in the open round stays. Retiring it again changes nothing, but it may be forgotten
    later.

    Args:
        run: The run.
        client_id: A client of its roster.
        forgets: Whether later pools are without the client's earlier prototypes.
        min_clients: Fewest clients of a round, where the run says so.

    Raises:
        InvalidTransition: The run has ended or is stopping, or its rounds would wait for ever without the client.
    """
    _require_open(run)
    former, after = run.retired.get(client_id), _leaving(run, client_id, forgets=forgets)
    if former is not None and not former.is_back and former.is_forgotten == after.retired[client_id].is_forgotten:
        return run
    if is_retired(run, client_id):
        return after
    _require_rest(after, client_id, set(eligible(after)), "the run", min_clients)
    current = run.current_round
    if current is None or not has_open_round(run) or client_id not in current.cohort:
        return after
    if current.phase is RoundPhase.EVALUATING and client_id in current.evaluations:
        return after
    dropped = _dropping(current, {client_id: Dropped(DropReason.RETIRED, "retired by request")})
    if current.phase is RoundPhase.COLLECTING:
        rest = {name for name in current.cohort if name in current.updates or not _is_out(dropped, name)}
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


def _require_open(run: Run) -> None:
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
        run = _with_round(run, _without(run.current_round, client_id))
    if client_id not in run.quarantined:
        run = replace(run, quarantined=dict(sorted({**run.quarantined, client_id: reason}.items())))
    current = run.current_round
    if current is None or client_id not in current.cohort or not has_open_round(run):
        return run
    if client_id in _done(current) or _is_out(current, client_id):
        return run
    return _with_round(run, _dropping(current, _quarantined(run, [client_id])))


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
    return _with_round(run, _taking_back(current, [client_id] if takes_updates or client_id in current.updates else []))


def add_update(run: Run, number: int, update: Update, *, now: float, quorum: Quorum = WHOLE_COHORT) -> Run:
    """Return the run with one more committed update; the phase closes if no other client is missing.

    A repeated update returns the run unchanged. A dropped client that sends its update is part of the round again.

    Raises:
        UpdateConflict: Another update of this client is committed in this round.
        RoundClosed: The round is not the open one, or is not collecting.
        NotInCohort: The client is not in the cohort.
    """
    current = _round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), update.client_id, "updates")
    known = current.updates.get(update.client_id)
    if known is not None:
        return _same_or_conflict(run, known, update)
    current = replace(_taking_back(current, {update.client_id}), updates={**current.updates, update.client_id: update})
    if number == 0:
        model = update.payload.tensor_group("model")
        run = replace(run, model=model)
        current = replace(current, model=model, prototypes=run.prototypes)
    run = replace(run, current_round=current)
    if isinstance(run.reason, UpdateDamaged):
        run = replace(run, reason=_damage(run))
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
    if not is_made and (_waits(run) or not current.updates or _lack(run, current.updates, quorum)):
        return run
    reason = run.reason if is_parked(run) else None
    return replace(run, reason=reason, current_round=_advance(current, RoundEvent.COLLECTED, now))


def check_takes_updates(run: Run, number: int, client_id: str) -> None:
    """Check that a round takes an update of this client now.

    Raises:
        RoundClosed: The round is not the open one, or is not collecting.
        NotInCohort: The client is not in the cohort.
    """
    _round_in(run, number, (RoundPhase.COLLECTING, RoundPhase.INITIALISING), client_id, "updates")


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
    return replace(run, reason=None, current_round=_advance(current, RoundEvent.AGGREGATED, now))


def ask_again(run: Run, number: int, damaged: Mapping[str, tuple[str, ...]], *, now: float) -> Run:
    """Return the run collecting again: the damaged updates leave the round, and their clients are asked for them again.

    Args:
        run: The run.
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
        _advance(current, RoundEvent.REOPENED, now),
        updates={name: update for name, update in current.updates.items() if name not in damaged},
        asked_again=dict(sorted({**current.asked_again, **asked}.items())),
    )
    current = _dropping(current, _quarantined(run, damaged))
    run = replace(run, current_round=current)
    return replace(run, reason=_damage(run))


def _damage(run: Run) -> UpdateDamaged | None:
    """Return the reason of a run that waits for damaged updates; None if it waits for none."""
    current = run.current_round
    if current is None or current.phase is not RoundPhase.COLLECTING:
        return None
    waiting = waited_for(run)
    blobs = {name: asked.sha256s for name, asked in current.asked_again.items() if name in waiting}
    return UpdateDamaged(round_number=current.number, blobs=blobs) if blobs else None


def add_evaluation(run: Run, number: int, evaluation: Evaluation) -> Run:
    """Return the run with one more report; the first one of a client counts.

    Raises:
        RoundClosed: The round is not being evaluated.
        NotInCohort: The client is not in the cohort.
    """
    current = _round_in(run, number, (RoundPhase.EVALUATING,), evaluation.client_id, "evaluations")
    if evaluation.client_id in current.evaluations:
        return run
    if evaluation.client_id in current.updates:
        current = _taking_back(current, {evaluation.client_id})
    return replace(
        run, current_round=replace(current, evaluations={**current.evaluations, evaluation.client_id: evaluation})
    )


def is_evaluated(run: Run, quorum: Quorum = WHOLE_COHORT, *, is_asked: bool = True) -> bool:
    """Whether the open round has a quorum of reports and waits for no more.

    Args:
        run: The run.
        quorum: The quorum of the phase.
        is_asked: Whether clients are asked for reports on this round; if not, none is missing.
    """
    current = run.current_round
    if current is None or current.phase is not RoundPhase.EVALUATING:
        return False
    if not is_asked:
        return True
    return not _waits(run) and not _lack(run, current.evaluations, quorum)


def waits_for_quorum(run: Run) -> bool:
    """Whether a running run waits because it has too few clients."""
    return run.status is RunStatus.RUNNING and isinstance(run.reason, NoQuorum | NobodyLeft)


def waited_for(run: Run) -> tuple[str, ...]:
    """Clients that the open phase waits for, sorted: in the cohort, not done, neither dropped nor quarantined."""
    current = run.current_round
    return () if current is None else tuple(name for name in _owing(run) if name not in current.dropped)


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

    Args:
        run: A run; returned unchanged if it is not running or its round waits for no client.
        absent: The absent clients that an overdue phase need not wait for, with reasons; see presence/deadlines.py.
        slow: Clients that a phase beyond its hard deadline need not wait for, with reasons. Unlike absent ones they are
            expected as long as the others cannot make the quorum.
        moving: Clients that made progress lately.
        unknown: Clients whose state is not known yet. A run that waits for them continues to wait.
        quorum: The quorum of the phase.
        fails: Whether the run fails without a quorum; else it waits.
        now: Time in seconds since the epoch.
    """
    current = run.current_round
    if run.status is not RunStatus.RUNNING or current is None or current.phase not in _TAKING:
        return run
    owing = _owing(run)
    if waits_for_quorum(run) and any(name in unknown for name in owing):
        return run
    if slow and _can_do_without(run, {**slow, **absent}, quorum):
        absent = {**slow, **absent}
    current = _taking_back(current, {name for name in owing if name in moving and name not in absent})
    late = {name: absent[name] for name in owing if name in absent and name not in current.dropped}
    rest = set(owing) - set(current.dropped) - set(late)
    if current.phase is RoundPhase.INITIALISING:
        others = [name for name in eligible(run) if name not in current.cohort and name not in absent]
        if not rest and others:
            current = replace(_dropping(current, late), cohort=tuple(sorted((*current.cohort, others[0]))))
            return replace(
                run, reason=None, current_round=replace(current, phase_started_at={current.phase.value: now})
            )
        lack = None if rest else Lack(clients=TooFewClients(0, 1))
    else:
        lack = _lack(run, {*_done(current), *rest}, quorum)
    if lack is None:
        run = _with_round(run, _dropping(current, late))
        return _with_reason(run, _damage(run))
    # A client without an update need not report, but may; its report may be the only one that still comes.
    missing: dict[str, Dropped | None] = {
        name: why
        for name, why in current.dropped.items()
        if name not in {*run.quarantined, *_done(current)} and not _is_out(current, name)
    }
    missing |= {name: absent.get(name, current.dropped.get(name)) for name in owing if name not in rest}
    reason = NoQuorum(
        round_number=current.number,
        lack=lack,
        missing=dict(sorted(missing.items())[:NAMED_ABSENT]),
        num_missing=len(missing),
        quarantined=tuple(sorted(set(current.cohort) & set(run.quarantined))),
    )
    return _without_quorum(_with_round(run, current), reason, fails=fails)


def commit_round(run: Run, *, results_json: str, timings_json: str, now: float) -> Run:
    """Return the run with its evaluated round committed; the run takes over the round's results."""
    assert run.current_round is not None
    current = _advance(run.current_round, RoundEvent.EVALUATED, now)
    current = replace(current, results_json=results_json, timings_json=timings_json)
    return replace(
        run,
        current_round=current,
        model=current.model,
        prototypes=current.prototypes,
        start=current.start,
        server_state=current.server_state,
    )


_TAKING = (RoundPhase.INITIALISING, RoundPhase.COLLECTING, RoundPhase.EVALUATING)
"""Phases in which clients have a task."""


def _done(current: Round) -> Collection[str]:
    """Clients that have done their part of the current phase."""
    return current.evaluations.keys() if current.phase is RoundPhase.EVALUATING else current.updates.keys()


def _owing(run: Run) -> list[str]:
    """Clients whose part of the open phase is missing, sorted; a client without an update need not report."""
    current = run.current_round
    if current is None or current.phase not in _TAKING:
        return []
    asked = current.updates if current.phase is RoundPhase.EVALUATING else current.cohort
    missing = set(asked) - set(_done(current)) - set(run.quarantined)
    return sorted(name for name in missing if not _is_out(current, name))


def _waits(run: Run) -> bool:
    """Whether the open phase waits for a client; known by counting while many are missing."""
    current = run.current_round
    if current is not None and current.phase in _TAKING:
        asked = current.updates if current.phase is RoundPhase.EVALUATING else current.cohort
        if len(_done(current)) + len(current.dropped) + len(run.quarantined) < len(asked):
            return True
    return bool(waited_for(run))


def _can_do_without(run: Run, away: Collection[str], quorum: Quorum) -> bool:
    """Whether the open phase can go on without these clients."""
    current = run.current_round
    assert current is not None
    rest = [name for name in _owing(run) if name not in away]
    if current.phase is RoundPhase.INITIALISING:
        return any(name not in current.cohort and name not in away for name in eligible(run))
    return _lack(run, {*_done(current), *rest}, quorum) is None


def _lack(run: Run, here: Collection[str], quorum: Quorum) -> Lack | None:
    """Return the clients or domains that the open phase lacks for its quorum; a client without an update need not report."""
    current = run.current_round
    assert current is not None
    asked = current.updates if current.phase is RoundPhase.EVALUATING else current.cohort
    left = [name for name in asked if not _is_out(current, name)]
    if current.phase is RoundPhase.EVALUATING and len(left) < len(asked):
        # A report is no share of the model: where clients were retired, fewer reports do, or none.
        if not left:
            return None
        if quorum.min_clients is not None:
            quorum = replace(quorum, min_clients=min(quorum.min_clients, len(left)))
    return quorum.lack([name for name in left if name not in run.quarantined], here)


def _is_out(current: Round, client_id: str) -> bool:
    """Whether the round is without a client that was retired while it was open."""
    why = current.dropped.get(client_id)
    return why is not None and why.reason is DropReason.RETIRED


def _quarantined(run: Run, clients: Collection[str]) -> dict[str, Dropped]:
    """Return why a round goes on without those of the clients that are quarantined."""
    return {name: Dropped(DropReason.QUARANTINED, run.quarantined[name]) for name in clients if name in run.quarantined}


def _dropping(current: Round, clients: Mapping[str, Dropped]) -> Round:
    return replace(current, dropped=dict(sorted({**current.dropped, **clients}.items()))) if clients else current


def _without(current: Round, client_id: str) -> Round:
    """Return an open round without a client's update and report; if it waited for its aggregation, it collects again.

    A model that is aggregated already still holds the client's share.
    """
    if current.phase is RoundPhase.COMMITTED or client_id not in {**current.updates, **current.evaluations}:
        return current
    if current.phase is RoundPhase.AGGREGATING:
        began = min(current.phase_started_at.values())  # of the same phase: its deadline has not moved
        current = _advance(current, RoundEvent.REOPENED, began)
    return replace(
        current,
        updates={name: update for name, update in current.updates.items() if name != client_id},
        evaluations={name: report for name, report in current.evaluations.items() if name != client_id},
    )


def _taking_back(current: Round, clients: Collection[str]) -> Round:
    clients = {name for name in clients if name in current.dropped and not _is_out(current, name)}
    if not clients:
        return current
    return replace(current, dropped={name: why for name, why in current.dropped.items() if name not in clients})


def _without_quorum(run: Run, reason: Reason, *, fails: bool) -> Run:
    return move(run, RunEvent.FAIL, reason=reason) if fails else _with_reason(run, reason)


def _with_reason(run: Run, reason: Reason | None) -> Run:
    return run if run.reason == reason else replace(run, reason=reason)


def _with_round(run: Run, current: Round) -> Run:
    return run if run.current_round == current else replace(run, current_round=current)


def _advance(current: Round, event: RoundEvent, now: float) -> Round:
    phase = ROUND_TRANSITIONS.get((current.phase, event))
    if phase is None:
        raise InvalidTransition(f"a round that is {current.phase} does not take {event}", round=current.number)
    return replace(current, phase=phase, phase_started_at={**current.phase_started_at, phase.value: now})


def _round_in(run: Run, number: int, phases: tuple[RoundPhase, ...], client_id: str, what: str) -> Round:
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
    if client_id not in current.cohort:
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
