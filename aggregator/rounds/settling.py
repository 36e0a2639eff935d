"""Steps that a run takes by itself, one at a time. Pure, so that tests can reach every state."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from fedplcc.aggregator.rounds.machine import members, opening, round_parts, round_waits, run_facts, run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.aggregator.rounds.quorum import Quorum
from fedplcc.shared.config.tables.membership import NO_PLAN, MembershipSection
from fedplcc.shared.config.tables.stream import NO_STREAM, StreamSection
from fedplcc.shared.reasons import StoppedEarly
from fedplcc.shared.types import RoundPhase, Run, RunStatus


class RosterRule(Protocol):
    """The clients that take part in a run; see RunSection in shared/config/tables/run_tables.py."""

    @property
    def clients(self) -> tuple[str, ...] | None:
        """Its roster, if it names one."""

    @property
    def min_clients(self) -> int | None:
        """Number of clients that a run without a roster waits for; more may join later."""

    @property
    def cohort_size(self) -> int | None:
        """Clients in the cohort of a round; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Facts outside a run that decide its next step."""

    rule: RosterRule
    connected: Collection[str]
    """Connected clients."""
    evaluating: Collection[str] = ()
    """Those of them that have no image to train on."""
    quorum: Callable[[Run], Quorum]
    """Returns the quorum of a run's open round."""
    fails: bool
    """Whether the run fails where there is no quorum; else it waits."""
    evaluates: bool
    """Whether clients evaluate the latest round; else it commits without reports."""
    commit: Callable[[Run], Run]
    """Commits an evaluated round with its results."""
    stream: StreamSection = NO_STREAM
    """The run's stages."""
    plan: MembershipSection = NO_PLAN
    """Rounds in which clients take part."""
    stops_early: Callable[[Run], StoppedEarly | None] = lambda run: None
    """Returns why a run ends after its committed round; None if it goes on."""


def concerns(run: Run, client_id: str) -> bool:
    """Whether a client that joins may let a run take a step by itself: its roster is complete, or takes the client in."""
    if run.status is RunStatus.PENDING:
        return not run.roster or client_id in run.roster
    return run_facts.may_open_another(run)


def may_settle(run: Run, is_connected: Callable[[str], bool]) -> bool:
    """Whether a run may have a next step by itself; for most runs that wait, this is known without their configuration."""
    if run.status is RunStatus.PENDING:
        return not run.roster or all(map(is_connected, run_facts.eligible(run)))
    return run.status in (RunStatus.RUNNING, RunStatus.PAUSED) and not run_facts.is_parked(run)


def settled(run: Run, around: Surroundings, *, now: float) -> Run:
    """Return the run after the next step that it takes by itself, or the same run if there is none."""
    rule = around.rule
    if run.status is RunStatus.PENDING:
        connected = sorted(name for name in _planned(around, 1) if name not in run.quarantined)
        if rule.clients is not None and set(run_facts.eligible(run)) <= set(connected):
            return run_moves.move(run, RunEvent.ROSTER_MET)
        if rule.min_clients is not None and len(set(connected) - set(around.evaluating)) >= rule.min_clients:
            return run_moves.move(members.admit(run, connected), RunEvent.ROSTER_MET)
        return run
    if run.status not in (RunStatus.RUNNING, RunStatus.PAUSED) or run_facts.is_parked(run):
        return run
    if run_facts.has_open_round(run):
        quorum = around.quorum(run)
        if round_waits.is_evaluated(run, quorum, is_asked=around.evaluates):
            return around.commit(run)
        asking = opening.asking_others(run, quorum=quorum, stream=around.stream)
        return asking if asking is not run else round_parts.close_updates(run, now=now, quorum=quorum)
    if run_facts.may_open_another(run):
        planned = members.follow_plan(run, around.plan, has_roster=rule.clients is not None)
        if planned is not run:
            return planned
    if rule.min_clients is not None and run_facts.may_open_another(run):
        admitted = members.admit(run, _planned(around, run.round_number + 1))
        if admitted.roster != run.roster:
            return admitted
    return opening.next_step(
        run,
        cohort_size=rule.cohort_size,
        now=now,
        stream=around.stream,
        fails=around.fails,
        stops_early=around.stops_early(run),
    )


def _planned(around: Surroundings, number: int) -> list[str]:
    """Return the connected clients that take part in a round by plan."""
    return [name for name in around.connected if around.plan.takes_part(name, number)]


def is_looked_at(run: Run, *, has_deadline: bool) -> bool:
    """Whether a tick has to check the open phase for clients to drop or a missing quorum.

    Also true for a run that waits for a quorum, since clients may return, and for one without a first model.
    """
    current = run.current_round
    has_no_model = current is not None and current.phase is RoundPhase.INITIALISING
    return has_deadline or has_no_model or bool(run.quarantined) or bool(run.retired) or run_facts.waits_for_quorum(run)
