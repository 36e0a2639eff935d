"""Deadlines of phases: the clients that an overdue phase no longer waits for.

A phase is overdue `deadline_s` after it began. From then on a client is absent if its lease has run out, if it has reported
that it cannot do its task, or if it has made no progress for `silence_s` (see progress.py). A silent client therefore delays
a phase at most until

    max(begin of the phase + deadline_s, its last progress + silence_s) + one tick

and a client that makes progress, however slowly, is waited for: until `hard_deadline_s`, if the run has one. From then on
the phase waits for nobody if those that are done form the quorum.

Round 0 needs one model, the same from any client. A client that says that it cannot make it, or whose model is refused, is
passed over at once, with or without deadlines.

A client whose owner has not approved the run yet is not there yet: no phase waits for it where the others make the quorum,
with or without deadlines.

Times are of a monotonic clock, so that a change of the wall clock drops no client. Only after a restart the wall clock is
read: a phase has lasted since it began, but progress counts from the restart, since clients could make none while the
aggregator was away, and so does the hard deadline, since a wall clock that jumped must drop no client that works. A resumed
run starts its phase again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds.machine import round_waits, run_facts
from fedplcc.shared.reasons import Dropped, DropReason, OwnersWord
from fedplcc.shared.types import RoundPhase, Run, RunStatus


@dataclass(frozen=True, slots=True)
class Presence:
    """State of a run's clients in its open phase."""

    absent: Mapping[str, Dropped]
    """Clients that an overdue phase does not wait for, and those whose owners have not approved the run."""
    moving: Collection[str]
    """Clients with progress within `silence_s`."""
    unknown: Collection[str] = ()
    """Clients that are neither connected nor absent: after a restart they may still join again."""
    slow: Mapping[str, Dropped] = field(default_factory=dict)
    """Clients that are not absent, and for which the phase need not wait beyond its hard deadline."""


@dataclass(slots=True)
class _Watch:
    """Open phase of a run, since it was first seen."""

    phase: tuple[int, RoundPhase, float]
    began: float
    seen: float
    dropped: dict[str, tuple[tuple[DropReason, float], Dropped]] = field(default_factory=dict)


