"""Aggregation of rounds that have all their updates, outside the ledger's lock.

If stored updates are damaged, the round collects them again from their clients. If a blob is damaged that no client can
send again, the run is paused until a person acts. After a bug the run waits for a corrected version and shows the reason.
If the disk or database fails, the run waits for it. In all these cases the other runs go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from fedplcc.aggregator.aggregating.aggregation_turns import AggregationTurns
from fedplcc.aggregator.computation.aggregation import aggregate
from fedplcc.aggregator.computation.parts.prototypes import earlier_updates
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.aggregator.computation.weighed_domains import weighed_domains
from fedplcc.aggregator.histories.layouts import Layouts
from fedplcc.aggregator.ledger.damage import damaged_blob, damaged_updates
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.ledger.parking import why_parked
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.rounds.far_updates import far_among
from fedplcc.aggregator.rounds.machine import round_parts, run_facts, run_moves
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.errors import BlobNotFound, MalformedUpdate, PayloadCorrupt, RowCorrupt, StoreUnavailable
from fedplcc.shared.process.log import bind, get_logger
from fedplcc.shared.reasons import AggregationFailed, sentence_of
from fedplcc.shared.types import ENCODED, BlobRef, Event, RoundPhase, Run, RunStatus

log = get_logger(__name__)


class RoundWork:
    """Aggregation of the rounds that wait for it; any thread may take a turn."""

    def __init__(
        self,
        ledger: Ledger,
        layouts: Layouts,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        block_elements: int,
        clock: Callable[[], float],
        expect: Callable[[Iterable[BlobRef | None]], None],
    ) -> None:
        self._ledger, self._layouts, self._store, self._blobs = ledger, layouts, store, blobs
        self._metrics, self._expect = metrics, expect
        self._block_elements = block_elements
        self._turns = AggregationTurns(clock)

    def take(self, *, only_short: bool = False, retry_s: float = 0.0) -> Callable[[], None] | None:
        """Take the next round that waits, and return the work on it, for any one thread to call; None if there is none.

        Args:
            only_short: Whether to leave rounds that may take long.
            retry_s: Seconds for which the run is left alone if the work fails.
        """
        with self._ledger.lock:
            open_runs = self._ledger.open_runs()
            waiting = [
                run
                for run in open_runs
                if run.current_round is not None
                and run.current_round.phase is RoundPhase.AGGREGATING
                and _may_aggregate(run)
            ]
            self._turns.forget(but_of={run.run_id for run in open_runs})
            run = self._turns.begin(waiting, only_short=only_short)
        return None if run is None else partial(self._do, run, retry_s)

    def _do(self, run: Run, retry_s: float) -> None:
        """Aggregate a run's round."""
        rest_s = retry_s
        try:
            with bind(run_id=run.run_id, round=run.round_number), self._blobs.holds.holding():
                self._work_on(run)
            rest_s = 0.0
        finally:
            self._turns.end(run.run_id, rest_s=rest_s)

    def _work_on(self, run: Run) -> None:
        try:
            with self._ledger.write_trouble.writing("results"):
                extra: list[Event] = []
                outcome = self._aggregated(run, extra)
        except StoreUnavailable:
            raise
        except Exception:
            self._record_crash(run)
            raise
        with self._ledger.lock:
            before = self._ledger.find_open(run.run_id)
            if before is not None and _may_aggregate(before):
                self._ledger.step(before, outcome(before), extra=extra)
            # Else the run was stopped or parked meanwhile, and the result is discarded.

    def _aggregated(self, run: Run, extra: list[Event]) -> Callable[[Run], Run]:
        """Compute a round's result outside the lock; return the next step, which deals with damage if there is some.

        Args:
            extra: Takes events of clients whose prototypes or groups are far larger than those of the others.
        """
        assert run.current_round is not None
        number = run.current_round.number
        try:
            earlier = earlier_updates(run, self._store)
            watch = self._metrics.rounds.aggregation(run.run_id, now=self._ledger.now)
            of = RoundInputs(
                run=run,
                table=self._layouts.table(run),
                blobs=self._blobs,
                block_elements=self._block_elements,
                earlier=earlier,
                observer=watch,
                int_lists=self._layouts.int_lists(run),
                domains=weighed_domains(run, self._store),
            )
            made = aggregate(of)
        except (PayloadCorrupt, BlobNotFound, MalformedUpdate):
            # A stored blob is missing, or differs from the one that was checked.
            log.error("aggregation_failed", exc_info=True)
            damaged = damaged_updates(run, self._blobs)
            if damaged:
                for client_id in damaged:
                    self._blobs.uploads.forget(client_id)  # may be other names of the damaged files
                return lambda run: round_parts.ask_again(run, number, damaged, now=self._ledger.now())
            try:
                found = damaged_blob(run, earlier_updates(run, self._store), self._blobs)
            except RowCorrupt as damage:
                reason = why_parked(run, damage)
                return lambda run: run_moves.park(run, reason)
            if found is None:
                raise
            return partial(run_moves.park, reason=found)
        self._expect((made.server_state.get(ENCODED, made.model), made.start, made.prototypes))
        far = [each for what, norms in made.norms.items() for each in far_among(norms, number, what)]
        extra += [each.event(run.run_id, self._ledger.now()) for each in far]
        return lambda run: round_parts.aggregated(
            run,
            number,
            model=made.model,
            prototypes=made.prototypes,
            prototype_counts=made.prototype_counts,
            start=made.start,
            server_state=made.server_state,
            now=self._ledger.now(),
        )

    def _record_crash(self, run: Run) -> None:
        """Record, once a round, that a bug stopped the aggregation; the aggregator tries again, also after an upgrade."""
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
            if before is not None and before.reason != reason:
                self._ledger.step(before, replace(before, reason=reason), extra=[event])


def _may_aggregate(run: Run) -> bool:
    return run.status in (RunStatus.RUNNING, RunStatus.PAUSED) and not run_facts.is_parked(run)
