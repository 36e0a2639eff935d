"""Which worker does which client's work. Pure.

Every client has a home, the worker that holds its data; homes are dealt out in turn. A worker does its own clients' work,
the longest first. One that has nothing left to do takes a waiting client over, for good, if it would be done sooner there,
reading its data included: so clients of very different sizes, or a cohort that happens to live together, end up spread out,
and clients that are alike stay where they are. What is expected is what was measured the last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

CAUTION = 2.0
"""How much larger a gain must look than what it costs: estimates err, and a client that moves to and fro gains nothing."""


@dataclass(frozen=True, slots=True)
class Busy:
    """What a worker is at, and since how many seconds."""

    client_id: str
    kind: str
    elapsed_s: float


@dataclass(slots=True)
class Placement:
    """Where the clients live, and how long what took.

    Attributes:
        homes: The worker of each client.
        reading_s: Seconds that reading a client's data took.
        seconds: Seconds that a client's last task of a kind took.
    """

    homes: dict[str, int]
    reading_s: dict[str, float] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def in_turn(cls, clients: Iterable[str], num_workers: int) -> Placement:
        """Deal clients out to workers."""
        return cls({client_id: number % num_workers for number, client_id in enumerate(clients)})

    def expected_s(self, client_id: str, kind: str) -> float:
        """Seconds that a task will take; 0 where nobody knows."""
        return self.seconds.get((client_id, kind), 0.0)

    def choose(self, worker: int, waiting: Mapping[str, str], busy: Mapping[int, Busy]) -> str | None:
        """The client whose work a worker should do now, or None.

        Args:
            worker: Who asks; it is idle.
            waiting: What kind of work each waiting client has.
            busy: What the other workers are at.
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
        """The waiting clients that live with a worker, in the order in which it will do their work."""
        mine = sorted(client_id for client_id in waiting if self.homes[client_id] == worker)
        return sorted(mine, key=lambda client_id: -self.expected_s(client_id, waiting[client_id]))

    def _backlog_s(self, owner: int, before: Sequence[str], waiting: Mapping[str, str], busy: Busy) -> float:
        """Seconds until a worker comes to the last of its waiting clients."""
        rest_s = max(0.0, self.expected_s(busy.client_id, busy.kind) - busy.elapsed_s)
        return rest_s + sum(self.expected_s(client_id, waiting[client_id]) for client_id in before)

    def _cost_s(self, client_id: str) -> float:
        return self.reading_s.get(client_id, float("inf"))
