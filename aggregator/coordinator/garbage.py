"""Garbage collection: a pure function names the needed blobs, a thin shell removes the others.

These stay:

- of a run that has not ended, whatever its open round starts from, has received and has made;
- of every run the model and the prototypes of its first round and of its last `Keep.models` committed ones, and what it
  began with;
- the prototypes, global and local, of its last `Keep.prototypes` committed rounds, so that a person can look back at them;
- the updates of its last `Keep.updates` committed rounds, each with the model that its round started from, and of the
  rounds before them the prototypes that may stay in a later pool, so that `fedplcc replay` can compute those rounds again.

A row goes first and then its file, so that a crash leaves a file that no row names: garbage of the next collection. What is
being put away while one is going on is left alone (store/blobs/holds.py). Rows of rounds, updates and events stay for ever:
they are small, and the history of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from aggregator.computation.aggregation import proto_staleness
from aggregator.coordinator.ledger import Ledger
from aggregator.metrics import AggregatorMetrics
from aggregator.rounds import machine
from aggregator.rounds.configuration import config_of
from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore
from aggregator.store.blobs.garbage_lock import BackupIsRunning, collecting
from shared.config.initial_model import ModelBlob, parse_initial_model
from shared.errors import InvalidConfig
from shared.process.log import get_logger
from shared.types import Round, Run

log = get_logger(__name__)

DAY_S = 86_400.0
BATCH = 32
"""Most blobs removed in one transaction, for which a commit may have to wait."""
PAGE = 100
"""Runs and rounds read at a time."""
PAGE_OF_UPDATES = 500
"""Updates read at a time."""
REST = 20.0
"""Pause after a collection, in multiples of its duration: at most a twentieth of a processor."""
LEAST_REST_S = 1.0
LONGEST_REST_S = 3600.0
"""Seconds after which a collection is due although no round has committed: uploads grow old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Blobs that stay although no open round needs them."""

    models: int | None = 5
    """Last committed rounds of each run whose global models and prototypes stay, beside the first round's; None for all."""
    prototypes: int | None = 100
    """Last committed rounds of each run whose prototypes stay, the global ones and those of its updates; None for all."""
    updates: int = 1
    """Last committed rounds of each run whose updates stay."""
    unused_days: float = 7.0
    """Days that interrupted uploads, and models to begin with, lie that nobody goes on with or uses."""


@dataclass(frozen=True, slots=True)
class KeptRounds:
    """First numbers of the rounds of one run that keep blobs, besides round 0."""

    results_from: int
    """Models and prototypes."""
    updates_from: int
    """Updates; those of an open round are among them."""
    end: int
    """The first round that is neither committed nor open."""
    prototypes_from: int
    """Prototypes for people to look at, global and local: of committed rounds."""
    num_stale: int = 0
    """Rounds before `updates_from` whose prototypes those after it may need: see `method.proto_staleness`."""

    @property
    def pooled_from(self) -> int:
        """The prototypes of updates that a round which can be computed again may have in its pool."""
        return max(0, self.updates_from - self.num_stale)


def kept_rounds(run: Run, keep: Keep) -> KeptRounds:
    """Return which rounds of a run keep blobs; a round that an ended run left open keeps none."""
    last = machine.last_committed(run)
    committed = -1 if last is None else last
    end = committed + 1 if run.status.is_final else run.round_number + 1
    updates_from = max(0, committed + 1 - keep.updates)
    start = max(0, updates_from - 1)  # a round starts from the result of the one before
    results_from = 0 if keep.models is None else max(0, min(committed + 1 - keep.models, committed, start))
    prototypes_from = 0 if keep.prototypes is None else max(0, committed + 1 - keep.prototypes)
    staleness = 0 if run.status.is_final and not keep.updates else _staleness(run)
    return KeptRounds(results_from, updates_from, end, prototypes_from, staleness)


