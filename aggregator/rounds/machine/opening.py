"""The step after a committed round: the next round and its cohort, the next stage, or the end."""

from __future__ import annotations

from dataclasses import replace

from fedplcc.aggregator.rounds.machine.absences import without_quorum
from fedplcc.aggregator.rounds.machine.members import require_open
from fedplcc.aggregator.rounds.machine.round_parts import close_updates, round_in
from fedplcc.aggregator.rounds.machine.run_facts import has_open_round, is_out, trainers, waits_for_quorum
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent, move
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.tables.stream import NO_STREAM, StreamSection
from fedplcc.shared.errors import (
    InvalidTransition,
    UpdateConflict,
)
from fedplcc.shared.reasons import (
    NobodyLeft,
    Stated,
    StoppedEarly,
)
from fedplcc.shared.types import (
    Round,
    RoundPhase,
    Run,
    RunStatus,
)


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

    A run that is not running, or whose round is open, is returned unchanged. A run without any client that trains waits for
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
    if not trainers(run):
        return without_quorum(run, NobodyLeft(), fails=fails)
    return open_round(run, run.round_number + 1, cohort_size=cohort_size, now=now, stream=stream)


def open_round(run: Run, number: int, *, cohort_size: int | None, now: float, stream: StreamSection = NO_STREAM) -> Run:
    """Return the run with a new round. Round 0 asks the lowest client id of the roster for the first model.

    A run in whose next stage no client has an image fails.
    """
    phase = RoundPhase.COLLECTING if number else RoundPhase.INITIALISING
    cohort = cohort_of(run, number, cohort_size=cohort_size, stream=stream) if number else trainers(run)[:1]
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
    clients = trainers(run)
    if place is None:
        return select_cohort(clients, seed=run.seed, round_number=number, cohort_size=cohort_size)
    having = [name for name in clients if place.stage not in run.without_data.get(name, ())]
    if stream.cohort == "round":
        return select_cohort(having, seed=run.seed, round_number=number, cohort_size=cohort_size)
    of_pass = select_cohort(clients, seed=run.seed, round_number=stream.first_of_pass(place), cohort_size=cohort_size)
    return tuple(name for name in of_pass if name in having)


def asking_others(run: Run, *, quorum: Quorum, stream: StreamSection) -> Run:
    """Return the run whose round asks others too, as many as what is left of its cohort is too few for the quorum.

    They came, were released or came back since it opened, or were not drawn. Without them nothing that anybody does would
    end the wait. A quarantined client of the cohort is left: its release ends it.
    """
    current = run.current_round
    if current is None or not (current.dropped or waits_for_quorum(run)):
        return run
    needed = {RoundPhase.INITIALISING: 1, RoundPhase.COLLECTING: quorum.min_clients or 1}.get(current.phase, 0)
    left = {name for name in current.cohort if not is_out(current, name)} | current.updates.keys()
    may = cohort_of(run, current.number, cohort_size=None, stream=stream) if current.number else trainers(run)
    asked = [name for name in may if name not in left][: max(0, needed - len(left))]
    if not asked:
        return run
    dropped = {name: why for name, why in current.dropped.items() if name not in asked}
    cohort = tuple(sorted({*current.cohort, *asked}))
    return replace(run, current_round=replace(current, cohort=cohort, dropped=dropped))


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
    current = round_in(run, number, (RoundPhase.COLLECTING,), client_id, "updates")
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
    require_open(run)
    first = max(run.round_number, 0) + 1
    if first in run.stage_began:
        return run
    if len(run.stage_began) + 1 >= stream.stages:
        raise InvalidTransition(f"run {run.run_id} is in its last stage, {stream.stages}", run_id=run.run_id)
    return replace(run, stage_began=(*run.stage_began, first))
