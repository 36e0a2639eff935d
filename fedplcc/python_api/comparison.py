"""`fedplcc.compare`: methods beside each other, with the plan, the cells and the report of the command."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from fedplcc.comparison.file import Comparison, parse_comparison, read_comparison
from fedplcc.comparison.plan import plan
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.writing import REPORT_PAGE
from fedplcc.comparison.round_values import mean_of, worst_of
from fedplcc.comparison.running import train_missing, write_report
from fedplcc.comparison.sweep.search import search
from fedplcc.interruption import interruptible_by_ctrl_c
from fedplcc.python_api.result import Result, Table
from fedplcc.runs.atomic_file import make_folder
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.log import stay_quiet
from fedplcc.shared.types import GLOBAL_MODEL
from fedplcc.terminal.progress import console_for
from fedplcc.tracking.destinations import make_trackers

FOLDERS = Path("fedplcc-comparisons")
"""Default folder of comparisons, below the present folder."""
FILE = Path("compare.toml")
"""Name of a comparison that is a mapping; its data sets' files are found from the present folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRow:
    """One trained cell.

    Attributes:
        dataset: Its data set.
        row: Its row.
        method: The row's method.
        seed: Its seed.
        mean_accuracy: Mean over domains in the last evaluated round, a fraction; on validation images where the row is in a
            group that chooses.
        worst_accuracy: That of the worst domain.
        best_mean_accuracy: Highest mean of all rounds.
    """

    dataset: str
    row: str
    method: str
    seed: int
    mean_accuracy: float | None
    worst_accuracy: float | None
    best_mean_accuracy: float | None


class ComparisonResult:
    """A comparison's cells and report."""

    def __init__(self, folder: Path, findings: Findings) -> None:
        self.folder, self._findings = folder.absolute(), findings

    def __repr__(self) -> str:
        """Return the number of cells and the folder."""
        return f"<ComparisonResult: {len(self.cells)} cells, {len(self.missing)} missing; {self.folder}>"

    @property
    def report(self) -> Path:
        """The report as one HTML page."""
        return self.folder / REPORT_PAGE

    @property
    def missing(self) -> dict[str, str]:
        """Why each cell without results has none, by DATASET/ROW/seed-SEED; a row without chosen values by DATASET/ROW."""
        unchosen = {"/".join(key): why for key, why in self._findings.unchosen.items()}
        return unchosen | {each.cell.name: each.reason for each in self._findings.missing}

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        """What a sweep has chosen on validation images, by DATASET/ROW: settings by dotted key."""
        return {"/".join(key): dict(choice.chosen.point) for key, choice in self._findings.choices.items()}

    @property
    def cells(self) -> Table[CellRow]:
        """A record for each trained cell."""
        return Table(CellRow, [_row(cell) for cell in self._findings.whole])

    @property
    def results(self) -> dict[str, Result]:
        """The result of each trained cell whose folder is there, by DATASET/ROW/seed-SEED."""
        cells = [each.cell for each in self._findings.whole]
        return {cell.name: Result(cell.folder, is_own=True) for cell in cells if cell.folder.is_dir()}


def compare(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
    log: str | Sequence[str] = (),
    device: str = "auto",
    report_only: bool = False,
    progress: bool = False,
) -> ComparisonResult:
    """Train methods over seeds and data sets, and write a report; the same cells and bytes as `fedplcc compare`.

    What is there is not trained again: the same call goes on where it stopped. A cell that fails stops no other, and is
    named in `missing`.

    Args:
        config: The file with [compare], [datasets.NAME] and [rows.NAME], or its tables as a mapping. Data sets' files are
            found from the file, those of a mapping from the present folder.
        out: Folder of cells and report; `fedplcc-comparisons/NAME` if None.
        jobs: Cells that are trained at a time, each in a process of its own.
        only: Rows, or DATASET/ROW, to train now; all if empty.
        seeds: Seeds to train now; all if empty.
        log: Trackers, KIND or KIND:WHERE; every cell is a run of its own there.
        device: Device of every client: auto, cpu, cuda or cuda:N.
        report_only: Whether to train nothing.
        progress: Whether to print what the command prints.

    Raises:
        InvalidConfig: All mistakes in it and in its cells, one sentence each.
        KeyboardInterrupt: Ctrl-C; what was committed is kept, the report is of what is there, and the same call goes on.
    """
    stay_quiet()
    trackers = [log] if isinstance(log, str) else list(log)
    make_trackers(trackers)  # a missing library is said before a night of training
    comparison, file = _read(config)
    folder = FOLDERS / comparison.compare.name if out is None else Path(out)
    plan(comparison, file, folder, only=only, seeds=seeds)  # mistakes come before any folder
    if report_only and not folder.is_dir():
        raise InvalidConfig(f"there is no folder {folder} to report on")
    make_folder(folder)
    train = partial(
        train_missing,
        console=console_for(json=False) if progress else Console(quiet=True),
        jobs=jobs,
        device=device,
        interruptible=interruptible_by_ctrl_c,
        on_trouble=lambda text: warnings.warn(text, UserWarning, stacklevel=2),
    )
    found = search(comparison, file, folder, only=only, train=None if report_only else train)
    cells = plan(found.comparison, file, folder, only=only, seeds=seeds, also_known=found.names_without_cells)
    was_interrupted = found.was_interrupted or (not report_only and train(cells, folder, log=trackers))
    findings, _names = write_report(found, file, cells, folder)
    if was_interrupted:
        raise KeyboardInterrupt("what was committed is kept: the same call goes on from there")
    return ComparisonResult(folder, findings)


def _read(config: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[Comparison, Path]:
    if isinstance(config, Mapping):
        return parse_comparison(config), FILE
    return read_comparison(Path(config)), Path(config)


def _row(result: CellResult) -> CellRow:
    cell, evaluated = result.cell, [each.accuracy for each in result.rounds if each.accuracy]
    own = [accuracy.get(GLOBAL_MODEL) or next(iter(accuracy.values())) for accuracy in evaluated]
    means = [mean for accuracy in own if (mean := mean_of(accuracy)) is not None]
    return CellRow(
        dataset=cell.place,
        row=cell.row,
        method=cell.federation.config.run.method,
        seed=cell.seed,
        mean_accuracy=mean_of(own[-1]) if own else None,
        worst_accuracy=worst_of(own[-1]) if own else None,
        best_mean_accuracy=max(means, default=None),
    )
