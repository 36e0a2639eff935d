"""What a round's line of metrics.jsonl says beside accuracies where clients report more than counts of right ones. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedplcc.shared.scoring.class_scores import class_scores, pooled
from fedplcc.shared.scoring.histograms import added, calibration_error, macro_area, reliability
from fedplcc.shared.scoring.intervals import Interval, macro_area_interval, macro_f1_interval, mean_interval
from fedplcc.shared.scoring.scores import summed
from fedplcc.shared.types import TEST_SET, Evaluation, EvaluationCounts, ScoreHistograms

SUMMARIES = ("mean", "worst")
"""Keys of values by domain besides the domains' names; no domain may have such a name."""
ByDomain = dict[str, float | None]
"""Values of a score by domain, with "mean" and "worst"."""


def detail_entries(reports: Sequence[Evaluation], domains: Sequence[str], model: str) -> Mapping[str, ByDomain]:
    """Return the scores of a model that follow from what clients report beside correct and total predictions.

    `macro_f1` is there where each report of the test set has a confusion matrix, `auc` and `calibration_error` where each
    has histograms of probabilities.

    Args:
        domains: Domains of its cohort; one without a report or test samples is None, and counts in no mean.
    """
    found = _sets(reports, domains, model)
    known = {domain: each for domain, each in found.items() if each}
    entries: dict[str, ByDomain] = {}
    if _has_confusion(known):
        entries["macro_f1"] = summarised({domain: _macro_f1(each) for domain, each in found.items()})
    if _has_histograms(known):
        pooled_by_domain = {domain: added(_histograms(each)) for domain, each in known.items()}
        areas = {domain: macro_area(each) for domain, each in pooled_by_domain.items()}
        errors = {domain: calibration_error(reliability(each)) for domain, each in pooled_by_domain.items()}
        entries["auc"] = summarised({domain: areas.get(domain) for domain in found})
        entries["calibration_error"] = summarised({domain: errors.get(domain) for domain in found}, worst=max)
    return entries


def detail_intervals(
    reports: Sequence[Evaluation], line: Mapping[str, Any], model: str
) -> dict[str, dict[str, list[float]]]:
    """Return the intervals of the line's `macro_f1` and `auc`, low and high, by domain, with "mean" and "worst"."""
    found: dict[str, dict[str, list[float]]] = {}
    for score, interval_of in (("macro_f1", _macro_f1_interval), ("auc", _area_interval)):
        values: Mapping[str, float | None] = line.get(score) or {}
        domains = [name for name in values if name not in SUMMARIES and values[name] is not None]
        sets = _sets(reports, domains, model)
        known = {name: each for name in domains if (each := interval_of(sets[name])) is not None}
        if known:
            found[score] = with_summaries(known, values)
    return found


def with_summaries(known: Mapping[str, Interval], values: Mapping[str, float | None]) -> dict[str, list[float]]:
    """Return the intervals of some domains, low and high, with those of "mean" and of "worst", the least value's domain."""
    worst = min(known, key=lambda name: (values[name], name))
    mean = mean_interval([values[name] or 0.0 for name in known], list(known.values()))
    assert mean is not None
    return {name: [each.low, each.high] for name, each in {**known, "mean": mean, "worst": known[worst]}.items()}


def _sets(reports: Sequence[Evaluation], domains: Sequence[str], model: str) -> dict[str, list[EvaluationCounts]]:
    """Return the counts of the test sets of each domain that have images."""
    found: dict[str, list[EvaluationCounts]] = {domain: [] for domain in sorted(domains)}
    for report in reports:
        sets = [each for each in report.counts if (each.set_name, each.model) == (TEST_SET, model) and any(each.total)]
        found.setdefault(report.domain, []).extend(sets)
    return found


def _has_confusion(known: Mapping[str, Sequence[EvaluationCounts]]) -> bool:
    return bool(known) and all(counts.confusion for each in known.values() for counts in each)


def _has_histograms(known: Mapping[str, Sequence[EvaluationCounts]]) -> bool:
    return bool(known) and all(counts.histograms is not None for each in known.values() for counts in each)


def _macro_f1_interval(counts: Sequence[EvaluationCounts]) -> Interval | None:
    matrix = pooled(each.confusion for each in counts)
    return None if matrix is None else macro_f1_interval(_totals(counts), matrix)


def _area_interval(counts: Sequence[EvaluationCounts]) -> Interval | None:
    return macro_area_interval(added(_histograms(counts)))


def _histograms(counts: Sequence[EvaluationCounts]) -> list[ScoreHistograms]:
    return [each.histograms for each in counts if each.histograms is not None]


def _macro_f1(counts: Sequence[EvaluationCounts]) -> float | None:
    matrix = pooled(each.confusion for each in counts)
    return None if matrix is None else class_scores(_totals(counts), matrix).macro_f1


def _totals(counts: Sequence[EvaluationCounts]) -> list[int]:
    return summed((each.total for each in counts), len(counts[0].total))


def summarised(values: Mapping[str, float | None], worst: Callable[..., float | None] = min) -> ByDomain:
    """Return values by domain with their mean and the worst of them; None of no value."""
    known = [value for value in values.values() if value is not None]
    return {**values, "mean": sum(known) / len(known) if known else None, "worst": worst(known, default=None)}
