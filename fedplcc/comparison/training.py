"""Training of cells, several at a time, each by a worker of a pool, with progress for a person.

On Ctrl-C the pool kills its workers; the next call goes on from the last committed round of each cell.
"""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fedplcc.aggregator.ledger import event_log
from fedplcc.comparison.plan import Cell
from fedplcc.runs.artifacts import ending_of, read_record
from fedplcc.runs.readiness import Readiness
from fedplcc.runs.run_folder import claimed_folder
from fedplcc.shared.documents import Event
from fedplcc.shared.errors import FailedPrecondition, FedplccError
from fedplcc.shared.methods import add_methods
from fedplcc.shared.process import log
from fedplcc.simulation import simulate_in_folder
from fedplcc.simulation.messages import CommittedRound, Link, LinkLost, Report, outcome
from fedplcc.simulation.watch import RunWatch
from fedplcc.simulation.worker_pool import Order, WorkerPool
from fedplcc.simulation.worker_process import PipeLink, WorkerProcess
from fedplcc.terminal.printable import printable
from fedplcc.terminal.progress import RunProgress, shows_bars
from fedplcc.tracking.destinations import make_trackers
from fedplcc.tracking.observation import Observation
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.data.specs import opened_once

WORKER_MODULE = "fedplcc.comparison.training"


def train(
    cells: Sequence[Cell],
    shown: CellsShown,
    *,
    jobs: int,
    device: str,
    should_stop: Callable[[], bool],
    log: Sequence[str] = (),
) -> dict[str, str]:
    """Train cells until all have ended or `should_stop()` holds; returns the reasons of failed cells by their names.

    Args:
        jobs: How many cells are trained at a time.
        should_stop: Asked several times a second; the cells in training are then killed.
        log: Trackers, as texts. They are told of cells that are whole already, too, but of none that hides its test numbers.
    """
    by_name, failures = {cell.name: cell for cell in cells}, dict[str, str]()
    orders = [_order(cell, shown, device, tuple(log)) for cell in cells]
    pool = WorkerPool(min(jobs, len(cells)), partial(WorkerProcess, WORKER_MODULE))
    with suppress(Cancelled), closing(pool):
        for ended in pool.carry_out(orders, should_stop):
            name = ended.order.name
            if ended.error is not None:
                failures[name] = _reason(name, ended.error)
            shown.ends(by_name[name], failures.get(name))
    return failures


def problems_of_cells(cells: Iterable[Cell]) -> dict[str, str]:
    """Return, by its name, why a cell cannot begin; see runs/readiness.py for what is looked at, without an image.

    It is asked before a night of training, and such cells do not begin. Data that disappear later fail the cells that begin
    then.
    """
    problems: dict[str, str] = {}
    readiness = Readiness()
    with opened_once():
        for cell in cells:
            try:
                readiness.check(cell.federation)
            except FedplccError as error:
                problems[cell.name] = error.detail
    return problems


def sentences_of(cells: Iterable[Cell], problems: Mapping[str, str]) -> list[str]:
    """Return each of `problems_of_cells` once: of its data set where all these cells there have it, else of each row."""
    by_dataset: dict[str, list[Cell]] = {}
    for cell in cells:
        by_dataset.setdefault(cell.dataset, []).append(cell)
    found: dict[str, None] = {}
    for dataset, of_dataset in by_dataset.items():
        reasons = {problems.get(cell.name) for cell in of_dataset}
        for cell in of_dataset:
            if cell.name in problems:
                name = dataset if len(reasons) == 1 else f"{dataset}/{cell.row}"
                found[f"{name} cannot be trained: {problems[cell.name]}"] = None
    return [*found]


