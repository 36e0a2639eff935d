"""Training cells, several at a time, each by a worker: a process of its own that takes one cell after another.

A worker that is killed takes its cell with it and nothing else: another one is started for the rest. Ctrl-C and SIGTERM come
to this process alone; workers are told, and stop before the next batch. If this process dies they see it as well, because
what they would be told through is closed. What a cell has committed stays, so the next call goes on from there.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from fedplcc.comparison.plan import Cell
from shared.config.settings import limit_threads
from shared.errors import FailedPrecondition, FedplccError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""What ends this process, and is none of a worker's business."""
POLL_S = 0.2
"""How often this process looks whether it is to stop."""
STDOUT, STDERR = 1, 2
"""Descriptors."""
STOP = None
"""What a worker is sent to end its work and itself."""

# What a worker says: a kind and what belongs to it.
ROUND, NOTE, ENDED, FAILED, INTERRUPTED = "round", "note", "ended", "failed", "interrupted"


class Observer(Protocol):
    """Who is told how training gets on."""

    def begins(self, cell: Cell) -> None:
        """A worker has taken the cell."""

    def round(self, cell: Cell, number: int, mean: float | None) -> None:
        """A round has committed, with this mean accuracy over domains."""

    def note(self, cell: Cell, text: str) -> None:
        """Something happened that a person should know."""

    def ends(self, cell: Cell, failure: str | None) -> None:
        """The cell is trained, or could not be for this reason."""

    def stops(self) -> None:
        """Workers have been told to stop."""


@dataclass(slots=True)
class _Worker:
    process: Any
    connection: Connection
    threads: int
    cell: Cell | None = None


def train(
    cells: Sequence[Cell],
    observer: Observer,
    *,
    jobs: int,
    device: str,
    should_stop: Callable[[], bool],
) -> dict[str, str]:
    """Train cells until all have ended or `should_stop()` holds; returns why cells could not be trained, by their names.

    Args:
        cells: Which ones, in this order.
        observer: Is told how it gets on.
        jobs: How many at a time.
        device: On which their clients train.
        should_stop: Asked several times a second; cells that are being trained then end before their next batch.
    """
    waiting, failures = deque(cells), dict[str, str]()
    workers: list[_Worker] = []
    is_stopping = False
    try:
        while waiting or any(worker.cell is not None for worker in workers):
            if not is_stopping and should_stop():
                is_stopping = True
                waiting.clear()
                observer.stops()
                for worker in workers:
                    _send(worker, STOP)
            while waiting and sum(worker.cell is not None for worker in workers) < jobs:
                _hand_over(waiting.popleft(), workers, jobs, device, observer)
            busy = {worker.connection: worker for worker in workers if worker.cell is not None}
            for ready in wait(list(busy), timeout=POLL_S):
                worker = busy[ready]  # type: ignore[index]  # only connections were given
                _listen(worker, observer, failures, is_stopping=is_stopping)
            workers[:] = [worker for worker in workers if worker.cell is not None or worker.process.is_alive()]
    finally:
        for worker in workers:
            _end(worker)
    return failures


def _listen(worker: _Worker, observer: Observer, failures: dict[str, str], *, is_stopping: bool) -> None:
    """Pass on what a worker says of its cell, and note why the cell failed if it did."""
    cell = worker.cell
    assert cell is not None
    kind, content = _heard(worker)
    if kind == ROUND:
        observer.round(cell, *content)
    elif kind == NOTE:
        observer.note(cell, content)
    else:
        worker.cell = None
        has_died = kind == FAILED and content is None
        if kind == INTERRUPTED or (is_stopping and has_died):
            return  # the cell goes on with the next call
        if kind == FAILED:
            failures[cell.name] = _death_of(worker) if has_died else content
        observer.ends(cell, failures.get(cell.name))


