"""The engine of clients beside each other: workers that each do one client's work at a time, and a thread here for each.

A worker's thread gives it one order after another, and answers what it asks of the aggregator meanwhile, as gRPC's threads
do. The thread that drives the simulation waits for all orders of a pass to be dealt with; observers are told from there.

A worker holds nothing that is not on the disk as well: ending it at any moment loses only unfinished work. So all of them
are killed where the simulation is to stop, and the order of one that ends by itself, for whatever reason, is given to a new
one, once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedplcc.simulation.engine import Observers, Site, Work, naming
from fedplcc.simulation.in_process_aggregator import InProcessCoordinator
from fedplcc.simulation.link import Link, LinkLost
from fedplcc.simulation.messages import Answer, Ask, Crashed, Failed, Forget, Perform, Read, Told
from fedplcc.simulation.placement import Busy, Placement
from shared.errors import Code, FedplccError, StoreUnavailable
from shared.types import BlobRef, Client, RunSpec
from trainer.cancellation import ShouldStop, check
from trainer.task.client_state import ClientStates

POLL_S = 0.05
"""How often it is asked whether to stop, where nothing else happens."""
ATTEMPTS = 2
"""How many workers may end by themselves over one order."""
READING = "reading"
"""Kind of the work of reading a client's data; the kinds of tasks are the others."""
OF_STATES = frozenset({"manifest", "stage", "finished", "promote", "drop", "settle", "forget", "state"})
"""Questions to what a client keeps, where its worker cannot reach that folder."""


class WorkerEnded(FedplccError):
    """A worker ended although nobody asked it to, and so did the one in its place."""

    code = Code.INTERNAL
    reason = "WORKER_ENDED"


class HiredWorker(Link, Protocol):
    """A worker, as its crew sees it. `end` may be called from any thread, more than once; the others from one."""

    def blob(self, sha256: str, path: Any) -> Any:
        """What the worker needs to get at a blob's bytes."""

    def end(self) -> None:
        """Kill it, if it still lives."""

    def why_ended(self) -> str:
        """How it ended, to go behind "its worker"."""


@dataclass(slots=True, eq=False)
class _Slot:
    """One place for a worker, and what is with it."""

    number: int
    worker: HiredWorker | None = None
    busy: tuple[str, str, float] | None = None
    """Client, kind of work, and when it began."""
    foreign: set[str] = field(default_factory=set)
    """Clients that it may still hold and that live elsewhere now."""


@dataclass(frozen=True, slots=True, eq=False)
class _Order:
    """Something for a worker to do, and who answers what it asks."""

    site: Site
    kind: str
    message: Read | Perform
    coordinator: InProcessCoordinator | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Ended:
    """An order that is dealt with."""

    client_id: str
    value: Any = None
    error: BaseException | None = None


