"""Tables for other programs: CSV with one value, or one evaluation, in a line. Pure.

    evaluations.csv   every evaluation: cell, round, domain, model, correct, total, accuracy
    rounds.csv        every other computed value of a round, by name: losses, prototypes, samples
    summary.csv       mean and standard deviation over seeds, by view and column
    differences.csv   by how much a row is above each baseline, over the seeds that both have, and in how many of them
    cells.csv         every cell: whether it is there or failed, and the hashes of what it is and came to
    measured.csv      seconds and bytes of a round, by name

All but the last hold computed values only, so equal cells give equal bytes. Accuracies are fractions.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedplcc.comparison.file import Comparison, assignments
from fedplcc.comparison.outcomes import VIEWS, gains, over_seeds, spread
from fedplcc.comparison.reading import Absence, CellResult, MissingCell
from shared.types import GLOBAL_MODEL, LOCAL_MODEL

Value = str | int | float | None
CELL = ("dataset", "row", "method", "seed")


def tables(comparison: Comparison, results: Sequence[CellResult], missing: Sequence[MissingCell]) -> dict[str, str]:
    """The content of every file, by its name."""
    return {
        "evaluations.csv": _csv((*CELL, "round", "domain", "model", "correct", "total", "accuracy"), _evals(results)),
        "rounds.csv": _csv((*CELL, "round", "quantity", "value"), _named(results, "computed")),
        "summary.csv": _csv(
            ("dataset", "row", "method", "view", "model", "column", "mean", "std", "seeds"),
            _summary(comparison, results),
        ),
        "differences.csv": _csv(
            ("dataset", "row", "method", "baseline", "view", "column", "mean", "std", "seeds", "higher"),
            _differences(comparison, results),
        ),
        "cells.csv": _csv(
            (*CELL, "settings", "state", "reason", "rounds", "config_hash", "model_sha256", "prototypes_sha256"),
            _cells(comparison, results, missing),
        ),
        "measured.csv": _csv((*CELL, "round", "quantity", "value"), _named(results, "measured")),
    }


def _evals(results: Iterable[CellResult]) -> Iterator[tuple[Value, ...]]:
    for result in results:
        for current in result.rounds:
            for model, by_domain in current.accuracy.items():
                for domain, accuracy in by_domain.items():
                    correct, total = current.counts.get((domain, model), (None, None))
                    yield (*_key(result), current.number, domain, model, correct, total, accuracy)


def _named(results: Iterable[CellResult], which: str) -> Iterator[tuple[Value, ...]]:
    for result in results:
        for current in result.rounds:
            values: Mapping[str, float] = getattr(current, which)
            for name, value in values.items():
                yield (*_key(result), current.number, name, value)


def _summary(comparison: Comparison, results: Sequence[CellResult]) -> Iterator[tuple[Value, ...]]:
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            cells = _of_row(results, dataset, row)
            for view in VIEWS:
                for model in (GLOBAL_MODEL, LOCAL_MODEL):
                    for column, found in over_seeds(cells, view, model).items():
                        method = comparison.rows[row].method
                        yield dataset, row, method, view, model, column, found.mean, found.std, found.count


def _differences(comparison: Comparison, results: Sequence[CellResult]) -> Iterator[tuple[Value, ...]]:
    for dataset in comparison.datasets:
        for baseline in comparison.compare.baseline:
            theirs = _of_row(results, dataset, baseline)
            for row in comparison.rows_of(dataset) if theirs else ():
                ours, method = _of_row(results, dataset, row), comparison.rows[row].method
                for view in VIEWS if row != baseline else ():
                    for column in over_seeds(ours, view):
                        by_seed = gains(ours, theirs, view, column)
                        found, higher = spread([*by_seed.values()]), sum(value > 0 for value in by_seed.values())
                        if found is not None:
                            numbers = (found.mean, found.std, found.count, higher)
                            yield (dataset, row, method, baseline, view, column, *numbers)


def _of_row(results: Sequence[CellResult], dataset: str, row: str) -> list[CellResult]:
    return [each for each in results if (each.cell.dataset, each.cell.row) == (dataset, row)]


def _cells(
    comparison: Comparison, results: Iterable[CellResult], missing: Iterable[MissingCell]
) -> Iterator[tuple[Value, ...]]:
    cells: list[CellResult | MissingCell] = [*results, *missing]
    for each in cells:
        settings = " ".join(assignments(comparison.settings_of(each.cell.dataset, each.cell.row)))
        key = (*_key(each), settings)
        config_hash = each.cell.federation.config.hash
        if isinstance(each, MissingCell):
            state = "failed" if each.absence is Absence.FAILED else "missing"
            yield (*key, state, each.reason, 0, config_hash, None, None)
        else:
            yield (
                *(*key, "whole", "", len(each.rounds), config_hash),
                *(each.hashes["model"], each.hashes["prototypes"]),
            )


def _key(each: CellResult | MissingCell) -> tuple[Value, ...]:
    cell = each.cell
    return cell.dataset, cell.row, cell.federation.config.run.method, cell.seed


def _csv(names: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    """Lines as RFC 4180 has them, but with plain line ends; a number is written as Python writes it, nothing stays empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
