"""Choice of the worker for each client's work. Pure.

Every client has a home: the worker that holds its data. Homes are assigned in turn. A worker does the work of its own
clients, the longest first. An idle worker takes over a waiting client, for good, if the work would be done sooner there, the
time to read its data included. So clients of very different sizes, or a cohort whose clients share a home, end up spread
out, and clients of equal size stay. Expected durations are those that were measured last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CAUTION = 2.0
"""Least ratio of expected gain to cost: estimates err, and a client that moves back and forth gains nothing."""
READING = "reading"
"""Kind of the work of reading a client's data; the other kinds are those of tasks."""


@dataclass(frozen=True, slots=True)
class Busy:
    """A worker's present work, and for how many seconds it has been at it."""

    client_id: str
    kind: str
    elapsed_s: float


@dataclass(slots=True)
class Placement:
    """The home of each client, and how long its work took.

    Attributes:
        reading_s: Seconds that reading a client's data took.
        seconds: Seconds that a client's last task of a kind took.
    """

    homes: dict[str, int]
    reading_s: dict[str, float] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def in_turn(cls, clients: Iterable[str], num_workers: int) -> Placement:
        """Assign clients to workers in turn."""
        return cls({client_id: number % num_workers for number, client_id in enumerate(clients)})

    def expected_s(self, client_id: str, kind: str) -> float:
        """Return the expected seconds of a task; 0 if it was never measured."""
        return self.seconds.get((client_id, kind), 0.0)

    def note(self, client_id: str, kind: str, seconds: float) -> None:
        """Note how long a client's work took."""
        if kind == READING:
            self.reading_s[client_id] = seconds
        else:
            self.seconds[client_id, kind] = seconds

    def choose(self, worker: int, waiting: Mapping[str, str], busy: Mapping[int, Busy]) -> str | None:
        """Return the client whose work a worker should do now, or None.

        Args:
            waiting: Kind of work by waiting client.
            busy: The present work of the other workers.
        """
        at_home = self._at_home(worker, waiting)
        if at_home:
            return at_home[0]
        candidates = {}
        for owner in busy.keys() - {worker}:
            theirs = self._at_home(owner, waiting)
            if theirs:
                candidates[theirs[-1]] = self._backlog_s(owner, theirs[:-1], waiting, busy[owner])
        worthwhile = {
            client_id: backlog_s - self._cost_s(client_id)
            for client_id, backlog_s in candidates.items()
            if backlog_s > CAUTION * self._cost_s(client_id)
        }
        return max(sorted(worthwhile), key=worthwhile.__getitem__, default=None)

    def _at_home(self, worker: int, waiting: Mapping[str, str]) -> Sequence[str]:
        """Return the waiting clients at home with a worker, in the order of their work."""
        mine = sorted(client_id for client_id in waiting if self.homes[client_id] == worker)
        return sorted(mine, key=lambda client_id: -self.expected_s(client_id, waiting[client_id]))

    def _backlog_s(self, owner: int, before: Sequence[str], waiting: Mapping[str, str], busy: Busy) -> float:
        """Return the seconds until a worker begins with the last of its waiting clients."""
        rest_s = max(0.0, self.expected_s(busy.client_id, busy.kind) - busy.elapsed_s)
        return rest_s + sum(self.expected_s(client_id, waiting[client_id]) for client_id in before)

    def _cost_s(self, client_id: str) -> float:
        return self.reading_s.get(client_id, float("inf"))
