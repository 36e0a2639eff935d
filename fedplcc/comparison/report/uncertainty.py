"""Uncertainty of accuracies and of differences from the baselines, as tables of a report. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedplcc.comparison.outcomes import SUMMARIES, VIEWS, View, outcome
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Bullets, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.inference import (
    Array,
    Statistic,
    Test,
    by_domains,
    by_runs,
    interquartile_mean,
    mean,
    sign_flip_test,
)
from fedplcc.comparison.report.tables import NOTHING, counted, points_text, score_in_words
from fedplcc.shared.scoring.intervals import DIGITS, Interval
from fedplcc.shared.types import GLOBAL_MODEL

SHOWN: tuple[View, ...] = ("last", "validated")
"""Views whose uncertainty is told."""
STATISTICS: Mapping[str, Statistic] = {"mean": mean, "iqm": interquartile_mean}
USUAL_LEVEL = 0.05
MOST_RANGED = 3
"""Up to so many runs the lowest and the highest resample are each more frequent than a tail of an interval."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of a row, or of its differences from a baseline; fractions.

    Attributes:
        by_runs: Its interval over whole runs; None of a single run.
        by_domains: Its stratified interval, the runs drawn anew for each domain.
    """

    value: float
    by_runs: Interval | None
    by_domains: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """What few runs say of a row, or of its differences from a baseline.

    Attributes:
        runs: The sign-flip test whose pairs are runs, each the mean over its domains; None where nothing is compared.
        pairs: That whose pairs are the domains of all runs.
    """

    estimates: Mapping[str, Estimate]
    runs: Test | None
    pairs: Test | None
    num_seeds: int
    num_domains: int


def uncertainty_of(
    cells: Sequence[CellResult], view: View, baseline: Sequence[CellResult] | None = None
) -> Uncertainty | None:
    """Return the uncertainty of a row's accuracies, or of its differences from a baseline; None if there are no values.

    Seeds and domains that any table lacks are left out.
    """
    tables = [_by_seed(each, view) for each in (cells, baseline) if each is not None]
    seeds = sorted(set.intersection(*(set(table) for table in tables)))
    if not seeds:
        return None
    common = set.intersection(*(set(table[seed]) for table in tables for seed in seeds))
    domains = [domain for domain in tables[0][seeds[0]] if domain in common]
    if not domains:
        return None
    own, *other = (np.array([[table[seed][domain] for domain in domains] for seed in seeds]) for table in tables)
    scores = own - other[0] if other else own
    return Uncertainty(
        estimates={name: _estimate(scores, statistic) for name, statistic in STATISTICS.items()},
        runs=sign_flip_test(list(scores.mean(axis=1))) if other else None,
        pairs=sign_flip_test(list(scores.ravel())) if other else None,
        num_seeds=len(seeds),
        num_domains=len(domains),
    )


def uncertainty_tables(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield the intervals of these rows' global models and their tests against the baselines."""
    comparison = findings.comparison
    baselines = [row for row in comparison.compare.baseline if row in rows]
    for view in SHOWN:
        found = {
            row: known for row in rows if (known := uncertainty_of(findings.cells(dataset, row), view)) is not None
        }
        if max((each.num_seeds for each in found.values()), default=0) < 2:
            continue
        heads = ["", "mean [runs]", "IQM [domains]"]
        for baseline in baselines:
            label = comparison.label_of_row(baseline)
            heads += [f"mean vs {label} [runs]", "p (runs)", "p (domains)"]
        lines = []
        for row, own in found.items():
            texts = [_accuracy(own.estimates["mean"], "runs"), _accuracy(own.estimates["iqm"], "domains")]
            for baseline in baselines:
                against = None if row == baseline else findings.cells(dataset, baseline)
                texts += _versus(
                    None if against is None else uncertainty_of(findings.cells(dataset, row), view, against)
                )
            lines.append(Line(comparison.label_of_row(row), (*map(Value, texts), Value(str(own.num_seeds)))))
        title = f"Uncertainty, {VIEWS[view][:1].lower() + VIEWS[view][1:]}, global model"
        title += score_in_words(findings, dataset, rows, GLOBAL_MODEL)
        yield Table(
            caption=f"{title}, {comparison.label_of_dataset(dataset)}", heads=(*heads, "seeds"), lines=tuple(lines)
        )