class Deadlines:
    """Watches the open phases of all runs."""

    def __init__(
        self, sessions: Sessions, *, wall_clock: Callable[[], float], monotonic_clock: Callable[[], float]
    ) -> None:
        self._sessions, self._wall, self._clock = sessions, wall_clock, monotonic_clock
        self._started = monotonic_clock()
        self._observed_at = -math.inf
        self._watches: dict[str, _Watch] = {}

    def observe(self, runs: Iterable[Run]) -> None:
        """Record the phases of the open runs; call it at every tick, before `presence`."""
        now = self._clock()
        watched = {}
        for run in runs:
            current = run.current_round
            if run.status is not RunStatus.RUNNING or current is None:
                continue
            since = current.phase_started_at.get(current.phase.value, self._wall())
            phase = (current.number, current.phase, since)
            known = self._watches.get(run.run_id)
            if known is None or known.phase != phase:
                # The phase began after the last call, unless a former process saw it begin.
                age = min(max(0.0, self._wall() - since), now - self._observed_at)
                known = _Watch(phase, now - age, max(now - age, self._started))
            watched[run.run_id] = known
        self._watches, self._observed_at = watched, now

    def stalled_s(self, run: Run) -> float | None:
        """Return the seconds since the last progress of a client that the open phase waits for, or since the phase began.

        None if no round is open. A restart counts as the begin of the phase, as does the end of a pause.
        """
        watch = self._watches.get(run.run_id)
        if watch is None or not run_facts.has_open_round(run):
            return None
        known = [self._sessions.progress(client_id) for client_id in round_waits.waited_for(run)]
        return self._clock() - max((watch.seen, *(progress.at for progress in known if progress is not None)))

    def presence(
        self, run: Run, *, deadline_s: float | None, silence_s: float, hard_deadline_s: float | None = None
    ) -> Presence:
        """Return the state of a run's clients in its open phase; without a deadline those alone are absent that wait for
        their owners' approval.
        """
        watch, now = self._watches.get(run.run_id), self._clock()
        if watch is None or run.current_round is None:
            return Presence({}, ())
        # Any client of the roster may be asked next for the first model; it can make no progress before that.
        asked = round_waits.asked_of(run)
        clients = run.roster if run.current_round.phase is RoundPhase.INITIALISING else asked
        # In a simulation leases never end: clients do their tasks in turn, and none is away.
        may_be_away = deadline_s is not None and math.isfinite(self._sessions.lease_s)
        is_overdue = may_be_away and now - watch.began >= (deadline_s or 0.0)
        absent = {
            name: self._why_absent(name, run.run_id, watch, silence_s, is_asked=name in asked)
            if is_overdue
            else self._pending(name, run.run_id)
            for name in clients
        }
        moving = [name for name in clients if self._moves(name, run.run_id, watch, silence_s)]
        unknown = [name for name in clients if absent[name] is None and not self._sessions.is_connected(name)]
        slow = {}
        if may_be_away and hard_deadline_s is not None and now - watch.seen >= hard_deadline_s:
            why_slow = Dropped(DropReason.SLOW, f"not done after {hard_deadline_s:g} s, the hard deadline")
            slow = {name: why_slow for name in asked if absent[name] is None}
        if run.current_round.phase is RoundPhase.INITIALISING:
            slow |= {name: why for name in asked if (why := self._why_unfit(run, name)) is not None}
        return Presence({name: why for name, why in absent.items() if why is not None}, moving, unknown, slow)

    def _why_absent(
        self, client_id: str, run_id: str, watch: _Watch, silence_s: float, *, is_asked: bool
    ) -> Dropped | None:
        now, progress = self._clock(), self._sessions.progress(client_id)
        last = max(watch.seen, -math.inf if progress is None else progress.at)
        if not self._sessions.is_connected(client_id):
            # A client that has not joined since the aggregator started may still join.
            if is_asked and progress is None and now - watch.seen < silence_s:
                return None
            sentence = "not connected" + ("" if progress is None else ", last progress at {}")
            return self._dropped(client_id, watch, DropReason.LOST, last, sentence)
        problem = self._problem_of(client_id, run_id)
        if problem is not None:
            return problem
        if is_asked and now - last >= silence_s:
            sentence = "connected, but no progress since {}"
            return self._dropped(client_id, watch, DropReason.SILENT, last, sentence)
        return None

    def waits_for_approval(self, run: Run) -> bool:
        """Whether a client that the open phase waits for has no approval of its owner."""
        return any(self._pending(name, run.run_id) for name in round_waits.waited_for(run))

    def _pending(self, client_id: str, run_id: str) -> Dropped | None:
        """The record of a client that is here and whose owner has not approved the run; None for any other."""
        problem = self._problem_of(client_id, run_id)
        is_pending = problem is not None and problem.reason is DropReason.APPROVAL
        return problem if is_pending and self._sessions.is_connected(client_id) else None

    def _problem_of(self, client_id: str, run_id: str) -> Dropped | None:
        """The problem because of which a client cannot do a run's tasks; None without one."""
        session = self._sessions.find(client_id)
        problem = None if session is None else session.problem_in(run_id)
        if problem is None:
            return None
        if problem.reason == OwnersWord.AWAITED:
            return Dropped(DropReason.APPROVAL, f"waits for {client_id}'s approval")
        return Dropped(DropReason.PROBLEM, f"{problem.reason}: {problem.detail}")

    def _why_unfit(self, run: Run, client_id: str) -> Dropped | None:
        """Why another client should make the first model, which is the same whoever makes it; None if this one may do so."""
        refused = run.rejections.get(client_id)
        if refused is not None and refused.round == 0:
            return Dropped(DropReason.PROBLEM, f"its first model was refused: {refused.detail}")
        return self._problem_of(client_id, run.run_id)

    def _moves(self, client_id: str, run_id: str, watch: _Watch, silence_s: float) -> bool:
        session, progress = self._sessions.find(client_id), self._sessions.progress(client_id)
        if session is None or progress is None or not self._sessions.is_connected(client_id):
            return False
        return (
            session.problem_in(run_id) is None and progress.at >= watch.seen and self._clock() - progress.at < silence_s
        )

    def _dropped(self, client_id: str, watch: _Watch, reason: DropReason, since: float, sentence: str) -> Dropped:
        """Return the record, cached: a time computed from two clocks would differ in its last digits at every call."""
        known = watch.dropped.get(client_id)
        if known is None or known[0] != (reason, since):
            wall = time.gmtime(self._wall() - (self._clock() - since))
            detail = sentence.format(time.strftime("%Y-%m-%d %H:%M:%S UTC", wall))
            known = watch.dropped[client_id] = ((reason, since), Dropped(reason, detail))
        return known[1]