def needed_blobs(run: Run, known: Mapping[int, Round], keep: Keep) -> set[str]:
    """The blobs that are needed for one run, by SHA-256, beside those of `prototypes_of` its rounds.

    Args:
        run: The run.
        known: Its rounds by number: the first, and all from `kept_rounds` on, with their updates from `pooled_from` on.
        keep: What stays.
    """
    kept = kept_rounds(run, keep)
    blobs = [run.model, run.prototypes]
    for number, record in known.items():
        if number == 0 or kept.results_from <= number < kept.end:
            blobs += (record.model, record.prototypes)
        if kept.updates_from <= number < kept.end:
            blobs += (blob for update in record.updates.values() for blob in update.payload.blobs)
        elif kept.pooled_from <= number < kept.updates_from:
            blobs += (blob for update in record.updates.values() for blob in update.payload.prototype_sets)
    return {blob.sha256 for blob in blobs if blob is not None} | _begun_with(run)


def prototypes_of(current: Round) -> set[str]:
    """The prototypes of a round with its updates, global and local, by SHA-256."""
    sets = [blob for update in current.updates.values() for blob in update.payload.prototype_sets]
    return {blob.sha256 for blob in (*sets, current.prototypes) if blob is not None}


def _staleness(run: Run) -> int:
    """Past rounds whose prototypes a kept round needs."""
    try:
        return proto_staleness(run)
    except InvalidConfig:
        return 0  # written by another version; such a run has failed (see ledger.py)


def _begun_with(run: Run) -> set[str]:
    """The model that the run's configuration names, if it names one."""
    try:
        named = config_of(run).run.initial_model
    except InvalidConfig:
        return set()  # likewise
    model = None if named is None else parse_initial_model(named)
    return {model.sha256} if isinstance(model, ModelBlob) else set()


def rounds_of(store: Store, run: Run, keep: Keep) -> dict[int, Round]:
    """The rounds of a run that `needed_blobs` must know."""
    kept = kept_rounds(run, keep)
    first = store.find_round(run.run_id, 0) if kept.results_from else None
    found = {} if first is None else {0: first}
    after = kept.results_from - 1
    while page := store.list_rounds(run.run_id, after=after, limit=PAGE):
        found |= {record.number: record for record in page}
        after = page[-1].number
    for number in range(kept.pooled_from, kept.end):
        whole = store.find_round(run.run_id, number)
        if whole is not None:
            found[number] = whole
    return found


def all_runs(store: Store) -> Iterator[Run]:
    """Every run, newest first; rounds carry no updates."""
    page = store.list_runs(limit=PAGE)
    while page:
        yield from page
        page = store.list_runs(limit=PAGE, before=page[-1].run_id)


class PrototypeNames:
    """The names of the prototypes of committed rounds that stay to be looked at.

    A committed round does not change: what is read of it once is remembered, 32 bytes a name, so that the next collection
    does not read the updates of a hundred rounds again.
    """

    def __init__(self, store: Store, keep: Keep) -> None:
        self._store, self._keep = store, keep
        self._known: dict[str, dict[int, bytes]] = {}

    def of(self, run: Run) -> set[str]:
        """The prototypes of a run's rounds from `KeptRounds.prototypes_from` to its last committed one, by SHA-256."""
        last = machine.last_committed(run)
        if last is None or self._keep.prototypes == 0:
            return set()
        before, numbers = self._known.get(run.run_id, {}), range(kept_rounds(run, self._keep).prototypes_from, last + 1)
        missing = [number for number in numbers if number not in before]
        read = self._read(run.run_id, missing[0], last) if missing else {}
        known = {number: names for number in numbers if (names := before.get(number, read.get(number))) is not None}
        self._known[run.run_id] = known
        return {names[at : at + 32].hex() for names in known.values() for at in range(0, len(names), 32)}

    def _read(self, run_id: str, first: int, last: int) -> dict[int, bytes]:
        """The names in each of these rounds, read a page at a time and without their reports."""
        found: dict[int, set[str]] = {}
        number, is_more = first - 1, True
        while is_more:
            page = self._store.list_rounds(run_id, after=number, limit=min(PAGE, last - number))
            found |= {current.number: prototypes_of(current) for current in page}
            number = page[-1].number if page else last
            is_more = number < last
        after, is_more = (first, ""), True
        while is_more:
            updates = self._store.list_updates(run_id, after=after, limit=PAGE_OF_UPDATES)
            for number, update in updates:
                if number in found:
                    found[number] |= {blob.sha256 for blob in update.payload.prototype_sets}
                after = (number, update.client_id)
            is_more = len(updates) == PAGE_OF_UPDATES and after[0] <= last
        return {number: b"".join(map(bytes.fromhex, sorted(names))) for number, names in found.items()}


