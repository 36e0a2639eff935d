"""Sessions of trainers: instance tokens, leases and latest heartbeats. Kept in memory only.

After a restart of the aggregator no trainer is connected; trainers join again by themselves. Times are of a monotonic clock,
so that a change of the wall clock ends no lease.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from fedplcc.aggregator.presence.progress import Progress
from fedplcc.aggregator.presence.site_logs import SiteLogs
from fedplcc.aggregator.presence.turns import MAX_KEPT, Turns
from fedplcc.shared.errors import ClientIdTaken, NotAMember, Unauthenticated
from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.types import BlobRef, Client, ClientActivity, ClientProblem, Heartbeat, Task

APPROVED_WORK = frozenset(ClientActivity) - {
    ClientActivity.IDLE,
    ClientActivity.DOWNLOADING,
    ClientActivity.INITIALISING,
}
"""Activities of a client whose owner has approved the run; the others come before its trainer asks."""
HINDERED_S = 30.0
"""Time for which the task of another run comes before one that the client could not do, as long as a trainer waits before it
tries again."""


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a client could not do a run's task, and when it said so."""

    problem: ClientProblem
    at: float


@dataclass(slots=True)
class Session:
    """Session of one trainer."""

    client: Client
    token: str
    last_seen: float
    progress: Progress
    """Progress of the client; it outlives the session, since a trainer that crashes and joins again has made none."""
    heartbeat: Heartbeat
    """Latest heartbeat."""
    task: Task | None = None
    """Latest task handed out."""
    problem: ClientProblem | None = None
    """Latest reported problem; a fatal one until the client finishes a task."""
    num_announced: int = 0
    """Joins of this instance that were recorded as events: the first, and those that changed something."""
    num_problems: int = 0
    """Problems reported since the last finished task."""
    reported_at: float = -math.inf
    """Time of the last reported problem."""
    logged_left_out: set[str] = field(default_factory=set)
    """Names of impossible readings that the log has already mentioned."""
    turns: Turns = field(default_factory=Turns)
    """Whose runs the client worked for, and when."""
    hindrances: dict[str, Hindrance] = field(default_factory=dict)
    """Runs whose tasks the client cannot do, until it does one."""

    def problem_in(self, run_id: str) -> ClientProblem | None:
        """Return the problem because of which the client cannot do a run's tasks; None without one."""
        found = self.hindrances.get(run_id)
        if found is not None:
            return found.problem
        # One that was told of no run concerns all.
        is_of_all = self.problem is not None and self.problem.is_fatal and not self.hindrances
        return self.problem if is_of_all else None

    def has_worked(self, run_id: str) -> None:
        """Record a finished task, which ends a fatal problem; the client is idle until it says otherwise."""
        self.num_problems = 0
        if self.heartbeat.run_id == run_id:
            self.heartbeat = replace(self.heartbeat, activity=ClientActivity.IDLE, run_id="", round=0, progress=0.0)
        self.hindrances.pop(run_id, None)
        if self.problem is not None and self.problem.is_fatal:
            self.problem = None

    def is_approved(self, run_id: str) -> None:
        """Record that the owner of the client's site has approved a run, which ends the wait for that."""
        found = self.problem_in(run_id)
        if found is not None and found.reason == OwnersWord.AWAITED:
            self.has_ended([run_id])
            if self.problem == found:
                self.problem = None

    def has_ended(self, run_ids: Collection[str]) -> None:
        """Forget that the client could not do the tasks of runs that have ended."""
        ended = [self.hindrances.pop(run_id).problem for run_id in run_ids if run_id in self.hindrances]
        if self.problem in ended:
            others = [each.problem for each in self.hindrances.values()]
            self.problem = others[-1] if others else None

    @property
    def cannot_work(self) -> bool:
        """Whether the client has a run's task and has reported that it cannot do it."""
        run = None if self.task is None else self.task.run
        return run is not None and self.problem_in(run.run_id) is not None

    def works_for(self, run_id: str) -> bool:
        """Whether the client's latest task or latest heartbeat belongs to the run; idle heartbeats do not count."""
        was_given = self.task is not None and self.task.run is not None and self.task.run.run_id == run_id
        computes = self.heartbeat.activity is not ClientActivity.IDLE and self.heartbeat.run_id == run_id
        return was_given or computes