def uncertainty_lines(findings: Findings) -> Iterator[tuple[str | int | float | None, ...]]:
    """Yield the lines of uncertainty.csv: a row by itself, without a baseline, then against each."""
    comparison = findings.comparison
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            cells = findings.cells(dataset, row)
            for baseline in (None, *(name for name in comparison.compare.baseline if name != row)):
                others = None if baseline is None else findings.cells(dataset, baseline)
                for view in SHOWN:
                    if (found := uncertainty_of(cells, view, others)) is not None:
                        for name in STATISTICS:
                            key = (dataset, row, comparison.rows[row].method, baseline, view, name)
                            yield (*key, *_numbers(found, name))


UNCERTAINTY_COLUMNS = (
    *("dataset", "row", "method", "baseline", "view", "statistic", "value", "runs_low", "runs_high", "domains_low"),
    *("domains_high", "p_runs", "p_domains", "least_p_runs", "seeds", "domains"),
)


def _numbers(found: Uncertainty, name: str) -> tuple[float | None, ...]:
    estimate = found.estimates[name]
    bounds = [
        bound
        for interval in (estimate.by_runs, estimate.by_domains)
        for bound in ((None, None) if interval is None else (interval.low, interval.high))
    ]
    tests = (None, None, None)
    if name == "mean" and found.runs is not None and found.pairs is not None:
        tests = (found.runs.p, found.pairs.p, found.runs.least)  # type: ignore[assignment]
    return (estimate.value, *bounds, *tests, found.num_seeds, found.num_domains)


def _by_seed(cells: Sequence[CellResult], view: View) -> dict[int, dict[str, float]]:
    """Return the accuracies of the global model by seed and domain."""
    found = {cell.cell.seed: outcome(cell.rounds, view) for cell in cells}
    return {
        seed: {
            domain: value for domain, value in each.accuracy.items() if value is not None and domain not in SUMMARIES
        }
        for seed, each in found.items()
        if each is not None
    }


def _estimate(scores: Array, statistic: Statistic) -> Estimate:
    return Estimate(round(float(statistic(scores)), DIGITS), by_runs(scores, statistic), by_domains(scores, statistic))


def _accuracy(estimate: Estimate, which: str) -> str:
    interval = estimate.by_runs if which == "runs" else estimate.by_domains
    bounds = "" if interval is None else f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
    return f"{100 * estimate.value:.1f}{bounds}"


def _versus(found: Uncertainty | None) -> list[str]:
    """Return the difference of means in points with its interval, and the shares of both tests."""
    if found is None or found.runs is None or found.pairs is None:
        return [NOTHING] * 3
    estimate = found.estimates["mean"]
    interval = estimate.by_runs
    bounds = "" if interval is None else f" [{points_text(100 * interval.low)}, {points_text(100 * interval.high)}]"
    return [points_text(100 * estimate.value) + bounds, _share(found.runs), _share(found.pairs)]


def _share(test: Test) -> str:
    return f"{test.p:.3f}" if test.p >= 0.0005 else "<0.001"


def uncertainty_notes(findings: Findings) -> Iterator[Part]:
    """Yield what intervals and tests of so few runs can say, once for all tables; nothing where each row has one run."""
    comparison = findings.comparison
    cells = [
        findings.cells(dataset, row)
        for dataset in comparison.datasets
        for row in comparison.rows_of(dataset)
        if not comparison.chooses_among(row)
    ]
    num_seeds = max(map(len, cells), default=0)
    if num_seeds < 2:
        return
    yield Paragraph("How to read the tables of uncertainty:")
    items = [
        "Intervals are of 95 %, by bootstrap. [runs] draws whole runs; [domains] draws runs anew for each domain, as "
        "rliable does. IQM is the mean of the middle half of all domains of all seeds."
    ]
    if num_seeds <= MOST_RANGED:
        items.append(f"Of {num_seeds} runs, [runs] is no more than the range from the lowest to the highest.")
    if comparison.compare.baseline:
        items += [
            "p is of a two-sided sign-flip test of paired differences, exact up to 20 pairs. For p (runs) the mean of a "
            "seed is a pair, for p (domains) each domain of each seed. The domains of a run share a model, so p (domains) "
            "is too small, and only a hint. No p is corrected for the number of comparisons.",
        ]
        if (least := 2 / 2**num_seeds) > USUAL_LEVEL:
            items.append(
                f"With {counted(num_seeds, 'seed')} p (runs) cannot be below {least:.3g}, however large a difference is: no "
                f"difference here is significant at {USUAL_LEVEL:g}. That takes six seeds at least."
            )
    yield Bullets(tuple(items))
