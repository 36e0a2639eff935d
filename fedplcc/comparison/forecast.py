"""What a comparison would train: the state of every cell, and the minutes that each row's cells take. Writes nothing."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from fedplcc.comparison.file import TRIALS, Comparison
from fedplcc.comparison.outcomes import total_of
from fedplcc.comparison.plan import Cell
from fedplcc.comparison.reading import CellResult, MissingCell, read_cell
from fedplcc.comparison.sweep.choosing import seeds_of
from fedplcc.comparison.sweep.records import Key
from fedplcc.comparison.sweep.search import is_named
from fedplcc.runs.artifacts import MANIFEST
from fedplcc.runs.configuration import federation_json
from fedplcc.simulation.sample import Sample, timed_sample
from shared.errors import FedplccError

Source = Literal["finished", "sample", "partial", "unknown"]
"""Where minutes come from: seconds of finished cells, a sample of two rounds or one, a part of the first round, nowhere."""
SOURCES: dict[Source, str] = {
    "finished": "as its finished cells took",
    "sample": "by a sample here",
    "partial": "roughly, by a part of a round here",
    "unknown": "not measured",
}
SAMPLES_S = 120.0
"""Seconds after which no further sample begins."""
OF_NO_COST = (
    "learning_rate",
    "schedule",
    "warmup_rounds",
    "schedule_rounds",
    "step_rounds",
    "step_factor",
    "momentum",
    "weight_decay",
    "clip_norm",
)
"""Keys of `[training]` that change no duration. Rows that differ in these and in `[method]` alone share a sample."""
MAX_LINES = 100
"""Most rows that are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowForecast:
    """The chosen cells of a row on a data set.

    Attributes:
        cells: The cells, by seed.
        states: The state of each: "trained", or the value of an `Absence`.
        trainable: The missing cells that training can begin or go on with, if their data can be opened.
        reasons: Why the other missing ones cannot be trained, one sentence each.
        seconds: Seconds of one cell; None if nothing is known.
        source: Where they come from.
        note: Why nothing could be measured; empty if something was.
        num_to_train: Number of cells to be trained; a cell that will be a copy of a chosen trial is none.
        num_trials: Trials of a sweep that are not there yet; they are trained before the cells and last about as long.
    """

    cells: Sequence[Cell]
    states: Sequence[str]
    trainable: Sequence[Cell]
    reasons: Sequence[str]
    num_to_train: int
    seconds: float | None
    source: Source
    note: str = ""
    num_trials: int = 0

    @property
    def name(self) -> str:
        """DATASET/ROW."""
        return f"{self.cells[0].dataset}/{self.cells[0].row}"