class GarbageCollection:
    """Collections of garbage of one aggregator, one after the other; call it from one thread."""

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
        self._prototypes = PrototypeNames(store, keep)
        self._seen: Mapping[str, int | None] | None = None
        self._rests_until = 0.0

    def wait_s(self) -> float:
        """Seconds until there may be another collection."""
        return max(0.0, self._rests_until - self._clock())

    def is_due(self) -> bool:
        """Whether a round has committed, or a run has ended, since the last collection; true at first, and now and then."""
        return self._seen != self._committed() or self._clock() >= self._rests_until + LONGEST_REST_S

    def collect(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Remove the blobs that are not needed any more; return their bytes.

        Nothing is removed while a backup is being made: the next collection does it.

        Args:
            should_stop: Asked before every batch; what is left then is garbage of the next collection.

        Raises:
            StoreUnavailable: The database or the disk is away; what is left is garbage of the next collection.
        """
        begin, committed = self._clock(), self._committed()
        removed_bytes = num_removed = 0
        try:
            with self._blobs.holds.collecting():
                needed = self._needed()
                kept_bytes, garbage = self._sorted_out(needed)
                self._metrics.disk.kept(kept_bytes)
                for batch in _batches(garbage):
                    if should_stop():
                        return removed_bytes
                    names, size_bytes = self._remove(batch)
                    num_removed, removed_bytes = num_removed + names, removed_bytes + size_bytes
            removed_bytes += self._expire()
            self._seen = committed
        except BackupIsRunning:
            log.debug("collection_waits", detail="a backup is being made")
        finally:
            self._metrics.disk.collected(num_removed, removed_bytes)
            took_s = self._clock() - begin
            self._rests_until = self._clock() + max(LEAST_REST_S, REST * took_s)
        if num_removed:
            log.info("blobs_collected", blobs=num_removed, removed_bytes=removed_bytes)
        return removed_bytes

    def _committed(self) -> dict[str, int | None]:
        return {run.run_id: machine.last_committed(run) for run in self._ledger.open_runs()}

    def _needed(self) -> set[str]:
        needed: set[str] = set()
        for run in all_runs(self._store):
            needed |= needed_blobs(run, rounds_of(self._store, run, self._keep), self._keep) | self._prototypes.of(run)
        return needed

    def _sorted_out(self, needed: set[str]) -> tuple[int, list[str]]:
        """Return the bytes of needed blobs, and the names of the other files; a file without a row is garbage too."""
        kept_bytes, garbage = 0, []
        for name, size_bytes in self._blobs.files():
            if name in needed:
                kept_bytes += size_bytes
            else:
                garbage.append(name)
        return kept_bytes, garbage

    def _remove(self, batch: Sequence[str]) -> tuple[int, int]:
        """Remove blobs, row first; return their number and bytes."""
        claimed: list[str] = []
        with collecting(self._blobs.folder):
            try:
                # The lock first: whoever holds it may wait for a blob that is leaving.
                with self._ledger.lock:
                    claimed = self._blobs.holds.claim(batch)
                    with self._store.transaction() as transaction:
                        transaction.forget_blobs(claimed)
                return len(claimed), self._blobs.remove(claimed)
            finally:
                self._blobs.holds.release(claimed)

    def _expire(self) -> int:
        # Files have the system's time, whatever clock the ledger has.
        before = time.time() - DAY_S * self._keep.unused_days
        removed_bytes = self._blobs.uploads.expire(before)
        # A run that is being created may name one, and a backup may be copying it.
        with collecting(self._blobs.folder), self._ledger.lock:
            return removed_bytes + self._blobs.expire_initial(before)


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + BATCH] for first in range(0, len(names), BATCH))
