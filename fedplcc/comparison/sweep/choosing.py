"""Choice of a point for each row by its trials' accuracy on validation images. Pure: nothing here sees a test image.

A trial is a row with a point of the sweep; its cells are those of a comparison of their own, below the folder TRIALS.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from fedplcc.comparison.file import Comparison, RowSection
from fedplcc.comparison.outcomes import MEAN, VIEWS, outcome
from fedplcc.comparison.reading import CellResult
from fedplcc.comparison.round_values import VALIDATED_MODELS
from fedplcc.comparison.sweep.records import Choice, Key, Trial
from fedplcc.comparison.sweep.section import Point, SweepSection, name_of


def criterion(sweep: SweepSection) -> str:
    """Return what chooses, in words."""
    which = "mean over domains" if sweep.objective == MEAN else "worst domain"
    view = VIEWS[sweep.view]
    return f"{which} on validation images, {view[:1].lower()}{view[1:]}"


def seeds_of(comparison: Comparison, dataset: str) -> tuple[int, ...]:
    """Return the seeds of the trials on a data set."""
    assert comparison.sweep is not None
    return comparison.sweep.seeds or comparison.seeds_of(dataset)[:1]


def trials_of(comparison: Comparison, points: Mapping[Key, Sequence[Point]]) -> Comparison:
    """Return the comparison whose rows are trials: these points of each row on each data set."""
    by_name: dict[str, tuple[str, dict[str, Point]]] = {}
    for (dataset, row), of_row in points.items():
        for point in of_row:
            by_name.setdefault(name_of(row, point), (row, {}))[1][dataset] = point
    rows: dict[str, RowSection] = {
        name: comparison.with_points(row, by_dataset).model_copy(update={"label": name, "extra": {}})
        for name, (row, by_dataset) in by_name.items()
    }
    datasets = {
        name: comparison.datasets[name].model_copy(update={"seeds": seeds_of(comparison, name), "extra": {}})
        for name in dict.fromkeys(dataset for dataset, _row in points)
    }
    return Comparison(compare=comparison.compare.model_copy(update={"baseline": ()}), datasets=datasets, rows=rows)


def with_choices(comparison: Comparison, choices: Mapping[Key, Choice]) -> Comparison:
    """Return a comparison whose searched rows have their chosen values, and stand on no data set where none was chosen."""
    assert comparison.sweep is not None
    rows = dict(comparison.rows)
    for row in comparison.sweep.swept(comparison.rows):
        by_dataset = {dataset: choice.chosen.point for (dataset, name), choice in choices.items() if name == row}
        rows[row] = comparison.with_points(row, by_dataset)
    return comparison.model_copy(update={"rows": rows, "sweep": None})


def accuracy_of(results: Sequence[CellResult], sweep: SweepSection) -> float | None:
    """Return a trial's accuracy on validation images, the mean over its cells; None where a cell has none.

    It is that of the global model, or of the clients' own models where no global one is validated.
    """
    for model in VALIDATED_MODELS:
        found = [outcome(result.rounds, sweep.view, model) for result in results]
        values = [each.accuracy.get(sweep.objective) for each in found if each is not None]
        known = [value for value in values if value is not None]
        if known and len(known) == len(results):
            return statistics.fmean(known)
    return None


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the highest accuracy, the first one of equals; None if none has any."""
    judged = [trial for trial in trials if trial.accuracy is not None]
    return max(judged, key=lambda trial: trial.accuracy or 0.0, default=None)
