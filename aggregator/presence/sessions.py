"""Who is connected: instance tokens, leases and what each trainer says it does. Kept in memory only.

After the aggregator restarts nobody is connected; trainers join again by themselves. Times are of a monotonic clock, so that
a change of the wall clock ends no lease.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from aggregator.presence.progress import Progress
from shared.errors import ClientIdTaken, NotAMember, Unauthenticated
from shared.types import Client, ClientActivity, ClientProblem, Heartbeat, Task


@dataclass(slots=True)
class Session:
    """One trainer's presence."""

    client: Client
    token: str
    last_seen: float
    heartbeat: Heartbeat
    """What it last said of itself."""
    task: Task | None = None
    """What it was last given."""
    problem: ClientProblem | None = None
    """What its operator should know; a fatal one until it has done a task again."""
    num_announced: int = 0
    """Joins of this instance that were written down: the first, and those that changed something."""
    num_problems: int = 0
    """Problems that it has reported since it last did a task."""
    reported_at: float = -math.inf
    """When it reported the last of all."""
    told_left_out: set[str] = field(default_factory=set)
    """Readings that it sent and that cannot be, as far as the log has told of them."""

    def has_worked(self) -> None:
        """Note that a task was done: what kept the client from its work is over."""
        self.num_problems = 0
        if self.problem is not None and self.problem.is_fatal:
            self.problem = None

    @property
    def cannot_work(self) -> bool:
        """Whether it was given work of a run and has said that it cannot do it."""
        was_given = self.task is not None and self.task.run is not None
        return was_given and self.problem is not None and self.problem.is_fatal

    def works_for(self, run_id: str) -> bool:
        """Whether it computes for a run, or was given work of it and has not said that it is idle since."""
        was_given = self.task is not None and self.task.run is not None and self.task.run.run_id == run_id
        computes = self.heartbeat.activity is not ClientActivity.IDLE and self.heartbeat.run_id == run_id
        return was_given or computes


class Sessions:
    """Sessions by client id."""

    def __init__(self, lease_s: float, clock: Callable[[], float]) -> None:
        self.lease_s, self._clock = lease_s, clock
        self._sessions: dict[str, Session] = {}
        self._progress: dict[str, Progress] = {}

    def join(self, client: Client, token: str) -> Session:
        """Open or take over a client's session; that of the same token goes on.

        Raises:
            ClientIdTaken: Another token holds it and its lease lives.
        """
        known = self._sessions.get(client.client_id)
        if known is not None and known.token != token and self._lives(known):
            wait = max(1.0, self.lease_s - self.silent_s(known))
            raise ClientIdTaken(
                f"another trainer acts for client {client.client_id}; end it, or wait {wait:.0f} s for its lease to run out",
                client_id=client.client_id,
            )
        session = Session(
            client=client, token=token, last_seen=self._clock(), heartbeat=Heartbeat(client_id=client.client_id)
        )
        if known is not None and known.token == token:
            session.task, session.heartbeat, session.problem = known.task, known.heartbeat, known.problem
            session.num_announced, session.num_problems = known.num_announced, known.num_problems
            session.reported_at, session.told_left_out = known.reported_at, known.told_left_out
        self._sessions[client.client_id] = session
        self._progress.setdefault(client.client_id, Progress())
        return session

    def check(self, client_id: str, token: str) -> Session:
        """The session of a caller; a call is a sign of life.

        Raises:
            Unauthenticated: No client id or token.
            NotAMember: It has not joined, or not since the aggregator started.
            ClientIdTaken: Another trainer has taken the client id.
        """
        if not client_id or not token:
            raise Unauthenticated("a client id and an instance token are needed")
        session = self._sessions.get(client_id)
        if session is None:
            raise NotAMember(f"client {client_id} has not joined", client_id=client_id)
        if session.token != token:
            raise ClientIdTaken(f"another trainer acts for client {client_id}", client_id=client_id)
        session.last_seen = self._clock()
        return session

    def find(self, client_id: str) -> Session | None:
        """A client's session, whatever its token."""
        return self._sessions.get(client_id)

    # What a client gets on with outlives its session: a trainer that crashes and joins again has come no further.

    def given(self, session: Session, task: Task) -> None:
        """Note the task that a client was given."""
        session.task = task
        if task.run is not None:
            self._progress[session.client.client_id].given(task.key, self._clock())

    def heard(self, session: Session, heartbeat: Heartbeat) -> None:
        """Note what a client says of itself."""
        session.heartbeat = heartbeat
        self._progress[session.client.client_id].said(heartbeat.activity, heartbeat.progress, self._clock())

    def reported(self, session: Session, problem: ClientProblem) -> None:
        """Note what the operator of a client should know."""
        session.problem, session.reported_at = problem, self._clock()
        session.num_problems += 1

    def received_bytes(self, client_id: str, token: str) -> None:
        """Note that bytes of a blob were sent to a client: also a sign of life, for heartbeats wait behind them."""
        session = self._sessions.get(client_id)
        if session is not None and session.token == token:
            session.last_seen = self._clock()
            self._progress[client_id].received(self._clock())

    def sent_bytes(self, client_id: str) -> None:
        """Note that a client sent new bytes of a blob."""
        if client_id in self._sessions:
            self._progress[client_id].sent(self._clock())

    def progress(self, client_id: str) -> Progress | None:
        """How far a client has come; None if it has not joined since the aggregator started."""
        return self._progress.get(client_id)

    def forget_progress(self, *, but_of: Collection[str]) -> None:
        """Forget how far clients have come that are neither connected nor named."""
        self._progress = {
            name: progress for name, progress in self._progress.items() if name in self._sessions or name in but_of
        }

    def is_connected(self, client_id: str) -> bool:
        """Whether a client's lease lives."""
        session = self._sessions.get(client_id)
        return session is not None and self._lives(session)

    def connected(self) -> list[str]:
        """Clients whose lease lives, sorted."""
        return sorted(client_id for client_id, session in self._sessions.items() if self._lives(session))

    def expired(self) -> list[Session]:
        """Sessions whose lease has run out."""
        return [session for session in self._sessions.values() if not self._lives(session)]

    def remove(self, session: Session) -> None:
        """Forget a session."""
        del self._sessions[session.client.client_id]

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def silent_s(self, session: Session) -> float:
        """Seconds since a trainer was last heard of."""
        return self._clock() - session.last_seen

    def _lives(self, session: Session) -> bool:
        return self.silent_s(session) <= self.lease_s