@dataclass(frozen=True, slots=True)
class TrialsLeft:
    """Trials of a row on a data set.

    Attributes:
        count: Number of those that are not there yet.
        seeds: Seeds of every trial: the row's cells with these are copies of the chosen one.
    """

    count: int
    seeds: Collection[int]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A comparison before its training."""

    rows: Sequence[RowForecast]
    jobs: int

    @property
    def num_to_train(self) -> int:
        """Number of cells to be trained."""
        return sum(row.num_to_train for row in self.rows)

    @property
    def seconds(self) -> float | None:
        """Seconds until all are trained, where each of the jobs has cores of its own; None if a row's are unknown."""
        known = [(row.num_to_train + row.num_trials, row.seconds) for row in self.rows]
        each = [seconds for count, seconds in known for _ in range(count) if seconds is not None]
        if len(each) < sum(count for count, _ in known):
            return None
        return max(sum(each) / max(1, min(self.jobs, len(each))), max(each, default=0.0))

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "rows": [
                {
                    "dataset": row.cells[0].dataset,
                    "row": row.cells[0].row,
                    "method": row.cells[0].federation.config.run.method,
                    "cells": [
                        {"seed": cell.seed, "state": state, "folder": str(cell.folder)}
                        for cell, state in zip(row.cells, row.states, strict=True)
                    ],
                    "to_train": row.num_to_train,
                    "trials": row.num_trials,
                    "minutes_per_cell": _minutes(row.seconds),
                    "source": row.source,
                    "note": row.note,
                }
                for row in self.rows
            ],
            "to_train": self.num_to_train,
            "jobs": self.jobs,
            "minutes": _minutes(self.seconds),
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for people: a heading and a line a row, why cells cannot be trained, and the sum."""
        table = [("cells of", "method", "seeds", "there", "to train", "minutes a cell", "")]
        for row in self.rows[:MAX_LINES]:
            seeds = ",".join(str(cell.seed) for cell in row.cells)
            there = sum(state == "trained" for state in row.states)
            minutes = "-" if row.seconds is None else f"{row.seconds / 60:.1f}"
            method = row.cells[0].federation.config.run.method
            how = f"{SOURCES[row.source]}{f': {row.note}' if row.note else ''}"
            how += f"; {row.num_trials} trials come first" if row.num_trials else ""
            table.append((row.name, method, seeds, str(there), str(row.num_to_train), minutes, how))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)][:-1]
        for *cells, how in table:
            yield "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), how]).rstrip()
        if len(self.rows) > MAX_LINES:
            yield f"and {len(self.rows) - MAX_LINES} more rows; --json has all"
        for reason in [reason for row in self.rows for reason in row.reasons][:MAX_LINES]:
            yield f"cannot be trained: {reason}"
        of_all = "unknown" if self.seconds is None else f"about {self.seconds / 60:.1f} minutes"
        num_trials = sum(row.num_trials for row in self.rows)
        what = f"{num_trials} trials and {self.num_to_train} cells" if num_trials else f"{self.num_to_train} cells"
        yield f"{what} are to be trained, {self.jobs} at a time: {of_all}"


def forecast(
    cells: Sequence[Cell],
    failures: Mapping[str, str],
    *,
    jobs: int,
    device: str,
    trials: Mapping[Key, TrialsLeft] = MappingProxyType({}),
    on_step: Callable[[str], None] = lambda text: None,
    sample: Callable[..., Sample | None] = timed_sample,
    clock: Callable[[], float] = time.monotonic,
) -> Forecast:
    """Say what the command would train, and how long it takes.

    Args:
        cells: All cells; those that are not chosen are left out.
        failures: Reasons of cells that could not be trained the last time, by their names.
        jobs: How many are to be trained at a time.
        device: Device of their clients.
        trials: Trials that come first, by data set and row.
        on_step: Takes a sentence before something that lasts.
        sample: Measures a cell; `timed_sample`.
        clock: Seconds that pass.
    """
    begun, known = clock(), dict[str, tuple[float | None, Source, str]]()
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.is_chosen:
            rows.setdefault((cell.dataset, cell.row), []).append(cell)
    made = []
    for of_row in rows.values():
        read = [read_cell(cell, failures.get(cell.name)) for cell in of_row]
        missing = [each for each in read if isinstance(each, MissingCell)]
        trainable = [each.cell for each in missing if each.can_be_trained]
        of_sweep = trials.get((of_row[0].dataset, of_row[0].row), TrialsLeft(0, ()))
        took = [
            seconds for each in read if isinstance(each, CellResult) and (seconds := total_of(each, "seconds.total"))
        ]
        expected: tuple[float | None, Source, str] = (None, "unknown", "")
        if took:
            expected = statistics.median(took), "finished", ""
        elif trainable:
            key = _cost(trainable[0])
            if key not in known and clock() - begun > SAMPLES_S:
                known[key] = None, "unknown", f"samples end after {SAMPLES_S:.0f} s"
            elif key not in known:
                on_step(f"{of_row[0].dataset}/{of_row[0].row}: training a sample, nothing of which is kept")
                known[key] = _measured(trainable[0], device, sample)
            expected = known[key]
        made.append(
            RowForecast(
                cells=of_row,
                states=["trained" if isinstance(each, CellResult) else each.absence.value for each in read],
                trainable=trainable,
                reasons=[f"{each.cell.name}: {each.reason}" for each in missing if not each.can_be_trained],
                num_to_train=sum(cell.seed not in of_sweep.seeds for cell in trainable),
                seconds=expected[0],
                source=expected[1],
                note=expected[2],
                num_trials=of_sweep.count if trainable else 0,
            )
        )
    return Forecast(made, jobs)


def trials_left(comparison: Comparison, out: Path, only: Sequence[str] = ()) -> dict[Key, TrialsLeft]:
    """Return the trials that a sweep's search would train, by data set and row; nothing is searched.

    Args:
        comparison: The content of the comparison's file.
        out: Folder of the results.
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


def _measured(cell: Cell, device: str, sample: Callable[..., Sample | None]) -> tuple[float | None, Source, str]:
    try:
        found = sample(cell.federation, device=device)
    except FedplccError as error:
        return None, "unknown", error.detail
    if found is None:
        return None, "unknown", "no batch was done in time"
    return found.seconds, "sample" if found.num_rounds else "partial", ""


def _cost(cell: Cell) -> str:
    """Return a text that is equal for cells that take equally long."""
    document = json.loads(federation_json(cell.federation))
    config = document["config"]
    config["method"] = {}
    config["run"] = {key: value for key, value in config["run"].items() if key not in ("seed", "name")}
    config["training"] = {key: value for key, value in config["training"].items() if key not in OF_NO_COST}
    return json.dumps(document, sort_keys=True)


def _minutes(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / 60, 2)
