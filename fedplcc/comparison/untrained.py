"""What a comparison would train: the state of every cell, and the trials of a sweep that come first. Writes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedplcc.comparison.file import TRIALS, Comparison
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.sweep.choosing import seeds_of
from fedplcc.comparison.sweep.records import Key
from fedplcc.comparison.sweep.search import is_named
from fedplcc.runs.artifacts import MANIFEST

MAX_LINES = 100
"""Most rows that are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowState:
    """The chosen cells of a row on a data set.

    Attributes:
        states: The state of each: "trained", or the value of an `Absence`.
        trainable: The missing cells that training can begin or go on with, if their data can be opened.
        reasons: Why the other missing ones cannot be trained, one sentence each.
        num_to_train: Number of cells to be trained; a cell that will be a copy of a chosen trial is none.
        num_trials: Trials of a sweep that are not there yet; they are trained before the cells.
    """

    cells: Sequence[Cell]
    states: Sequence[str]
    trainable: Sequence[Cell]
    reasons: Sequence[str]
    num_to_train: int
    num_trials: int = 0

    @property
    def name(self) -> str:
        """DATASET/ROW."""
        return f"{self.cells[0].dataset}/{self.cells[0].row}"


@dataclass(frozen=True, slots=True)
class TrialsLeft:
    """Trials of a row on a data set.

    Attributes:
        seeds: Seeds of every trial: the row's cells with these are copies of the chosen one.
    """

    count: int
    seeds: Collection[int]


@dataclass(frozen=True, slots=True)
class Untrained:
    """A comparison before its training."""

    rows: Sequence[RowState]

    @property
    def num_to_train(self) -> int:
        """Number of cells to be trained."""
        return sum(row.num_to_train for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "rows": [
                {
                    "dataset": row.cells[0].dataset,
                    "row": row.cells[0].row,
                    "method": row.cells[0].federation.config.run.method,
                    "cells": [
                        {
                            "seed": cell.seed,
                            **({} if cell.left_out is None else {"left_out": cell.left_out}),
                            "state": state,
                            "folder": str(cell.folder),
                        }
                        for cell, state in zip(row.cells, row.states, strict=True)
                    ],
                    "to_train": row.num_to_train,
                    "trials": row.num_trials,
                }
                for row in self.rows
            ],
            "to_train": self.num_to_train,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people: a heading and a line a row, why cells cannot be trained, and the sum."""
        table = [("cells of", "method", "seeds", "there", "to train", "")]
        for row in self.rows[:MAX_LINES]:
            seeds = ",".join(dict.fromkeys(str(cell.seed) for cell in row.cells))
            there = sum(state == "trained" for state in row.states)
            method = row.cells[0].federation.config.run.method
            first = f"{row.num_trials} trials come first" if row.num_trials else ""
            table.append((row.name, method, seeds, str(there), str(row.num_to_train), first))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for cells in table:
            yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        if len(self.rows) > MAX_LINES:
            yield f"and {len(self.rows) - MAX_LINES} more rows; --json has all"
        for reason in [reason for row in self.rows for reason in row.reasons][:MAX_LINES]:
            yield f"cannot be trained: {reason}"
        num_trials = sum(row.num_trials for row in self.rows)
        trials = f"{num_trials} trials and " if num_trials else ""
        yield f"{trials}{self.num_to_train} cells are to be trained"


def untrained(
    cells: Sequence[Cell],
    failures: Mapping[str, str],
    *,
    trials: Mapping[Key, TrialsLeft] = MappingProxyType({}),
) -> Untrained:
    """Say what the command would train.

    Args:
        failures: Reasons of cells that could not be trained the last time, by their names.
        trials: Trials that come first, by data set and row.
    """
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.is_chosen:
            rows.setdefault((cell.dataset, cell.row), []).append(cell)
    made = []
    for key, of_row in rows.items():
        read = [read_cell(cell, failures.get(cell.name)) for cell in of_row]
        missing = [each for each in read if isinstance(each, MissingCell)]
        trainable = [each.cell for each in missing if each.can_be_trained]
        of_sweep = trials.get(key, TrialsLeft(0, ()))
        made.append(
            RowState(
                cells=of_row,
                states=["trained" if isinstance(each, CellResult) else each.absence.value for each in read],
                trainable=trainable,
                reasons=[f"{each.cell.name}: {each.reason}" for each in missing if not each.can_be_trained],
                num_to_train=sum(cell.seed not in of_sweep.seeds for cell in trainable),
                num_trials=of_sweep.count if trainable else 0,
            )
        )
    return Untrained(made)


def trials_left(comparison: Comparison, out: Path, only: Sequence[str] = ()) -> dict[Key, TrialsLeft]:
    """Return the trials that a sweep's search would train, by data set and row; nothing is searched.

    Args:
        only: Rows, or DATASET/ROW, that are chosen; all if empty.
    """
    sweep, left = comparison.sweep, dict[Key, TrialsLeft]()
    swept = [] if sweep is None else sweep.swept(comparison.rows)
    for dataset in comparison.datasets if sweep is not None else ():
        for row in comparison.rows_of(dataset):
            if row not in swept or not is_named((dataset, row), only) or sweep is None:
                continue
            there = sum(1 for _ in (out / TRIALS / dataset).glob(f"{row}_*/seed-*/{MANIFEST}"))
            seeds = seeds_of(comparison, dataset)
            left[dataset, row] = TrialsLeft(max(0, sweep.num_points(row) * len(seeds) - there), seeds)
    return left
