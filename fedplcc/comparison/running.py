"""Training of the cells that are missing, and the report of those that are there: what the command and Python share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from rich.console import Console

from fedplcc.comparison import training
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.reading import Findings, MissingCell, read_cell, read_findings
from fedplcc.comparison.report.parts import NO_ADDITIONS, Additions
from fedplcc.comparison.report.writing import read_failures, write_failures, write_findings
from fedplcc.comparison.sweep.search import Found
from fedplcc.runs.readiness import check_device


class Wish(Protocol):
    """Whether a person wants the training to end."""

    def is_set(self) -> bool:
        """Return whether Ctrl-C came."""


def train_missing(
    cells: Sequence[Cell],
    folder: Path,
    console: Console,
    *,
    jobs: int,
    device: str,
    interruptible: Callable[[], AbstractContextManager[Wish]],
    on_trouble: Callable[[str], None],
    log: Sequence[str] = (),
) -> bool:
    """Train the chosen cells that are missing, and record failures; returns whether it was interrupted.

    A cell that cannot begin, for its data, its model or a backbone, is a failure that makes no folder.

    Args:
        jobs: How many cells are trained at a time.
        interruptible: Makes the block within which a person may end the training.
        on_trouble: Takes a sentence on cells that cannot begin.
        log: Trackers, as texts; they are told of trained cells too, and keep what they lack.

    Raises:
        InvalidConfig: There is no such device.
    """
    check_device(device)
    chosen = [cell for cell in cells if cell.is_chosen]
    what = "trials" if any(cell.is_trial for cell in cells) else "cells"
    found = {cell.name: read_cell(cell) for cell in chosen}
    missing = {name: cell for name, cell in found.items() if isinstance(cell, MissingCell)}
    wanted = [cell for cell in chosen if cell.name in missing and missing[cell.name].can_be_trained]
    problems = training.problems_of_cells(wanted)
    to_train = [cell for cell in wanted if cell.name not in problems]
    to_tell = [cell for cell in chosen if log and _is_told_of(cell) and cell.name not in missing]
    console.print(f"{len(to_train)} of {len(chosen)} {what} are to be trained; results in {folder}")
    for sentence in training.sentences_of(wanted, problems):
        on_trouble(sentence)  # now, before a long training; the other cells are trained all the same
    if log and any(cell.hides_test for cell in chosen):
        console.print("trackers are told nothing of rows that are chosen among on validation images")
    failures, was_interrupted = dict(problems), False
    outdated = {cell.name for cell in chosen}  # their earlier failures no longer count
    if work := [*to_train, *to_tell]:
        more = {"log": tuple(log)} if log else {}
        with training.CellsShown(console, total=len(work)) as shown, interruptible() as wished:
            failures |= training.train(work, shown, jobs=jobs, device=device, should_stop=wished.is_set, **more)
            was_interrupted = wished.is_set()
        outdated -= {cell.name for cell in work} - shown.started
    # Read late: another command may have trained other cells of this folder meanwhile.
    before = {name: why for name, why in read_failures(folder).items() if name not in outdated}
    write_failures(folder, before | failures)
    return was_interrupted


def _is_told_of(cell: Cell) -> bool:
    """Whether trackers may be told of a cell that is whole: not of one whose test numbers are hidden."""
    return cell.folder.is_dir() and not cell.hides_test


def write_report(
    found: Found, file: Path, cells: Sequence[Cell], folder: Path, additions: Additions = NO_ADDITIONS
) -> tuple[Findings, list[str]]:
    """Write the report of the trained cells and of what was chosen; returns its content, and the names of its files."""
    findings = replace(
        read_findings(found.comparison, file, cells, read_failures(folder)),
        choices=found.choices,
        unchosen=found.unchosen,
    )
    return findings, write_findings(folder, findings, additions)
