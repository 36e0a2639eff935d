"""The engine of several clients at a time: a worker pool, and the aggregator's and the clients' answers to its workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.types import BlobRef, Client, ClientProblem, RunSpec
from fedplcc.simulation.engine import Observers, Site, Work, naming
from fedplcc.simulation.in_process_aggregator import InProcessAggregator
from fedplcc.simulation.messages import Activity, Ask, Perform, Read
from fedplcc.simulation.placement import READING, Placement
from fedplcc.simulation.worker_pool import Order, PoolWorker, WorkerPool
from fedplcc.trainer.cancellation import ShouldStop
from fedplcc.trainer.task.client_state import ClientStates

STATE_METHODS = frozenset(name for name in vars(ClientStates) if not name.startswith("_"))
"""Questions about a client's kept state, from a worker that cannot reach its folder."""
AGGREGATOR_METHODS = frozenset({"announce", "commit_update", "report_evaluation"})
"""Questions that the aggregator answers as they are."""


class ParallelClients:
    """Clients that are trained side by side; each has a worker that holds its data."""

    def __init__(
        self,
        sites: Sequence[Site],
        observers: Observers,
        num_workers: int,
        start: Callable[[], PoolWorker],
        *,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the pool.

        Args:
            num_workers: How many clients work at a time.
            start: Starts a worker; called in the thread that will talk to it.
        """
        self._sites, self._observers, self._on_close = {site.client_id: site for site in sites}, observers, on_close
        self._states = {site.client_id: ClientStates(site.states) for site in sites}
        placement = Placement.in_turn(self._sites, num_workers)
        self._pool = WorkerPool(num_workers, lambda _threads: start(), placement=placement)

    def read(self, spec: RunSpec, should_stop: ShouldStop) -> Mapping[str, Client]:
        """See `Engine`."""
        orders = [self._order(site, READING, Read(site, spec)) for site in self._sites.values()]
        return self._carry_out(orders, should_stop)

    def perform(self, work: Sequence[Work], should_stop: ShouldStop, on_done: Callable[[], None]) -> None:
        """See `Engine`."""
        orders = []
        for each in work:
            site = self._sites[each.client_id]
            orders.append(self._order(site, each.task.kind.value, Perform(site, each.task), each.aggregator))
        self._carry_out(orders, should_stop, on_done)

    def close(self) -> None:
        """See `Engine`."""
        self._pool.close()
        self._on_close()

    def _carry_out(
        self, orders: Sequence[Order], should_stop: ShouldStop, on_done: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Return the result of each order by client; the first error ends it."""
        results: dict[str, Any] = {}
        for outcome in self._pool.carry_out(orders, should_stop):
            if outcome.error is not None:
                with naming(outcome.order.name):
                    raise outcome.error
            results[outcome.order.name] = outcome.value
            on_done()
        return results

    def _order(
        self, site: Site, kind: str, message: Read | Perform, aggregator: InProcessAggregator | None = None
    ) -> Order:
        client_id, observers = site.client_id, self._observers

        def report(content: Activity | ClientProblem) -> None:
            if isinstance(content, ClientProblem):
                observers.on_problem(client_id, content)
            else:
                observers.on_activity(client_id, content.name, content.progress)

        def begin() -> None:
            if kind == READING:
                observers.on_begin(f"{client_id}: reading its data")

        return Order(
            name=client_id,
            message=message,
            kind=kind,
            on_begin=begin,
            on_report=report,
            on_note=lambda text: observers.on_note(f"client {client_id}: {text}"),
            answer=partial(_answer, site, self._states[client_id], aggregator),
        )


def _answer(
    site: Site, states: ClientStates, aggregator: InProcessAggregator | None, worker: PoolWorker, question: Ask
) -> Any:
    """Answer a worker's question about the aggregator or about the state that a client keeps."""
    method, arguments = question.method, question.arguments
    if method in STATE_METHODS:
        asked = getattr(states, method)
        return asked(*arguments, **question.named) if callable(asked) else asked
    assert aggregator is not None, "only tasks ask the aggregator"
    if method == "fetch":
        (blob,) = arguments
        return worker.blob(blob.sha256, aggregator.locate(blob))
    if method == "store":
        run_id, number, blob, is_prototypes = arguments
        return aggregator.store(run_id, number, blob, _staged(site, blob), is_prototypes=is_prototypes)
    assert method in AGGREGATOR_METHODS, method
    return getattr(aggregator, method)(*arguments, **question.named)


def _staged(site: Site, blob: BlobRef) -> bytes:
    """Return the bytes of a finished update's blob from its client's folder."""
    try:
        return (site.states / blob.sha256).read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreUnavailable(
            f"its finished update cannot be read: {why}; see that {site.states} can be read"
        ) from error