class CellsShown(AbstractContextManager["CellsShown"]):
    """Shows the progress of cells: a line when one begins or ends, and on a terminal a bar for each in training."""

    def __init__(self, console: Console, *, total: int) -> None:
        """Show `total` cells on a console."""
        self._console, self._total = console, total
        self.started: set[str] = set()
        """Names of the cells that a worker has taken."""
        self._last: dict[str, float | None] = {}
        self._bars: dict[str, TaskID] = {}
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(
            *columns, console=console, transient=True, expand=True, disable=not shows_bars(console)
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._progress.stop()

    def begins(self, cell: Cell) -> None:
        """Print that a worker has taken the cell, and add a bar."""
        self.started.add(cell.name)
        self._console.print(f"{cell.name}: begins, {len(self.started)} of {self._total}")
        self._bars[cell.name] = self._progress.add_task(cell.name, total=cell.federation.config.run.rounds)

    def round(self, cell: Cell, number: int, mean: float | None) -> None:
        """Move the bar of a cell whose round has committed, with the mean accuracy over domains that is known last."""
        if mean is not None:
            self._last[cell.name] = mean
        known = _percent(cell, self._last.get(cell.name))
        self._progress.update(self._bars[cell.name], completed=number, description=f"{cell.name}, {known}")

    def note(self, cell: Cell, text: str) -> None:
        """Print a sentence on a cell."""
        self._console.print(printable(f"{cell.name}: {text}"))

    def ends(self, cell: Cell, failure: str | None) -> None:
        """Print that a cell is trained, or why it cannot be, and remove its bar."""
        self._progress.remove_task(self._bars.pop(cell.name))
        ending = (
            f"failed: {failure}"
            if failure
            else f"trained, {_percent(cell, self._last.get(cell.name))} in the last round"
        )
        self._console.print(printable(f"{cell.name}: {ending}"))


def _order(cell: Cell, shown: CellsShown, device: str, log: Sequence[str]) -> Order:
    def report(content: CommittedRound | str) -> None:
        if isinstance(content, CommittedRound):
            shown.round(cell, content.number, content.mean)
        else:
            shown.note(cell, content)

    return Order(
        name=cell.name,
        message=(cell, device, () if cell.hides_test else log),
        threads=cell.federation.config.training.threads,
        on_begin=partial(shown.begins, cell),
        on_report=report,
        on_note=partial(shown.note, cell),
    )


def _reason(name: str, error: BaseException) -> str:
    """Return why a cell failed. A bug in one method must not stop the others; its traceback goes to stderr."""
    if isinstance(error, FedplccError):
        return error.detail
    print(f"{name}:", file=sys.stderr)
    traceback.print_exception(error, file=sys.stderr)
    return f"{type(error).__name__}: {error} (its traceback is on stderr)"


def _percent(cell: Cell, mean: float | None) -> str:
    what = "mean accuracy on validation images" if cell.hides_test else "mean accuracy"
    return f"{what} -" if mean is None else f"{what} {100 * mean:.1f}%"


class CellProgress(RunProgress):
    """Reports committed rounds, and sentences for people, to the pool."""

    def __init__(self, link: Link) -> None:
        super().__init__(Console(file=io.StringIO()), total_rounds=0)
        self._link = link
        self.reported = "accuracy"
        """Accuracies of a line of metrics.jsonl that are reported."""

    def note(self, text: str) -> None:
        """Report a sentence."""
        self._link.send(Report(text))

    def step(self, text: str) -> None:
        """Ignore steps within a cell: a person sees its rounds."""

    def event(self, event: Event) -> None:
        """Report a committed round, and problems among the other events."""
        if event.type != "round_committed":
            super().event(event)
        elif event.round is not None and event.data.get("metrics"):
            accuracy = event.data["metrics"].get(self.reported) or {}
            self._link.send(Report(CommittedRound(event.round, accuracy.get("mean"))))


def train_cell(cell: Cell, device: str, log: Sequence[str], progress: RunProgress) -> None:
    """Train a cell in this process, or go on with it, and tell its trackers.

    Raises:
        FedplccError: It cannot be trained.
    """
    add_methods([cell.federation.config.run.method])  # of another package, in a worker
    watch = RunWatch(Observation(make_trackers(log), progress.note), label=cell.name)
    with closing(watch), claimed_folder(cell.folder, cell.federation) as folder:
        if folder.is_finished:
            if log:
                watch.ended_before(read_record(folder.path), folder.path)
            return
        folder.prepare()
        record = simulate_in_folder(cell.federation, folder, progress, device=device, watch=watch)
        watch.ends(record, folder.path)
        if record.status != "completed":
            raise FailedPrecondition(ending_of(record.manifest["run_id"], record.status, record.reason))
        folder.remove_state()


def run_worker(descriptor: int) -> None:
    """Train the cells that come through a pipe until its other end is gone."""
    log.set_up("error", silent=[event_log.NAME])
    link = PipeLink(Connection(descriptor))
    progress = CellProgress(link)
    with suppress(LinkLost):
        while True:
            cell, device, log_to = link.receive()
            progress.reported = "accuracy_validation" if cell.hides_test else "accuracy"
            link.send(outcome(partial(train_cell, cell, device, log_to, progress)))


if __name__ == "__main__":
    run_worker(int(sys.argv[1]))