class Crew:
    """Workers, each with the clients that live with it."""

    def __init__(
        self,
        sites: Sequence[Site],
        observers: Observers,
        num_workers: int,
        hire: Callable[[], HiredWorker],
        *,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; workers are hired when there is something to do.

        Args:
            sites: The clients.
            observers: Who is told what happens.
            num_workers: How many clients are worked for at a time.
            hire: Makes a worker; called in the thread that will talk to it.
            on_close: Called when all workers have ended.
        """
        self._sites, self._observers, self._hire = {site.client_id: site for site in sites}, observers, hire
        self._on_close = on_close
        self._placement = Placement.in_turn(self._sites, num_workers)
        self._states = {site.client_id: ClientStates(site.states) for site in sites}
        self._changed = threading.Condition()
        self._waiting: dict[str, _Order] = {}
        self._is_closing = False
        self._notices: queue.SimpleQueue[_Ended | Callable[[], None]] = queue.SimpleQueue()
        self._slots = [_Slot(number) for number in range(num_workers)]
        self._threads = [threading.Thread(target=self._serve, args=[slot], daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def read(self, spec: RunSpec, should_stop: ShouldStop) -> Mapping[str, Client]:
        """See `Engine`."""
        orders = [_Order(site, READING, Read(site, spec)) for site in self._sites.values()]
        return self._carry_out(orders, should_stop)

    def perform(self, work: Sequence[Work], should_stop: ShouldStop, on_done: Callable[[], None]) -> None:
        """See `Engine`."""
        orders = []
        for each in work:
            site = self._sites[each.client_id]
            orders.append(_Order(site, each.task.kind.value, Perform(site, each.task), each.coordinator))
        self._carry_out(orders, should_stop, on_done)

    def close(self) -> None:
        """See `Engine`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            workers = [slot.worker for slot in self._slots if slot.worker is not None]
        for worker in workers:
            worker.end()
        for thread in self._threads:
            thread.join()
        self._on_close()

    # The thread that drives the simulation

    def _carry_out(
        self, orders: Sequence[_Order], should_stop: ShouldStop, on_done: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Have orders dealt with; returns what each came to, by client."""
        results: dict[str, Any] = {}
        with self._changed:
            self._waiting = {order.site.client_id: order for order in orders}
            self._changed.notify_all()
        while len(results) < len(orders):
            check(should_stop)
            try:
                notice = self._notices.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if not isinstance(notice, _Ended):
                notice()
                continue
            if notice.error is not None:
                raise notice.error
            results[notice.client_id] = notice.value
            on_done()
        return results

    # A worker's thread

    def _serve(self, slot: _Slot) -> None:
        """Give a worker orders until the crew is dismissed."""
        while (order := self._next_order(slot)) is not None:
            client_id, begin = order.site.client_id, time.monotonic()
            try:
                with naming(client_id):
                    ended = _Ended(client_id, self._deal_with(slot, order))
            except BaseException as error:  # told to whoever waits for it
                ended = _Ended(client_id, error=error)
            self._note_done(slot, order, time.monotonic() - begin)
            self._notices.put(ended)
        if slot.worker is not None:
            slot.worker.end()

    def _next_order(self, slot: _Slot) -> _Order | None:
        """Wait for an order that this worker should deal with; None when there are no more."""
        with self._changed:
            while not self._is_closing:
                now = time.monotonic()
                busy = {
                    other.number: Busy(other.busy[0], other.busy[1], now - other.busy[2])
                    for other in self._slots
                    if other.busy is not None
                }
                waiting = {client_id: order.kind for client_id, order in self._waiting.items()}
                client_id = self._placement.choose(slot.number, waiting, busy)
                if client_id is not None:
                    order = self._waiting.pop(client_id)
                    home = self._placement.homes[client_id]
                    if home != slot.number:
                        self._slots[home].foreign.add(client_id)
                        self._placement.homes[client_id] = slot.number
                    slot.busy = (client_id, order.kind, now)
                    return order
                self._changed.wait()
        return None

    def _note_done(self, slot: _Slot, order: _Order, seconds: float) -> None:
        with self._changed:
            slot.busy = None
            if order.kind == READING:
                self._placement.reading_s[order.site.client_id] = seconds
            else:
                self._placement.seconds[order.site.client_id, order.kind] = seconds

    def _deal_with(self, slot: _Slot, order: _Order) -> Any:
        """Have an order dealt with, by a second worker where the first one ends; returns what it came to."""
        for attempt in range(1, ATTEMPTS + 1):
            worker = self._worker(slot)
            try:
                return self._converse(worker, slot, order)
            except LinkLost:
                with self._changed:
                    if self._is_closing:
                        raise
                    slot.worker, slot.foreign = None, set()
                how = worker.why_ended()
                worker.end()
            if attempt == ATTEMPTS:
                raise WorkerEnded(
                    f"its worker {how}, and so did another one before it; where memory is short, give fewer --jobs: the "
                    "same command goes on from what was committed"
                )
            self._note(f"client {order.site.client_id}: its worker {how}; another one takes its place")
        raise AssertionError("it returns or raises")

    def _worker(self, slot: _Slot) -> HiredWorker:
        """The worker of a slot."""
        with self._changed:
            if self._is_closing:
                raise LinkLost
            if slot.worker is None:
                slot.worker = self._hire()
            return slot.worker

    def _converse(self, worker: HiredWorker, slot: _Slot, order: _Order) -> Any:
        """Give an order, and answer questions until it is dealt with; returns what it came to."""
        client_id = order.site.client_id
        with self._changed:
            foreign, slot.foreign = slot.foreign, set()
        for name in foreign:
            worker.send(Forget(name))
        if order.kind == READING:
            self._notices.put(lambda: self._observers.on_begin(f"{client_id}: reading its data"))
        worker.send(order.message)
        while True:
            message = worker.receive()
            if isinstance(message, Ask):
                worker.send(self._reply(worker, order, message))
            elif isinstance(message, Told):
                self._pass_on(client_id, message)
            elif isinstance(message, Answer):
                return message.value
            elif isinstance(message, Failed | Crashed):
                raise message.error()
            else:
                raise AssertionError(f"a worker says {message!r}")

    def _reply(self, worker: HiredWorker, order: _Order, question: Ask) -> Answer | Failed:
        try:
            return Answer(self._answer(worker, order, question))
        except FedplccError as error:
            return Failed.of(error)

    def _answer(self, worker: HiredWorker, order: _Order, question: Ask) -> Any:
        coordinator, arguments = order.coordinator, question.arguments
        if question.method in OF_STATES:
            return _of_states(self._states[order.site.client_id], question)
        assert coordinator is not None, "only tasks ask the aggregator"
        if question.method == "fetch":
            (blob,) = arguments
            return worker.blob(blob.sha256, coordinator.locate(blob))
        if question.method == "store":
            run_id, number, blob, is_prototypes = arguments
            data = _staged(order.site, blob)
            return coordinator.store(run_id, number, blob, data, is_prototypes=is_prototypes)
        assert question.method in ("announce", "commit_update", "report_evaluation")
        return getattr(coordinator, question.method)(*arguments)

    def _note(self, text: str) -> None:
        self._notices.put(lambda: self._observers.on_note(text))

    def _pass_on(self, client_id: str, told: Told) -> None:
        observers, problem = self._observers, told.problem
        if problem is not None:
            self._notices.put(lambda: observers.on_problem(client_id, problem))
        else:
            self._notices.put(lambda: observers.on_activity(client_id, told.activity, told.progress))


def _of_states(states: ClientStates, question: Ask) -> Any:
    """What a client keeps, or what becomes of it."""
    if question.method == "manifest":
        return states.manifest
    if question.method == "settle":
        membership, run_id, identity = question.arguments
        return states.settle(membership, run_id=run_id, identity=identity)
    return getattr(states, question.method)(*question.arguments)


def _staged(site: Site, blob: BlobRef) -> bytes:
    """The bytes of a finished update's blob, where its client has staged it.

    Raises:
        StoreUnavailable: They cannot be read.
    """
    try:
        return (site.states / blob.sha256).read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreUnavailable(
            f"its finished update cannot be read: {why}; see that {site.states} can be read"
        ) from error
