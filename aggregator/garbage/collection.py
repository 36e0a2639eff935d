"""Garbage collection: removes the blobs that no run keeps, a little at a time, soon after each commit that frees some.

Commits of rounds and ends of runs name the blobs that they free (kept_blobs.py), aggregations those that only they needed;
these wait in a queue for small batches. At the start, and hourly, a scan walks over all files, a part at a time, and finds
what a crash left. Between two steps the collection rests, so that it takes at most `SHARE` of a processor, unless more than
`HURRY` blobs wait. If more than `MOST_WAITING` wait, each round removes some before it is aggregated: the queue is bounded
whatever the rate of rounds. The deletion of a run removes its blobs at once, in its caller's thread, so that the answer can
say what became free.

A batch removes rows before files, so that a crash leaves only files without a row, which the next scan finds. It spares
blobs that are being stored or read (store/blobs/holds.py).
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress

from fedplcc.aggregator.garbage.kept_blobs import KeptBlobs, named_by
from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.garbage_lock import BackupIsRunning, collecting
from fedplcc.shared.errors import RunDeleted, StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Run

log = get_logger(__name__)

DAY_S = 86_400.0
ROWS = 1000
"""Rows of a deleted run that one transaction removes."""
MOST_READING_S = 10.0
"""Time for which a deletion just after a start waits until it is known what all runs keep."""
BATCH = 32
"""Most blobs removed in one transaction; a commit may have to wait for it."""
CATCH_UP = 4
"""Batches that a round removes before it is aggregated while too many blobs wait."""
SLICE_S = 0.05
"""Time after which a step ends."""
SHARE = 0.1
"""Most of a processor that a collection takes while few blobs wait."""
LEAST_REST_S, MOST_REST_S = 0.05, 1.0
"""Pause after a step."""
PAUSE_S = 5.0
"""Pause after a failure, and while a backup is being made and all files are known."""
HURRY = 500
"""Waiting blobs above which a step is followed by the next one at once."""
MOST_WAITING = 1000
"""Waiting blobs above which each aggregated round removes some first."""
SCAN_S = 3600.0
"""Time between two scans of all files, in which interrupted uploads expire too."""
LOG_S = 60.0
"""Least time between two lines of the log about removed blobs."""


class GarbageCollection:
    """Collections of one aggregator; any thread may call it."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        keep: Keep,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._store, self._blobs, self._metrics = ledger, store, blobs, metrics
        self._keep, self._clock = keep, clock
        self._turn = threading.Lock()
        self._kept = KeptBlobs(store, keep)
        self._knows_all = False
        self._reading: Iterator[None] | None = None
        self._unfollowed: set[str] = set()
        self._deleted: dict[str, Run] = {}
        """Runs that were deleted, and whose names are still to be forgotten."""
        self._needed: Set[str] = frozenset()
        """What open rounds need, as of the present step."""
        self._waiting: dict[str, int] = {}
        """Sizes in bytes of the blobs that wait for their removal, by SHA-256, oldest first."""
        self._scan: Iterator[None] | None = None
        self._scans_at, self._rests_until = -math.inf, 0.0
        self._scanned_bytes = self._added_before = 0
        self._num_removed = self._removed_bytes = 0
        self._logged, self._logs_at = (0, 0), -math.inf

    @property
    def num_waiting(self) -> int:
        """Blobs that wait for their removal."""
        return len(self._waiting)

    def wait_s(self) -> float:
        """Seconds until the next step may begin."""
        return max(0.0, self._rests_until - self._clock())

    def is_due(self) -> bool:
        """Whether there is something to do: a commit to follow, blobs to remove or files to scan."""
        return bool(self._waiting or self._unfollowed or self._ledger.has_moved or self._is_scanning())

    def step(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Do a part of what is due, for about `SLICE_S` seconds, and begin to rest; return the bytes removed.

        Nothing is removed while a backup is being made.

        Args:
            should_stop: Called before every batch; later steps remove the rest.

        Raises:
            StoreUnavailable: The database or the disk is unavailable; later steps do it.
        """
        return self._working(should_stop, SLICE_S)

    def collect(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Scan all files and remove all garbage, however long it takes; as `step` else."""
        self._scans_at = -math.inf
        return self._working(should_stop, math.inf)

    def delete(self, run: Run, mark: Callable[[], None]) -> int:
        """Mark an ended run as deleted, and remove its rows and the blobs that nobody else keeps or holds.

        Where the removal fails, later steps do it.

        Args:
            mark: Writes durably that it was deleted.

        Returns:
            The bytes that this has made free on the disk.

        Raises:
            StoreUnavailable: The database or the disk is unavailable.
        """
        with self._turn:
            mark()
            try:
                with self._blobs.holds.collecting():
                    freed_bytes = self._remove_blobs_of(run)
            finally:
                self._show()
            self._clear_rows(run.run_id)
        return freed_bytes

    def _remove_blobs_of(self, run: Run) -> int:
        begin, freed_bytes = self._clock(), 0
        for _ in range(
            2
        ):  # what a run kept that went on after an end is not known: once all others were read anew it is
            self._deleted[run.run_id] = run
            for _read in self._reading_all():
                if self._clock() - begin > MOST_READING_S:
                    break  # what it kept goes when it is known what all others keep
            needed, mine = self._follow(), self._forget_deleted()
            if self._knows_all:
                break
        try:
            while self._knows_all and mine:
                batch, mine = mine[:BATCH], mine[BATCH:]
                freed_bytes += self._remove(batch, needed)
        except BackupIsRunning:
            log.info("deletion_waits", run_id=run.run_id, detail="its blobs go when the backup is made")
        return freed_bytes

    def _forget_deleted(self) -> list[str]:
        """Put the blobs of deleted runs into the queue that nobody else keeps; return their names."""
        names: list[str] = []
        for run in list(self._deleted.values()):
            freed = self._kept.forget(run)
            del self._deleted[run.run_id]
            if freed is None:
                # It is not known what it kept: all other runs are read anew, and a scan finds what they do not keep.
                self._kept, self._knows_all, self._reading = KeptBlobs(self._store, self._keep), False, None
                self._scan, self._scans_at = None, -math.inf
            elif not self._kept.unreadable:
                self._await(freed)
                names += (name for name in freed if name in self._waiting)
        return names

    def _clear_rows(self, run_id: str) -> None:
        """Remove the rows of a deleted run, a few at a time: commits need not wait for all of them."""
        removed = ROWS
        while removed == ROWS:
            with self._ledger.lock, self._store.transaction() as transaction:
                removed = transaction.remove_rows(run_id, ROWS)

    def catch_up(self) -> None:
        """Remove a few batches if too many blobs wait; a failure is for the next step to tell."""
        if self.num_waiting > MOST_WAITING:
            with suppress(StoreUnavailable, BackupIsRunning), self._turn, self._blobs.holds.collecting():
                self._remove_while(itertools.repeat(True, CATCH_UP), self._follow())

    def _working(self, should_stop: Callable[[], bool], most_s: float) -> int:
        begin, before, pause_s = self._clock(), self._removed_bytes, PAUSE_S

        def has_time() -> bool:
            return not should_stop() and self._clock() - begin < most_s

        try:
            with self._turn, self._blobs.holds.collecting():
                self._needed = self._follow()
                self._forget_deleted()
                if self._is_scanning():
                    self._go_on_scanning(has_time)
                # One batch in any case: a scan must not keep what waits from going.
                first = (not should_stop() for _ in range(1))
                others = (has_time() for _ in itertools.count())
                self._remove_while(itertools.chain(first, others), self._needed)
            pause_s = 0.0 if self.num_waiting > HURRY else self._rest_s(begin)
        except BackupIsRunning:
            log.debug("collection_waits", detail="a backup is being made")
            if self._scan is not None:
                pause_s = self._rest_s(begin)  # looking is not held up
        finally:
            self._rests_until = self._clock() + pause_s
            self._show()
        return self._removed_bytes - before

    def _rest_s(self, begin: float) -> float:
        """Pause after a step that began then, in proportion to what it took."""
        return min(max(LEAST_REST_S, (self._clock() - begin) * (1 / SHARE - 1)), MOST_REST_S)

    def _is_scanning(self) -> bool:
        return self._scan is not None or self._clock() >= self._scans_at

    def _follow(self) -> set[str]:
        """Take over what commits and ends of runs changed; return what open rounds need as well."""
        # First: what a round receives later is held, and what it has received is among its names once it has committed.
        needed = set[str]().union(*map(named_by, self._ledger.open_runs()))
        self._unfollowed |= self._ledger.take_moved()
        for run_id in sorted(self._unfollowed):
            self._await(self._kept.follow_by_id(run_id, functools.partial(self._find, run_id)))
            self._unfollowed.discard(run_id)
        self._await_unnamed()
        return needed

    def _await_unnamed(self) -> None:
        """Put blobs that no row will name into the queue once it is known what others keep."""
        while self._knows_all and self._blobs.unnamed:
            name = self._blobs.unnamed.popleft()
            self._await([] if self._kept.unreadable else [name])  # a scan finds it when all runs can be read

    def _find(self, run_id: str) -> Run | None:
        try:
            return self._ledger.get(run_id)
        except RunDeleted:
            return None

    def _await(self, names: Iterable[str]) -> None:
        """Put freed blobs into the queue."""
        for name in names:
            with suppress(FileNotFoundError):  # removed already, as the blob of another run
                self._waiting[name] = self._blobs.path(name).stat().st_size

    def _go_on_scanning(self, has_time: Callable[[], bool]) -> None:
        scan = self._scan = self._scan or self._new_scan()
        try:
            for _ in scan:
                if not has_time():
                    return
        except Exception:
            self._scan = None  # it begins anew
            raise
        self._scan, self._scans_at = None, self._clock() + SCAN_S

    def _new_scan(self) -> Iterator[None]:
        """Read all runs once, then walk over all files; a step for each."""
        for run_id in self._store.deleted_runs(with_rows=True):
            if run_id not in self._deleted:
                self._clear_rows(run_id)
            yield
        yield from self._reading_all()
        self._added_before, scanned_bytes = self._blobs.added_bytes, 0
        for name, size_bytes in self._blobs.files():
            scanned_bytes += size_bytes
            # Of a run that cannot be read nobody knows all names.
            if not self._kept.unreadable and name not in self._kept and name not in self._needed:
                self._waiting[name] = size_bytes
            yield
        self._scanned_bytes = scanned_bytes
        with suppress(BackupIsRunning):
            self._expire()

    def _reading_all(self) -> Iterator[None]:
        """Go on reading what all runs keep, unless that is known."""
        while not self._knows_all:
            self._reading = self._reading or self._kept.read_all()
            try:
                next(self._reading)
            except StopIteration:
                self._knows_all, self._reading = True, None
            except BaseException:
                self._reading = None  # it begins anew
                raise
            yield

    def _remove_while(self, goes_on: Iterable[bool], needed: Set[str]) -> None:
        """Remove one batch after another, but for what is needed."""
        if not self._knows_all:
            return  # a run that was not read yet may need what another one has freed
        left = len(self._waiting)
        for does in goes_on:
            if not does or left <= 0:
                return
            batch = list(itertools.islice(self._waiting, BATCH))
            left -= len(batch)
            self._remove(batch, needed)

    def _remove(self, batch: Sequence[str], needed: Set[str]) -> int:
        """Remove blobs, row first; return the bytes that are free now. Blobs that somebody holds wait on."""
        garbage = {name: self._waiting[name] for name in batch if name not in needed and name not in self._kept}
        claimed: list[str] = []
        with collecting(self._blobs.folder):
            try:
                # The lock first: its holder may wait for a blob that is being removed.
                with self._ledger.lock:
                    claimed = self._blobs.holds.claim(garbage)
                    with self._store.transaction() as transaction:
                        transaction.forget_blobs(claimed)
                removed = self._blobs.remove(claimed)
            finally:
                self._blobs.holds.release(claimed)
        for name in batch:
            del self._waiting[name]
        self._waiting |= {name: garbage[name] for name in garbage.keys() - set(claimed)}
        self._scanned_bytes -= removed.num_bytes
        self._count(len(claimed), removed.num_bytes)
        return removed.freed_bytes

    def _expire(self) -> None:
        # Files have the system's time, also if the ledger has another clock.
        before = time.time() - DAY_S * self._keep.unused_days
        removed_bytes = self._blobs.uploads.expire(before)
        # A run that is being created may name such a model, and a backup may be copying it.
        with collecting(self._blobs.folder), self._ledger.lock:
            removed_bytes += self._blobs.expire_initial(before)
        self._count(0, removed_bytes)

    def _count(self, num_blobs: int, num_bytes: int) -> None:
        self._num_removed, self._removed_bytes = self._num_removed + num_blobs, self._removed_bytes + num_bytes
        self._metrics.disk.collected(num_blobs, num_bytes)

    def _show(self) -> None:
        """Set the metrics, and log what was removed, once a minute at most."""
        waiting_bytes = sum(self._waiting.values())
        self._metrics.disk.waiting(len(self._waiting), waiting_bytes)
        stored_bytes = self._scanned_bytes + self._blobs.added_bytes - self._added_before
        self._metrics.disk.kept(max(0, stored_bytes - waiting_bytes))
        num_logged, logged_bytes = self._logged
        if self._num_removed > num_logged and self._clock() >= self._logs_at:
            num_bytes = self._removed_bytes - logged_bytes
            log.info("blobs_collected", blobs=self._num_removed - num_logged, removed_bytes=num_bytes)
            self._logged, self._logs_at = (self._num_removed, self._removed_bytes), self._clock() + LOG_S
