"""Worker pool: spawned workers that each carry out one order at a time, and a thread of this process for each.

A worker's thread gives it one order after another and answers its questions meanwhile. The thread that calls
`WorkerPool.carry_out` waits for the outcomes; everything that a worker reports is passed on from that thread.

A worker holds nothing that is not on the disk as well: killing it loses only unfinished work. So closing the pool kills all
workers at once, and the order of a worker that ends by itself is given to a new worker, once.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fedplcc.shared.codes import Code
from fedplcc.shared.errors import FedplccError
from fedplcc.simulation.messages import Answer, Ask, Crashed, Failed, Forget, Link, LinkLost, Report
from fedplcc.simulation.placement import Busy, Placement
from fedplcc.trainer.cancellation import ShouldStop, check

POLL_S = 0.05
"""Interval at which `should_stop` is asked while nothing else happens."""
ATTEMPTS = 2
"""Most workers that may end by themselves over one order."""


class WorkerEnded(FedplccError):
    """A worker ended although nobody asked it to, and so did its replacement."""

    code = Code.INTERNAL
    reason = "WORKER_ENDED"


class PoolWorker(Link, Protocol):
    """A worker as its pool sees it. `end` may be called from any thread, more than once; the others from one."""

    def blob(self, sha256: str, path: Path) -> Any:
        """Return what the worker needs to read a blob: a path, or a reference to a shared store."""

    def end(self) -> None:
        """Kill it, if it still lives."""

    def why_ended(self) -> str:
        """Return how it ended, as the end of a sentence that begins with "its worker"."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Order:
    """Work for one worker.

    Attributes:
        name: The client or cell that it is for; unique among the orders of one call.
        message: What the worker is sent.
        kind: The kind of work; a placement estimates durations by it.
        threads: Processor threads that the worker needs.
        on_begin: Called when a worker has taken the order.
        on_note: Called with a sentence for people when a worker was replaced.
        answer: Answers the worker's questions, in the worker's thread.
    """

    name: str
    message: object
    kind: str = ""
    threads: int = 1
    on_begin: Callable[[], None] = lambda: None
    on_report: Callable[[Any], None] = lambda content: None
    on_note: Callable[[str], None] = lambda text: None
    answer: Callable[[PoolWorker, Ask], Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """An order's result, or the error that ended it."""

    order: Order
    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Slot:
    """A place for one worker; its thread alone starts and replaces the worker."""

    number: int
    worker: PoolWorker | None = None
    threads: int = 0
    busy: tuple[Order, float] | None = None
    """The present order, and when it began."""
    foreign: set[str] = field(default_factory=set)
    """Clients that the worker may still hold although another one has taken them over."""


class WorkerPool:
    """Workers that carry out orders side by side."""

    def __init__(
        self, num_workers: int, start: Callable[[int], PoolWorker], *, placement: Placement | None = None
    ) -> None:
        """Prepare the pool; a worker is started when there is work for it.

        Args:
            num_workers: How many orders are carried out at a time, at most.
            start: Starts a worker with so many processor threads; called in the thread that will talk to it.
            placement: Chooses the worker of each order; without one, any idle worker takes the first order.
        """
        self._start, self._placement = start, placement
        self._changed = threading.Condition()
        self._waiting: dict[str, Order] = {}
        self._is_closing = False
        self._notices: queue.SimpleQueue[Outcome | Callable[[], None]] = queue.SimpleQueue()
        self._slots = [_Slot(number) for number in range(num_workers)]
        self._threads = [threading.Thread(target=self._serve, args=[slot], daemon=True) for slot in self._slots]
        for thread in self._threads:
            thread.start()

    def carry_out(self, orders: Sequence[Order], should_stop: ShouldStop) -> Iterator[Outcome]:
        """Have all orders carried out; yields their outcomes as they come.

        Raises:
            Cancelled: `should_stop()` held; the pool can only be closed.
        """
        with self._changed:
            self._waiting = {order.name: order for order in orders}
            self._changed.notify_all()
        num_left = len(orders)
        while num_left:
            check(should_stop)
            try:
                notice = self._notices.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if isinstance(notice, Outcome):
                num_left -= 1
                yield notice
            else:
                notice()

    def close(self) -> None:
        """Kill all workers, and wait for their threads."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            workers = [slot.worker for slot in self._slots if slot.worker is not None]
        for worker in workers:
            worker.end()
        for thread in self._threads:
            thread.join()

    # A worker's thread

    def _serve(self, slot: _Slot) -> None:
        """Give a worker orders until the pool is closed."""
        while (order := self._next_order(slot)) is not None:
            begin = time.monotonic()
            try:
                outcome = Outcome(order, self._carry_out(slot, order))
            except BaseException as error:  # the thread in carry_out() learns of it
                outcome = Outcome(order, error=error)
            with self._changed:
                slot.busy = None
                if self._placement is not None:
                    self._placement.note(order.name, order.kind, time.monotonic() - begin)
            self._notices.put(outcome)
        if slot.worker is not None:
            slot.worker.end()

    def _next_order(self, slot: _Slot) -> Order | None:
        """Wait for an order that this worker should carry out; None when the pool is closed."""
        with self._changed:
            while not self._is_closing:
                name = self._choose(slot)
                if name is not None:
                    order = self._waiting.pop(name)
                    slot.busy = (order, time.monotonic())
                    return order
                self._changed.wait()
        return None

    def _choose(self, slot: _Slot) -> str | None:
        """Return the name of the order for an idle worker, if any."""
        if self._placement is None:
            return next(iter(self._waiting), None)
        now = time.monotonic()
        busy = {
            other.number: Busy(other.busy[0].name, other.busy[0].kind, now - other.busy[1])
            for other in self._slots
            if other.busy is not None
        }
        name = self._placement.choose(slot.number, {key: order.kind for key, order in self._waiting.items()}, busy)
        if name is not None and (home := self._placement.homes[name]) != slot.number:
            self._slots[home].foreign.add(name)
            self._placement.homes[name] = slot.number
        return name

    def _carry_out(self, slot: _Slot, order: Order) -> Any:
        """Return an order's result; a second worker takes it over where the first one ends."""
        self._notices.put(order.on_begin)
        for attempt in range(1, ATTEMPTS + 1):
            worker = self._worker(slot, order.threads)
            try:
                return self._converse(worker, slot, order)
            except LinkLost:
                with self._changed:
                    if self._is_closing:
                        raise
                    slot.worker, slot.foreign = None, set()
                how = worker.why_ended()
                worker.end()
            if attempt < ATTEMPTS:
                self._notices.put(partial(order.on_note, f"its worker {how}; another one takes its place"))
        raise WorkerEnded(
            f"its worker {how}, and another one ended before it; where memory is short, give fewer --jobs: the same "
            "command goes on from what was committed"
        )

    def _worker(self, slot: _Slot, threads: int) -> PoolWorker:
        """Return the slot's worker; a new one for another number of threads, which libraries read only when they load."""
        with self._changed:
            if self._is_closing:
                raise LinkLost
            if slot.worker is not None and slot.threads != threads:
                slot.worker.end()
                slot.worker = None
            if slot.worker is None:
                slot.worker, slot.threads = self._start(threads), threads
            return slot.worker

    def _converse(self, worker: PoolWorker, slot: _Slot, order: Order) -> Any:
        """Send an order, and answer questions until its result comes."""
        with self._changed:
            foreign, slot.foreign = slot.foreign, set()
        for name in foreign:
            worker.send(Forget(name))
        worker.send(order.message)
        while True:
            message = worker.receive()
            if isinstance(message, Ask):
                worker.send(_reply(worker, order, message))
            elif isinstance(message, Report):
                self._notices.put(partial(order.on_report, message.content))
            elif isinstance(message, Answer):
                return message.value
            elif isinstance(message, Failed | Crashed):
                raise message.error()
            else:
                raise AssertionError(f"unknown message of a worker: {message!r}")


def _reply(worker: PoolWorker, order: Order, question: Ask) -> Answer | Failed:
    assert order.answer is not None, f"a worker of {order.name} asks {question.method}"
    try:
        return Answer(order.answer(worker, question))
    except FedplccError as error:
        return Failed.of(error)