class Sessions:
    """Sessions by client id. Any thread may call a method; none of them waits.

    Attributes:
        logs: Log lines that sites let out; they outlive the session that told them.
    """

    def __init__(self, lease_s: float, clock: Callable[[], float]) -> None:
        self.lease_s, self._clock, self.logs = lease_s, clock, SiteLogs(clock)
        self._lock = threading.Lock()  # held while a session begins or ends; what is only read needs none
        self._sessions: dict[str, Session] = {}
        self._progress: dict[str, Progress] = {}

    def join(self, client: Client, token: str) -> Session:
        """Open a client's session, or take it over; a session of the same token continues.

        Raises:
            ClientIdTaken: Another token holds the session, and its lease has not run out.
        """
        with self._lock:
            return self._join(client, token)

    def _join(self, client: Client, token: str) -> Session:
        known = self._sessions.get(client.client_id)
        if known is not None and known.token != token and self._lives(known):
            wait = max(1.0, self.lease_s - self.silent_s(known))
            raise ClientIdTaken(
                f"another trainer acts for client {client.client_id}; end it, or wait {wait:.0f} s for its lease to run out",
                client_id=client.client_id,
            )
        if known is not None and known.token == token:
            # The same object: who reports a problem or finishes a task beside the join has it in hand already.
            known.client, known.last_seen = client, self._clock()
            known.heartbeat = replace(known.heartbeat, is_leaving=False)
            return known
        session = Session(
            client=client,
            token=token,
            last_seen=self._clock(),
            progress=self._progress.setdefault(client.client_id, Progress()),
            heartbeat=Heartbeat(client_id=client.client_id),
        )
        self._sessions[client.client_id] = session
        return session

    def check(self, client_id: str, token: str) -> Session:
        """Return the session of a caller, and renew its lease.

        Raises:
            Unauthenticated: The client id or the token is missing.
            NotAMember: The client has not joined since the aggregator started.
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
        """Return a client's session, whatever its token."""
        return self._sessions.get(client_id)

    def record_task(self, session: Session, task: Task) -> None:
        """Record the task handed out to a client."""
        session.task = task
        if task.run is not None:
            session.progress.record_task(task.key, self._clock())

    def record_heartbeat(self, session: Session, heartbeat: Heartbeat) -> None:
        """Record a client's heartbeat."""
        session.heartbeat = heartbeat
        self.logs.heard(heartbeat)
        if heartbeat.problem is None and heartbeat.activity in APPROVED_WORK:
            session.is_approved(heartbeat.run_id)
        session.progress.record_report(heartbeat.activity, heartbeat.progress, self._clock())

    def record_problem(self, session: Session, problem: ClientProblem) -> None:
        """Record a problem that a client reported."""
        session.problem, session.reported_at = problem, self._clock()
        session.num_problems += 1

    def record_hindrance(self, session: Session, run_id: str, problem: ClientProblem) -> None:
        """Record that a client cannot do the task of a run that waits for it."""
        session.problem = problem
        session.hindrances.pop(run_id, None)
        session.hindrances[run_id] = Hindrance(problem, self._clock())
        if len(session.hindrances) > MAX_KEPT:
            del session.hindrances[next(iter(session.hindrances))]

    def forget_hindrances(self, *, but_of: Collection[str]) -> None:
        """Forget what hindered clients in other runs than these, the open ones."""
        for session in self:
            session.has_ended([run_id for run_id in list(session.hindrances) if run_id not in but_of])

    def is_hindered(self, session: Session, run_id: str) -> bool:
        """Whether a client said a moment ago that it cannot do the task of a run."""
        found = session.hindrances.get(run_id)
        return found is not None and self._clock() - found.at < HINDERED_S

    def record_download(self, client_id: str, token: str, blob: BlobRef, end: int) -> None:
        """Record a blob sent to a client up to a byte; this renews its lease, since its heartbeats queue behind that."""
        session = self._sessions.get(client_id)
        if session is not None and session.token == token:
            session.last_seen = self._clock()
            session.progress.record_bytes(blob.sha256, end, blob.size_bytes, self._clock())

    def record_upload(self, client_id: str, blob: BlobRef, end: int) -> None:
        """Record a blob received from a client up to a byte."""
        session = self._sessions.get(client_id)
        if session is not None:
            session.progress.record_bytes(blob.role, end, blob.size_bytes, self._clock())

    def progress(self, client_id: str) -> Progress | None:
        """Return a client's progress; None if it has not joined since the aggregator started."""
        return self._progress.get(client_id)

    def forget_progress(self, *, but_of: Collection[str]) -> None:
        """Forget the progress of clients that are neither connected nor named."""
        with self._lock:
            for name in self._progress.keys() - self._sessions.keys() - set(but_of):
                del self._progress[name]

    def is_connected(self, client_id: str) -> bool:
        """Whether a client's lease has not run out."""
        session = self._sessions.get(client_id)
        return session is not None and self._lives(session)

    def connected(self) -> list[str]:
        """Return the connected clients, sorted."""
        return sorted(session.client.client_id for session in self if self._lives(session))

    def kind_of(self, client_id: str) -> str:
        """Return a client's own kind of model; empty where it trains the run's, or is not here."""
        session = self.find(client_id)
        return "" if session is None else session.client.model_kind

    def evaluates_only(self, client_id: str) -> bool:
        """Whether a client that is here said that it has no image to train on."""
        session = self.find(client_id)
        return session is not None and not session.client.num_examples

    def end_expired(self) -> list[Session]:
        """Forget the sessions whose lease has run out; returns them."""
        with self._lock:
            return self._end([session for session in self if not self._lives(session)])

    def end(self, sessions: Iterable[Session]) -> list[Session]:
        """Forget these sessions, except those that have ended already; returns those forgotten now."""
        with self._lock:
            return self._end([session for session in sessions if self.find(session.client.client_id) is session])

    def _end(self, sessions: list[Session]) -> list[Session]:
        for session in sessions:
            self.remove(session)
        return sessions

    def remove(self, session: Session) -> None:
        """Forget a session."""
        del self._sessions[session.client.client_id]

    def restore(self, sessions: Iterable[Session]) -> None:
        """Take forgotten sessions back, except those whose clients have joined again."""
        with self._lock:
            for session in sessions:
                self._sessions.setdefault(session.client.client_id, session)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def silent_s(self, session: Session) -> float:
        """Return the seconds since a trainer's last call."""
        return self._clock() - session.last_seen

    def _lives(self, session: Session) -> bool:
        return self.silent_s(session) <= self.lease_s
