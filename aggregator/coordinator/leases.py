"""Ends of leases, and of stopping runs, which wait for the clients that still work for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fedplcc.aggregator.coordinator.attendance import Attendance
from fedplcc.aggregator.ledger.changes import Changes
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.aggregator.rounds.machine import run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RunEvent
from fedplcc.shared.types import (
    Run,
    RunStatus,
)


class Leases:
    """Leases of clients, and the runs that stop once no lease of theirs is at work."""

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        attendance: Attendance,
        monotonic_clock: Callable[[], float],
        *,
        stop_s: float,
    ) -> None:
        self._ledger, self._sessions, self._attendance = ledger, sessions, attendance
        self._monotonic_clock, self._stop_s = monotonic_clock, stop_s
        self._stopping_since: dict[str, float] = {}
        """When each stopping run was first seen, by the monotonic clock: at its stop, or after a restart."""

    def end(self, client_id: str) -> None:
        """End a client's lease at once, as if it had run out: another trainer may act for it, this one must join again.

        Raises:
            StoreUnavailable: The lease goes on.
        """
        session = self._sessions.find(client_id)
        if session is not None:
            self._end_sessions(self._sessions.end([session]))

    def end_expired(self) -> None:
        """End the expired leases, all in one transaction; if the store is unavailable, the next tick repeats it."""
        self._end_sessions(self._sessions.end_expired())

    def _end_sessions(self, expired: Sequence[Session]) -> None:
        def change(changes: Changes) -> None:
            for session in expired:
                if self._sessions.find(session.client.client_id) is None:
                    self._attendance.lost(changes, session)

        if expired:
            try:
                self._ledger.together(change)
            except BaseException:
                self._sessions.restore(expired)
                raise

    def stopping_runs(self) -> Iterator[Run]:
        """Return the open runs that are stopping."""
        return (run for run in self._ledger.open_runs() if run.status is RunStatus.STOPPING)

    def end_stopping_runs(self) -> None:
        """End each stopping run once no connected trainer of its roster works for it, at the latest after `stop_s`."""
        if any(self.stopping_runs()):
            with self._ledger.lock:
                since, now = self._stopping_since, self._monotonic_clock()
                self._stopping_since = {run.run_id: since.get(run.run_id, now) for run in self.stopping_runs()}
                self._ledger.for_each(self._end_stopping_run)

    def _end_stopping_run(self, run: Run) -> None:
        if run.status is not RunStatus.STOPPING:
            return
        # What a heartbeat names is the client's word: no client outside the roster counts, and none for ever.
        sessions = map(self._sessions.find, run.roster)
        has_work = any(session is not None and session.works_for(run.run_id) for session in sessions)
        if not has_work or self._monotonic_clock() - self._stopping_since[run.run_id] > self._stop_s:
            self._ledger.step(run, run_moves.move(run, RunEvent.ALL_IDLE, reason=run.reason))
