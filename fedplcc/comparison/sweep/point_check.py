"""Checks of a sweep's points before any is trained: each makes a right configuration, and validation images can choose."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplcc.comparison.file import Comparison
from fedplcc.comparison.plan import documents_of, judge_cell
from fedplcc.comparison.sweep.choosing import seeds_of, trials_of
from fedplcc.comparison.sweep.proposals import load
from fedplcc.comparison.sweep.section import Point, SweepSection, name_of
from fedplcc.runs.configuration import without_validation
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS

Documents = Mapping[str, Mapping[str, Any]]
"""Configurations of data sets by name."""


def require_points(comparison: Comparison, file: Path) -> None:
    """Refuse a sweep whose trials could not begin; a comparison without one that chooses is accepted.

    Args:
        comparison: The content of the comparison's file; its rows are right without points.

    Raises:
        InvalidConfig: Optuna is missing; or all problems of the points.
    """
    if comparison.sweep is not None and comparison.sweep.is_study:
        load()
    if problems := point_problems(comparison, file):
        raise InvalidConfig("; ".join(problems))


def point_problems(comparison: Comparison, file: Path) -> list[str]:
    """Return the problems of a grid's points or of the ends of ranges, each once for a row, with its key of `[sweep]`."""
    sweep = comparison.sweep
    if sweep is None:
        return []
    documents, found = documents_of(comparison, file), dict[str, None]()
    for row in sweep.swept(comparison.rows):
        of_row = {name: each for name, each in documents.items() if row in comparison.rows_of(name)}
        found |= dict.fromkeys(_problems(comparison, sweep, row, of_row))
        found |= dict.fromkeys(_without_validation(comparison, row, of_row))
    return [*found]


def _problems(comparison: Comparison, sweep: SweepSection, row: str, documents: Documents) -> Iterator[str]:
    where = "sweep.ranges" if sweep.is_study else "sweep.grid"
    own = (sweep.ranges_for if sweep.is_study else sweep.grid_for).get(row, {})
    foreign = _keys_of_others(comparison, sweep, row, own)
    for key, other in foreign.items():
        method = comparison.rows[row].method
        yield f"{where}: row {row}: {method} has no key {key!r}; put it in {where}_for.{other}"
    points = [_without(point, foreign) for point in (sweep.corners(row) if sweep.is_study else sweep.points(row))]
    found = _judged(comparison, row, points, documents)
    of_all = _judged(comparison, row, [_without(point, own) for point in points], documents) if own and found else found
    for problem, datasets in found.items():
        on = "" if len(datasets) == len(documents) else f" on data set {', '.join(datasets)}"
        yield f"{where if problem in of_all else f'{where}_for.{row}'}: row {row}{on}: {problem}"


def _keys_of_others(comparison: Comparison, sweep: SweepSection, row: str, own: Container[str]) -> dict[str, str]:
    """Return the keys that a row tries with all others though only another row's method has them, with such a row."""
    with_key = {
        key: [each for each in sweep.swept(comparison.rows) if _has(comparison.rows[each].method, key)]
        for key in sweep.space(row)
        if key.startswith("method.") and key not in own
    }
    return {key: rows[0] for key, rows in with_key.items() if rows and row not in rows}


def _has(method: str, key: str) -> bool:
    """Whether a method has a key of [method]."""
    return key.split(".")[1] in METHODS[method].config.model_fields


def _without(point: Point, keys: Container[str]) -> Point:
    return {key: value for key, value in point.items() if key not in keys}


def _judged(comparison: Comparison, row: str, points: Sequence[Point], documents: Documents) -> dict[str, list[str]]:
    """Return the problems of a row with these points, and the data sets that have each."""
    trials = trials_of(comparison, {(dataset, row): points for dataset in documents})
    found: dict[str, list[str]] = {}
    for dataset, document in documents.items():
        seed = seeds_of(comparison, dataset)[0]
        verdicts = [judge_cell(trials, dataset, name_of(row, point), seed, document) for point in points]
        for problem in dict.fromkeys(problem for verdict in verdicts for problem in verdict.problems):
            found.setdefault(problem, []).append(dataset)
    return found


def _without_validation(comparison: Comparison, row: str, documents: Documents) -> Iterator[str]:
    """Yield the data sets that lack validation images for a row; no point changes that."""
    for dataset, document in documents.items():
        federation = judge_cell(comparison, dataset, row, seeds_of(comparison, dataset)[0], document).federation
        if federation is not None and (client := without_validation(federation)) is not None:
            yield (
                f"sweep: data set {dataset!r} has no validation images at client {client}, and values are never chosen "
                "on test images; set data.validation_every in its file, or validation_per_class for each client"
            )
