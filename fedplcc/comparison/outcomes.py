"""Outcomes of runs in six views, and their mean and standard deviation over seeds. Pure.

Each view takes some of a run's rounds and averages every domain's score over them: accuracy, or balanced accuracy where that
is the run's score. "mean" is the mean of these over the domains and "worst" the lowest of them. Of a single round they are
what metrics.jsonl says.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

from fedplcc.comparison.reading import CellResult
from fedplcc.comparison.round_values import RoundValues, mean_of, under, worst_of
from fedplcc.shared.scoring.scores import is_better
from fedplcc.shared.types import GLOBAL_MODEL, VALIDATION_SET

View = Literal["last", "validated", "best", "last5", "last10", "passes10"]
VIEWS: Mapping[View, str] = {
    "last": "Last round",
    "validated": "Best round by validation",
    "best": "Best round",
    "last5": "Mean of the last 5 rounds",
    "last10": "Mean of the last 10 rounds",
    "passes10": "Mean of the last rounds of the last 10 passes",
}
"""Views with their titles. "passes10" is only of runs whose stages are gone through more than once. "validated" chooses its
round on validation images, "best" on the test images themselves."""
LENGTHS: Mapping[View, int] = {"last": 1, "last5": 5, "last10": 10}
CHOSEN: tuple[View, ...] = ("validated", "best")
"""Views of one round, which each seed chooses for itself."""
MEAN, WORST = "mean", "worst"
SUMMARIES = (MEAN, WORST)
"""Columns after those of the domains."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation (divisor n - 1) of the values of some seeds; no deviation of a single value."""

    mean: float
    std: float | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run in one view.

    Attributes:
        accuracy: Fractions by domain, and "mean" and "worst"; None where nobody reported.
    """

    rounds: tuple[int, ...]
    accuracy: Mapping[str, float | None]


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of values; None if there are none."""
    if not values:
        return None
    std = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), std, len(values))


def outcome(rounds: Sequence[RoundValues], view: View, model: str = GLOBAL_MODEL) -> Outcome | None:
    """Return the outcome of a run under a model; None if that model was never evaluated.

    A view of more rounds than the run has takes all of them, and none takes a round that was not evaluated. The best round
    is the first one with the highest mean over the domains that two rounds share: of this very accuracy, or of the one on
    validation images; there is none without those. The last round of a pass is the last one of it that was evaluated.
    """
    having = [current for current in rounds if mean_of(current.values.get(model, {})) is not None]
    judged_by = under(model.partition("/")[0], VALIDATION_SET) if view == "validated" else model
    if view == "validated":
        having = [current for current in having if mean_of(current.values.get(judged_by, {})) is not None]
    if view == "passes10":
        having = _ends_of_passes(having)
    if not having:
        return None
    if view == "passes10":
        window = having[-10:]
    elif view in CHOSEN:
        window = [
            reduce(
                lambda known, new: new if is_better(new.values[judged_by], known.values[judged_by]) else known, having
            )
        ]
    else:
        window = [current for current in having if current.number > having[-1].number - LENGTHS[view]]
    domains = dict.fromkeys(domain for current in window for domain in current.values[model])
    accuracy: dict[str, float | None] = {}
    for domain in domains:
        known = [value for current in window if (value := current.values[model].get(domain)) is not None]
        accuracy[domain] = statistics.fmean(known) if known else None
    return Outcome(
        rounds=tuple(current.number for current in window),
        accuracy={**accuracy, MEAN: mean_of(accuracy), WORST: worst_of(accuracy)},
    )


def _ends_of_passes(rounds: Sequence[RoundValues]) -> list[RoundValues]:
    """Return the last round of each pass; none where a run has no more than one."""
    ends = {current.pass_number: current for current in rounds if current.pass_number is not None}
    return [*ends.values()] if len(ends) > 1 else []


def over_seeds(results: Sequence[CellResult], view: View, model: str = GLOBAL_MODEL) -> dict[str, Spread]:
    """Return the accuracy of one row over its seeds by domain, "mean" and "worst"; fractions."""
    outcomes = [found for result in results if (found := outcome(result.rounds, view, model)) is not None]
    columns = dict.fromkeys(column for found in outcomes for column in found.accuracy)
    spreads = {
        column: spread([value for found in outcomes if (value := found.accuracy.get(column)) is not None])
        for column in columns
    }
    return {column: found for column, found in spreads.items() if found is not None}


def gains(
    results: Sequence[CellResult],
    baseline: Sequence[CellResult],
    view: View,
    column: str,
    model: str = GLOBAL_MODEL,
) -> dict[int, float]:
    """Return how much higher a row is than a baseline under a model, by common seed; fractions."""
    ours, theirs = (_by_seed(each, view, column, model) for each in (results, baseline))
    return {seed: ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())}


def ranks(values: Mapping[str, float]) -> dict[str, int]:
    """Return the rank of each value, 1 for the highest; equal values share a rank, and the next ranks are skipped."""
    return {name: 1 + sum(other > value for other in values.values()) for name, value in values.items()}


def total_of(result: CellResult, name: str) -> float | None:
    """Return the sum of a measured quantity over the rounds; None if it was never measured."""
    values = [current.measured[name] for current in result.rounds if name in current.measured]
    return sum(values) if values else None


def curve(results: Sequence[CellResult], column: str, model: str = GLOBAL_MODEL) -> dict[int, Spread]:
    """Return the spread over seeds of a column (a domain, "mean" or "worst") by round."""
    by_round: dict[int, list[float]] = {}
    for result in results:
        for current in result.rounds:
            found = outcome([current], "last", model)
            value = None if found is None else found.accuracy.get(column)
            if value is not None:
                by_round.setdefault(current.number, []).append(value)
    spreads = {number: spread(values) for number, values in sorted(by_round.items())}
    return {number: found for number, found in spreads.items() if found is not None}


def _by_seed(results: Sequence[CellResult], view: View, column: str, model: str) -> dict[int, float]:
    found = {result.cell.seed: outcome(result.rounds, view, model) for result in results}
    return {
        seed: value
        for seed, each in found.items()
        if each is not None and (value := each.accuracy.get(column)) is not None
    }
