"""The ledger: the one way to change a run.

A pure step of rounds/machine/ returns the next state, and rounds/settling.py takes the steps that follow by themselves.
One transaction writes the last state and the events in between. Only then is the state in memory replaced, and listeners
are called. A crash at any point loses nothing that was acknowledged: the next start reads the open runs and settles them
by the same path.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from fedplcc.aggregator.histories.run_memories import LastRound, RunMemories
from fedplcc.aggregator.ledger.changes import Changes, Step, Write
from fedplcc.aggregator.ledger.consequences import Consequences
from fedplcc.aggregator.ledger.event_log import log_event
from fedplcc.aggregator.ledger.groups import Groups, Waiting
from fedplcc.aggregator.ledger.parking import without_raising
from fedplcc.aggregator.ledger.write_trouble import WriteTrouble
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.presence.deadlines import Deadlines
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds.machine import absences, run_facts, run_moves
from fedplcc.aggregator.rounds.quorum import Quorum
from fedplcc.aggregator.rounds.settling import is_looked_at
from fedplcc.aggregator.rounds.validation import Best
from fedplcc.aggregator.store.base import ControlRequest, Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.chance import RunWarning
from fedplcc.shared.errors import InvalidTransition, RunDeleted, RunNotFound, StoreUnavailable
from fedplcc.shared.process.clock import not_before
from fedplcc.shared.process.failpoints import failpoint
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import RowDamaged, sentence_of
from fedplcc.shared.types import (
    Evaluation,
    Event,
    EventQuery,
    Round,
    Run,
    RunStatus,
    Update,
)

log = get_logger(__name__)

RESTARTS = 100
"""Latest restarts of a run that are looked through for those of its open round."""

T = TypeVar("T")
_Change: TypeAlias = tuple[Callable[[Changes], Any], Context, bool]

Listener = Callable[[Collection[str], Collection[str]], None]
"""Called after every change, from any thread, with the clients whose task may have changed and the runs whose history has
grown ("" for an event of no run). It must return at once."""


class Ledger:
    """Open runs, equal in memory and in the store.

    Reading takes no lock. A caller that reads a run in order to change it does both in `together`, or holds `lock` for both.
    """

    def __init__(
        self,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        sessions: Sessions,
        *,
        wall_clock: Callable[[], float],
        monotonic_clock: Callable[[], float],
        pending_days: float,
    ) -> None:
        self.lock = threading.RLock()
        self._store, self._blobs, self._metrics, self._sessions = store, blobs, metrics, sessions
        self.write_trouble = WriteTrouble(monotonic_clock)
        self._pending_s = pending_days * run_moves.DAY_S
        self._listeners: list[Listener] = []
        self._moved: set[str] = set()
        found = {run.run_id: run for run in store.open_runs()}
        self._damaged = {run_id for run_id, run in found.items() if isinstance(run.reason, RowDamaged)}
        readable = {run_id: run for run_id, run in found.items() if run_id not in self._damaged}
        # Replaced after each transaction, never changed: whoever reads it waits for nobody.
        self._runs: Mapping[str, Run] = MappingProxyType(readable)
        self._groups: Groups[_Change] = Groups(self.lock, self._write_group)
        self._memories = RunMemories(store, sessions)
        self._consequences = Consequences(store, sessions, self._memories)
        # A run's times never decrease, so no duration in it is negative.
        self.now = not_before(wall_clock, max((run.updated_at for run in self._runs.values()), default=0.0))
        self._deadlines = Deadlines(sessions, wall_clock=self.now, monotonic_clock=monotonic_clock)

    def recover(self) -> None:
        """Take up the open runs after a restart: each settles by the normal path, all in one transaction.

        Each gets an event in its history. A run that cannot be read, or that another version wrote, is parked.
        """
        for run_id in sorted(self._damaged):
            log.error("run_damaged", run_id=run_id, detail=sentence_of(self.get(run_id).reason))
        if not self._runs:
            return
        self._metrics.recovered()
        with self._changing() as changes:
            steps = [changes.add(self._recovery(run)) for run in self._runs.values()]
        for step in steps:
            run = step.final
            log.info("run_recovered", run_id=run.run_id, round=run.round_number, status=run.status.value)
            without_raising(self._show_last_round, run.run_id)

    def _recovery(self, run: Run) -> Step:
        now = self.now()
        phase = {} if run.current_round is None else {"phase": run.current_round.phase.value}
        event = Event(type="run_recovered", run_id=run.run_id, round=run.round_number, data=phase, time=now)
        try:
            self._memories.interrupted[run.run_id] = self._interruptions(run)
            return self._consequences.step(run, run, now, extra=[event])
        except StoreUnavailable:
            raise
        except Exception as error:
            return self._consequences.step(run, self._consequences.parked(run, error), now, extra=[event])

    def _interruptions(self, run: Run) -> tuple[int, Collection[str]]:
        """Return the number of the open round and the phases of it in which an aggregator was started, this one included."""
        current = run.current_round
        if current is None or not run_facts.has_open_round(run):
            return -1, ()
        query = EventQuery(run_id=run.run_id, types=("run_recovered",), newest_first=True, limit=RESTARTS)
        earlier = [event for event in self._store.list_events(query) if event.round == current.number]
        return current.number, {current.phase.value, *(event.data["phase"] for event in earlier)}

    def _show_last_round(self, run_id: str) -> None:
        """Set the metrics of an open run to its last committed round, which may be hours old."""
        run = self.find_open(run_id)
        number = None if run is None else run_facts.last_committed(run)
        if run is None or number is None:
            return
        current = run.current_round if number == run.round_number else self._store.find_round(run_id, number)
        if current is not None:
            self._show_results(run, current, self._memories.last_round(run))

    def _show_results(self, run: Run, current: Round, last: LastRound) -> None:
        """Set the metrics of an open run to a committed round, its last one."""
        self._metrics.runs.committed(run, current)
        self._metrics.runs.warned(run.run_id, last.warnings)
        self._metrics.runs.forgot(run.run_id, last.forgotten)

    def get(self, run_id: str, *, of: str | None = None) -> Run:
        """One run.

        Args:
            of: A client whose call asks: of a run that has ended, only this one's update and report are read, so that the
                call costs the same however many clients the run had.

        Raises:
            RunNotFound: There is none of this id; RunDeleted if there was one.
        """
        run = self._runs.get(run_id) or self._store.find_run(run_id, of=of)
        if run is None:
            raise self._missing(run_id)
        return run

    def status(self, run_id: str) -> RunStatus:
        """The status of one run; cheap, however much a run that has ended left behind.

        Raises:
            RunNotFound: There is none of this id; RunDeleted if there was one.
        """
        run = self.find_open(run_id)
        status = self._store.find_status(run_id) if run is None else run.status
        if status is None:
            raise self._missing(run_id)
        return status

    def _missing(self, run_id: str) -> RunNotFound:
        if self._store.find_labels(run_id).deleted_at is None:
            return RunNotFound(f"there is no run {run_id!r}", run_id=run_id)
        return RunDeleted(f"run {run_id} was deleted", run_id=run_id)

    def open_runs(self) -> list[Run]:
        """Runs that have not ended, oldest first."""
        return list(self._runs.values())

    def find_open(self, run_id: str) -> Run | None:
        """A run that has not ended."""
        return self._runs.get(run_id)

    def create(
        self,
        run: Run,
        *,
        request_id: str,
        request_hash: str,
        facts: Mapping[str, Any],
        audited: Sequence[Write] = (),
    ) -> Run:
        """Write a new run, with more facts for its history, and the audit's record of it; returns it settled."""
        data = {"config_hash": run.config_hash, **facts}
        created = Event(type="run_created", run_id=run.run_id, data=data, time=run.created_at)
        with self._changing() as changes:
            settled_run = changes.add_run(run, request_id=request_id, request_hash=request_hash, created=created)
            changes.note(audited)
            return settled_run

    def wake(self, tasks_of: Collection[str]) -> None:
        """Call the listeners: the tasks of these clients may have changed, though no run has."""
        for listener in self._listeners:
            without_raising(listener, tasks_of, ())

    def subscribe(self, listener: Listener) -> None:
        """Call a function after every change."""
        with self.lock:
            self._listeners.append(listener)

    def for_each(self, work: Callable[[Run], object]) -> None:
        """Do something with every open run; an error in one parks that run, and the others follow.

        Raises:
            StoreUnavailable: Nothing can be written now.
        """
        with self.lock:
            for run in self.open_runs():
                try:
                    work(run)
                except StoreUnavailable:
                    raise
                except Exception as error:
                    self.park(run.run_id, error)

    def park(self, run_id: str, error: Exception) -> None:
        """Park an open run for an error in its own step."""
        with self.lock:
            run = self._runs.get(run_id)
            if run is not None:
                try:
                    self.step(run, self._consequences.parked(run, error))
                except StoreUnavailable:
                    raise
                except Exception:
                    log.exception("run_not_parked", run_id=run_id)

    def let_time_pass(self) -> None:
        """Drop absent clients from overdue rounds, and mark runs that have no quorum."""
        with self.lock:
            self._deadlines.observe(self._runs.values())
            self.for_each(self._let_time_pass_for)

    def _let_time_pass_for(self, run: Run) -> None:
        expired = run_moves.expire(run, now=self.now(), pending_s=self._pending_s)
        if expired is not run:
            self.step(run, expired)
            return
        still_s = self._deadlines.stalled_s(run)
        moved_at = None if still_s is None else self.now() - still_s
        if run.status is not RunStatus.RUNNING:
            self._metrics.runs.waits(run.run_id, moved_at=moved_at, patience_s=None)
            return
        rule = self._memories.config_of(run).quorum
        self._metrics.runs.waits(
            run.run_id,
            moved_at=moved_at,
            patience_s=None if rule.deadline_s is None else max(rule.deadline_s, rule.silence_s),
        )
        has_deadline = rule.deadline_s is not None
        if not is_looked_at(run, has_deadline=has_deadline) and not self._deadlines.waits_for_approval(run):
            return
        there = self._deadlines.presence(
            run, deadline_s=rule.deadline_s, silence_s=rule.silence_s, hard_deadline_s=rule.hard_deadline_s
        )
        after = absences.drop_absent(
            run,
            absent=there.absent,
            slow=there.slow,
            moving=there.moving,
            unknown=there.unknown,
            quorum=self._consequences.quorum_of(run),
            fails=rule.on_no_quorum == "fail",
            now=self.now(),
        )
        self.step(run, after)

    def change(
        self,
        run_id: str,
        change: Callable[[Run], Run],
        *,
        request: ControlRequest | None = None,
        audited: Sequence[Write] = (),
    ) -> Run:
        """Apply a pure step to a run; one transaction has the step, the request that asked for it, and its audit.

        Raises:
            RunNotFound: There is none of this id.
        """
        with self.lock:
            run = self.get(run_id)
            if isinstance(run.reason, RowDamaged):
                return self._change_damaged(run, change(run), request, audited)
            after = change(run)
            with self._changing() as changes:
                changed = changes.step(run, after, request=request)
                changes.note(audited)
                return changed

    def damaged_runs(self) -> list[str]:
        """Runs that have not ended and of which a row is damaged; they take no step until a backup is back."""
        return sorted(self._damaged)

    def _forget_damaged(self, run_id: str) -> None:
        self._damaged = self._damaged - {run_id}  # another set: whoever reads it takes no lock

    def _change_damaged(self, run: Run, after: Run, request: ControlRequest | None, audited: Sequence[Write]) -> Run:
        """Stop a run with a damaged row, which is all that can be done with it."""
        if after is run:
            return run
        if after.status is not RunStatus.STOPPING:
            raise InvalidTransition(sentence_of(run.reason), run_id=run.run_id, status=run.status)
        why = {} if after.reason is None else {"reason": sentence_of(after.reason)}
        stopped = Event(type="run_stopped", run_id=run.run_id, data=why, time=self.now())
        with self._changing() as changes:
            changes.writes.append(lambda transaction: transaction.end_damaged_run(run.run_id))
            if request is not None:
                changes.writes.append(lambda transaction: transaction.add_control_request(request))
            changes.record(stopped)
            changes.note(audited)
            changes.afterwards.append(lambda: self._forget_damaged(run.run_id))
        return self.get(run.run_id)

    def step(
        self,
        before: Run,
        after: Run,
        *,
        update: Update | None = None,
        evaluation: Evaluation | None = None,
        extra: Sequence[Event] = (),
    ) -> Run:
        """Settle a changed run, write it with its events, and call the listeners.

        If settling meets an error, the change itself is written, and the run is parked.
        """
        with self._changing() as changes:
            return changes.step(before, after, update=update, evaluation=evaluation, extra=extra)

    def together(self, change: Callable[[Changes], T], *, reads_what_it_writes: bool = False) -> T:
        """Apply a change in one transaction with those of other callers that wait; returns its answer once it is durable.

        A change reads the store and the runs in `changes`, and writes nothing but to `changes`. It may be called a second
        time, after the transaction that had it failed. The caller does not hold the lock.

        Args:
            reads_what_it_writes: Whether it writes what it made of rows that it read. It has a transaction of its own then:
                the store does not show what others of its group have written.

        Raises:
            FedplccError: The change raised it, and nothing of it is written.
            StoreUnavailable: The database is unavailable; no change of the group is written.
        """
        answer: T = self._groups.join((change, copy_context(), reads_what_it_writes))
        return answer

    def _write_group(self, group: Sequence[Waiting[_Change]]) -> None:
        """Write the changes of a group, those apart that read what they write."""
        for is_alone, some in groupby(group, key=lambda waiting: waiting.change[2]):
            for part in ([waiting] for waiting in some) if is_alone else [list(some)]:
                self._write_part(part)

    def _write_part(self, group: Sequence[Waiting[_Change]]) -> None:
        """Write changes in one transaction; after an error that is not of the database each alone, so that one fails."""
        made: list[tuple[Waiting[_Change], Changes, Any]] = []
        runs, ended = self._runs, dict[str, Run]()
        for waiting in group:
            change, context, _ = waiting.change
            changes = Changes(dict(runs), dict(ended), self._consequences.step, self.now(), context)
            try:
                made.append((waiting, changes, change(changes)))
            except Exception as error:
                waiting.fail(error)
            else:
                runs, ended = changes.runs, changes.ended
        all_changes = [changes for _, changes, _ in made]
        try:
            self._commit(all_changes)
        except StoreUnavailable as error:
            for waiting, _, _ in made:
                waiting.fail(error)
            return
        except Exception as error:
            # One of them has something that the database refuses.
            for waiting, _, _ in made:
                if len(made) == 1:
                    waiting.fail(error)
                else:
                    self._write_part([waiting])
            return
        self._publish(all_changes)
        for waiting, _, answer in made:
            waiting.succeed(answer)

    @contextmanager
    def _changing(self) -> Iterator[Changes]:
        """Yield changes that one transaction writes when the block has ended, alone."""
        with self.lock:
            changes = Changes(dict(self._runs), {}, self._consequences.step, self.now(), copy_context())
            yield changes
            self._commit([changes])
            self._publish([changes])

    def _commit(self, made: Sequence[Changes]) -> None:
        """Write changes in one transaction, and replace the runs in memory."""
        events = [event for changes in made for event in changes.events]
        for event in events:
            failpoint("transition", event.type, "before")
        if events or any(changes.writes for changes in made):
            with self.write_trouble.writing("history"), self._store.transaction() as transaction:
                for changes in made:
                    for write in changes.writes:
                        write(transaction)
                transaction.add_events(events)
            self._runs = MappingProxyType(made[-1].runs)
        for changes in made:
            for work in changes.afterwards:
                without_raising(work)

    def _publish(self, made: Sequence[Changes]) -> None:
        """Log changes that are durable, set the metrics, and call the listeners."""
        for changes in made:
            for event in changes.events:
                failpoint("transition", event.type, "after")
                without_raising(changes.context.run, log_event, event)
        # Before the listeners: a client that is woken takes its task of a round at once, and that is measured.
        without_raising(self._observe, [states for changes in made for states in changes.steps])
        if any(changes.events for changes in made):
            tasks_of = frozenset[str]().union(*(changes.tasks_of for changes in made))
            runs = frozenset(event.run_id for changes in made for event in changes.events)
            for listener in self._listeners:
                without_raising(listener, tasks_of, runs)

    def quorum_of(self, run: Run) -> Quorum:
        """The quorum of a run's open round."""
        return self._consequences.quorum_of(run)

    def best(self, run: Run) -> Best | None:
        """Return the best round of a run by validation; None if none was validated."""
        return self._memories.best(run, is_open=self.find_open(run.run_id) is not None)

    def warnings(self, run: Run) -> tuple[RunWarning, ...]:
        """Return the warnings about a run; see `RunMemories.warnings`."""
        return self._memories.warnings(run, is_open=self.find_open(run.run_id) is not None)

    @property
    def has_moved(self) -> bool:
        """Whether `take_moved` would return any run."""
        return bool(self._moved)

    def take_moved(self) -> set[str]:
        """Return the runs of which a round has committed, or that have ended, since this was asked last."""
        with self.lock:
            moved, self._moved = self._moved, set()
            return moved

    def _observe(self, changed: Sequence[Sequence[Run]]) -> None:
        now = self.now()
        for states in changed:
            before, after = states[0], states[-1]
            if after.status.is_final or run_facts.last_committed(after) != run_facts.last_committed(before):
                self._moved.add(after.run_id)
            if after.status.is_final and not before.status.is_final:
                self._metrics.runs.ended(after, now=now)
        if any(_shows_differently(states[0], states[-1]) for states in changed):
            self._metrics.runs.follow(self._runs.values(), now=now)
        for states in changed:
            for before, after in itertools.pairwise(states):
                self._metrics.rounds.stepped(before, after, now=now)
                has_closed = run_facts.has_open_round(before) and not run_facts.has_open_round(after)
                if after.current_round is not None and has_closed:
                    self._show_results(after, after.current_round, self._memories.closed(after))
        for states in changed:
            if states[-1].status.is_final:
                self._memories.ended(states[-1].run_id)


def _shows_differently(before: Run, after: Run) -> bool:
    """Whether metrics of runs may change by a step; updates and reports alone change none."""

    def what(run: Run) -> tuple[object, ...]:
        return run.status, run.reason, run.round_number, run_facts.has_open_round(run)

    return before is after or what(before) != what(after)