def train_cell(cell: Cell, progress: Any, *, device: str, should_stop: Callable[[], bool]) -> None:
    """Train one cell in this process, or go on with it.

    Raises:
        Interrupted: `should_stop()` held.
        FedplccError: It cannot be trained.
    """
    from fedplcc.runs.artifacts import ending_of
    from fedplcc.runs.run_folder import claimed_folder
    from fedplcc.simulation import simulate_in_folder

    with claimed_folder(cell.folder, cell.federation) as folder:
        if folder.is_finished:
            return
        folder.prepare()
        record = simulate_in_folder(cell.federation, folder, progress, device=device, should_stop=should_stop)
        if record.status != "completed":
            raise FailedPrecondition(ending_of(record.manifest["run_id"], record.status, record.reason))
        folder.remove_state()


def _hand_over(cell: Cell, workers: list[_Worker], jobs: int, device: str, observer: Observer) -> None:
    """Give a cell to a worker that has nothing to do, or to a new one."""
    threads = cell.federation.config.training.threads
    idle = [worker for worker in workers if worker.cell is None]
    fitting = next((worker for worker in idle if worker.threads == threads), None)
    if fitting is None:
        # The numerical libraries look at the number of threads once, when they load: another number, another process.
        if idle and len(workers) >= jobs:
            workers.remove(idle[0])
            _end(idle[0])
        fitting = _started(threads, device)
        workers.append(fitting)
    fitting.cell = cell
    observer.begins(cell)
    _send(fitting, cell)


def _started(threads: int, device: str) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, threads, device), daemon=True)
    with _blocked_signals():
        process.start()
    theirs.close()  # so that the end of the worker is the end of what it says
    return _Worker(process, ours, threads)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Within the block, signals wait, and so they do in a process that is started: Ctrl-C in a terminal goes to all, and one
    that still loads would die of it.
    """
    resource_tracker.ensure_running()  # otherwise the first start does so, and lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(worker: _Worker) -> None:
    """End a worker: at once if it is at work."""
    if worker.cell is not None:
        worker.process.kill()
    else:
        _send(worker, STOP)
    worker.connection.close()
    worker.process.join()


def _send(worker: _Worker, what: Cell | None) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # it has died, which is noticed where it is listened to
        worker.connection.send(what)


def _heard(worker: _Worker) -> tuple[str, Any]:
    try:
        kind, content = worker.connection.recv()
    except (EOFError, OSError):  # the end, or one in the middle of a message
        worker.process.join()
        return FAILED, None
    return kind, content


def _death_of(worker: _Worker) -> str:
    code = worker.process.exitcode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = "; where memory is short train fewer cells at a time (--jobs)" if code == -signal.SIGKILL else ""
    return f"the process that trained it {how}{hint}; the same command goes on with it"


def _work(connection: Connection, threads: int, device: str) -> None:
    """A worker's life: cells come, what becomes of them goes."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # whoever started it decides, and says so
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.dup2(STDERR, STDOUT)  # what somebody's code prints must not land among results
    limit_threads(threads)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # nobody is there any more
        while (cell := connection.recv()) is not STOP:
            connection.send(_outcome_of(cell, connection, device))


def _outcome_of(cell: Cell, connection: Connection, device: str) -> tuple[str, str]:
    from aggregator.coordinator import event_log
    from fedplcc.comparison.training_display import CellProgress
    from fedplcc.interruption import Interrupted
    from shared.process.log import set_up

    set_up("error", silent=[event_log.NAME])
    progress = CellProgress(
        told_round=lambda number, mean: connection.send((ROUND, (number, mean))),
        told_note=lambda text: connection.send((NOTE, text)),
    )
    try:
        # While a cell is trained there is nothing to be sent but the word to stop; the end of the other side counts as one.
        train_cell(cell, progress, device=device, should_stop=connection.poll)
    except Interrupted:
        return INTERRUPTED, ""
    except FedplccError as error:
        return FAILED, error.detail
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        # A bug of one method must not cost a night of the others. Its traceback is not lost.
        # No process id: what is said of a cell stands in the report, which is the same every time.
        print(f"{cell.name}:", file=sys.stderr)
        traceback.print_exc(file=sys.stderr)
        return FAILED, f"{type(error).__name__}: {error} (its traceback is on stderr)"
    return ENDED, ""
