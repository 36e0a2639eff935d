"""What happens to a run by itself, one step at a time: pure, so that tests can walk through every state that it leads to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from aggregator.rounds import machine
from aggregator.rounds.machine import RunEvent
from aggregator.rounds.quorum import Quorum
from shared.types import Run, RunStatus


class RosterRule(Protocol):
    """What a run's configuration says of who takes part; see RunSection in shared/config/run.py."""

    @property
    def clients(self) -> tuple[str, ...] | None:
        """Its roster, if it names one."""

    @property
    def min_clients(self) -> int | None:
        """How many clients it waits for else; more may join later."""

    @property
    def cohort_size(self) -> int | None:
        """How many of them a round asks; all without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is outside a run and decides what happens to it next."""

    rule: RosterRule
    connected: Collection[str]
    """Clients that are there."""
    quorum: Callable[[Run], Quorum]
    """What the open round of the run needs."""
    fails: bool
    """Whether the run fails where there is no quorum; else it waits."""
    commit: Callable[[Run], Run]
    """Commits an evaluated round, with its line of metrics."""


def settled(run: Run, around: Surroundings, *, now: float) -> Run:
    """Return the run after the next thing that happens by itself, or the same run if nothing does."""
    rule = around.rule
    if run.status is RunStatus.PENDING:
        connected = sorted(name for name in around.connected if name not in run.quarantined)
        if rule.clients is not None and set(machine.eligible(run)) <= set(connected):
            return machine.move(run, RunEvent.ROSTER_MET)
        if rule.min_clients is not None and len(connected) >= rule.min_clients:
            return machine.move(machine.admit(run, connected), RunEvent.ROSTER_MET)
        return run
    if run.status not in (RunStatus.RUNNING, RunStatus.PAUSED):
        return run
    if machine.has_open_round(run):
        quorum = around.quorum(run)
        if machine.is_evaluated(run, quorum):
            return around.commit(run)
        return machine.close_updates(run, now=now, quorum=quorum)
    if rule.min_clients is not None and machine.may_open_another(run):
        admitted = machine.admit(run, around.connected)
        if admitted.roster != run.roster:
            return admitted
    return machine.next_step(run, cohort_size=rule.cohort_size, now=now, fails=around.fails)


def is_looked_at(run: Run, *, has_deadline: bool) -> bool:
    """Whether a tick has to look at who does the open phase's task, to drop clients or to say that a quorum is missing.

    Also where the reason for a look is gone, if the run still says that it waits.
    """
    return has_deadline or bool(run.quarantined) or machine.waits_for_quorum(run)
