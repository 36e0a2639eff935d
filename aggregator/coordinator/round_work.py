"""Aggregation of rounds that have all their updates, one at a time, outside the ledger's lock.

If stored updates are damaged, the round collects them again from their clients. If a blob is damaged that no client can
send again, the run is paused until a person acts. After a bug the run waits for a corrected version and shows the reason.
If the disk or database fails, the run waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aggregator.computation.aggregation import aggregate, earlier_updates
from aggregator.coordinator.damage import damaged_blob, damaged_updates
from aggregator.coordinator.layouts import Layouts
from aggregator.coordinator.ledger import Ledger
from aggregator.metrics import AggregatorMetrics
from aggregator.rounds import machine
from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore
from shared.errors import BlobNotFound, MalformedUpdate, PayloadCorrupt, StoreUnavailable
from shared.process.log import bind, get_logger
from shared.reasons import AggregationFailed, sentence_of
from shared.types import Event, RoundPhase, Run, RunStatus

log = get_logger(__name__)


class RoundWork:
    """Aggregation of the rounds that wait for it."""

    def __init__(
        self,
        ledger: Ledger,
        layouts: Layouts,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        block_elements: int,
    ) -> None:
        self._ledger, self._layouts, self._store, self._blobs = ledger, layouts, store, blobs
        self._metrics = metrics
        self._block_elements = block_elements
        self._attempts: dict[str, int] = {}

    def do(self) -> bool:
        """Aggregate one round if one waits for it; return whether there was one. Call it from one thread at a time.

        Raises:
            StoreUnavailable: The disk or the database is unavailable; the round still waits.
        """
        with self._blobs.holds.holding():
            return self._aggregate_one()

    def _aggregate_one(self) -> bool:
        with self._ledger.lock:
            waiting = [
                run
                for run in self._ledger.open_runs()
                if not machine.is_parked(run)
                and run.current_round is not None
                and run.current_round.phase is RoundPhase.AGGREGATING
                and run.status in (RunStatus.RUNNING, RunStatus.PAUSED)
            ]
        if not waiting:
            return False
        # The run with the fewest attempts: a run whose aggregation crashes must not delay the others.
        run = min(waiting, key=lambda run: self._attempts.get(run.run_id, 0))
        self._attempts = {run.run_id: self._attempts.get(run.run_id, 0) for run in waiting}
        self._attempts[run.run_id] += 1
        with bind(run_id=run.run_id, round=run.round_number):
            self._work_on(run)
        return True

    def _work_on(self, run: Run) -> None:
        try:
            with self._ledger.write_trouble.writing("results"):
                outcome = self._aggregated(run)
        except StoreUnavailable:
            raise
        except Exception:
            self._record_crash(run)
            raise
        del self._attempts[run.run_id]
        with self._ledger.lock:
            before = self._ledger.find_open(run.run_id)
            if before is not None and before.status in (RunStatus.RUNNING, RunStatus.PAUSED):
                self._ledger.step(before, outcome(before))
            # Else the run was stopped meanwhile, and the result is discarded.

    def _aggregated(self, run: Run) -> Callable[[Run], Run]:
        """Compute a round's result outside the lock; return the next step, which deals with damage if there is some."""
        assert run.current_round is not None
        number = run.current_round.number
        try:
            earlier = earlier_updates(run, self._store)
            watch = self._metrics.rounds.aggregation(run.run_id, now=self._ledger.now)
            made = aggregate(run, self._layouts.table(run), self._blobs, self._block_elements, earlier, watch)
        except (PayloadCorrupt, BlobNotFound, MalformedUpdate):
            # A stored blob is missing, or differs from the one that was checked.
            log.error("aggregation_failed", exc_info=True)
            damaged = damaged_updates(run, self._blobs)
            if damaged:
                for client_id in damaged:
                    self._blobs.uploads.forget(client_id)  # may be other names of the damaged files
                return lambda run: machine.ask_again(run, number, damaged, now=self._ledger.now())
            reason = damaged_blob(run, earlier_updates(run, self._store), self._blobs)
            if reason is None:
                raise
            found = reason
            return lambda run: machine.park(run, found)
        return lambda run: machine.aggregated(
            run,
            number,
            model=made.model,
            prototypes=made.prototypes,
            prototype_counts=made.prototype_counts,
            now=self._ledger.now(),
        )

    def _record_crash(self, run: Run) -> None:
        """Record, once a round, that a bug stopped the aggregation; the aggregator tries again, also after an upgrade."""
        if self._attempts[run.run_id] > 1:
            return
        reason = AggregationFailed(
            round_number=run.round_number, detail="internal error; the aggregator's log says more"
        )
        event = Event(
            type="aggregation_failed",
            run_id=run.run_id,
            round=run.round_number,
            data={"reason": "INTERNAL", "detail": sentence_of(reason)},
            time=self._ledger.now(),
        )
        with self._ledger.lock:
            before = self._ledger.find_open(run.run_id)
            if before is not None:
                self._ledger.step(before, replace(before, reason=reason), extra=[event])
