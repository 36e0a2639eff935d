"""Garbage collection: a pure function names the needed blobs, a thin shell removes the others.

Every run keeps:

- if it has not ended: the inputs of its open round, the updates that the round has received, and its results;
- its initial model, and the models and prototypes of its first round and of its last `Keep.models` committed rounds;
- the prototypes, global and local, of its last `Keep.prototypes` committed rounds, for prototype maps;
- the updates of its last `Keep.updates` committed rounds with the model that each round started from, and the earlier
  prototypes that their pools reuse, so that `fedplcc replay` can compute those rounds again.

A collection removes a row before its file, so that a crash leaves only a file without a row, which the next collection
removes. It skips blobs that are being stored or read (store/blobs/holds.py). Rows of rounds, updates and events stay
forever: they are small, and they are the history of the run.
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
"""Most blobs removed in one transaction; a commit may have to wait for it."""
PAGE = 100
"""Runs and rounds read at a time."""
PAGE_OF_UPDATES = 500
"""Updates read at a time."""
REST = 20.0
"""Pause after a collection, in multiples of its duration: at most a twentieth of a processor."""
LEAST_REST_S = 1.0
LONGEST_REST_S = 3600.0
"""Seconds after which a collection is due although no round has committed: interrupted uploads expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Settings: which blobs stay although no open round needs them."""

    models: int | None = 5
    """Last committed rounds of each run whose global models and prototypes stay, besides the first round; None for all."""
    prototypes: int | None = 100
    """Last committed rounds of each run whose global and local prototypes stay; None for all."""
    updates: int = 1
    """Last committed rounds of each run whose updates stay."""
    unused_days: float = 7.0
    """Days after which unfinished uploads and unused initial models are removed."""


@dataclass(frozen=True, slots=True)
class KeptRounds:
    """Rounds of one run that keep blobs: the first number of each kind; round 0 always keeps its own."""

    results_from: int
    """Models and prototypes."""
    updates_from: int
    """Updates, including those of an open round."""
    end: int
    """The first round that is neither committed nor open."""
    prototypes_from: int
    """Global and local prototypes for prototype maps, of committed rounds."""
    num_stale: int = 0
    """Rounds before `updates_from` whose prototypes later rounds may reuse; see `method.proto_staleness`."""

    @property
    def pooled_from(self) -> int:
        """The first round whose updates' prototypes a repeatable round may have in its pool."""
        return max(0, self.updates_from - self.num_stale)


def kept_rounds(run: Run, keep: Keep) -> KeptRounds:
    """Return the rounds of a run that keep blobs; a round that an ended run left open keeps none."""
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
    """Return the SHA-256 of each blob that one run needs, without the prototypes that `prototypes_of` returns.

    Args:
        run: The run.
        known: Its rounds by number: the first, and all from `kept_rounds` on, with their updates from `pooled_from` on.
        keep: The settings.
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
    return {blob.sha256 for blob in blobs if blob is not None} | _initial_model(run)


def prototypes_of(current: Round) -> set[str]:
    """Return the SHA-256 of a round's prototypes, global and local."""
    sets = [blob for update in current.updates.values() for blob in update.payload.prototype_sets]
    return {blob.sha256 for blob in (*sets, current.prototypes) if blob is not None}


def _staleness(run: Run) -> int:
    """Return the number of past rounds whose prototypes a kept round may reuse."""
    try:
        return proto_staleness(run)
    except InvalidConfig:
        return 0  # written by another version; such a run has failed (see ledger.py)


def _initial_model(run: Run) -> set[str]:
    """Return the SHA-256 of the initial model that the run's configuration names, if any."""
    try:
        named = config_of(run).run.initial_model
    except InvalidConfig:
        return set()  # written by another version
    model = None if named is None else parse_initial_model(named)
    return {model.sha256} if isinstance(model, ModelBlob) else set()


def rounds_of(store: Store, run: Run, keep: Keep) -> dict[int, Round]:
    """Return the rounds of a run that `needed_blobs` must know."""
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
    """Yield every run, newest first, its round without updates."""
    page = store.list_runs(limit=PAGE)
    while page:
        yield from page
        page = store.list_runs(limit=PAGE, before=page[-1].run_id)


class PrototypeNames:
    """Cache of the SHA-256 of prototypes that stay for prototype maps.

    A committed round does not change, so its names are read once and kept, 32 bytes each. The next collection need not
    read the updates of a hundred rounds again.
    """

    def __init__(self, store: Store, keep: Keep) -> None:
        self._store, self._keep = store, keep
        self._known: dict[str, dict[int, bytes]] = {}

    def of(self, run: Run) -> set[str]:
        """Return the SHA-256 of the prototypes of a run's rounds from `KeptRounds.prototypes_from` to the last committed."""
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
        """Return the names in each of these rounds, read a page at a time and without evaluation reports."""
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
    """Garbage collections of one aggregator, one after another; call it from one thread."""

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
        """Seconds until the next collection may start."""
        return max(0.0, self._rests_until - self._clock())

    def is_due(self) -> bool:
        """Whether a round has committed or a run has ended since the last collection; also true at first and hourly."""
        return self._seen != self._committed() or self._clock() >= self._rests_until + LONGEST_REST_S

    def collect(self, should_stop: Callable[[], bool] = lambda: False) -> int:
        """Remove the blobs that are no longer needed; return their bytes.

        Nothing is removed while a backup is being made; the next collection removes it.

        Args:
            should_stop: Called before every batch; the next collection removes the rest.

        Raises:
            StoreUnavailable: The database or the disk is unavailable; the next collection removes the rest.
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
        """Return the bytes of needed blobs and the names of all other files, including files without a row."""
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
                # The lock first: its holder may wait for a blob that is being removed.
                with self._ledger.lock:
                    claimed = self._blobs.holds.claim(batch)
                    with self._store.transaction() as transaction:
                        transaction.forget_blobs(claimed)
                return len(claimed), self._blobs.remove(claimed)
            finally:
                self._blobs.holds.release(claimed)

    def _expire(self) -> int:
        # Files have the system's time, also if the ledger has another clock.
        before = time.time() - DAY_S * self._keep.unused_days
        removed_bytes = self._blobs.uploads.expire(before)
        # A run that is being created may name such a model, and a backup may be copying it.
        with collecting(self._blobs.folder), self._ledger.lock:
            return removed_bytes + self._blobs.expire_initial(before)


def _batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + BATCH] for first in range(0, len(names), BATCH))
