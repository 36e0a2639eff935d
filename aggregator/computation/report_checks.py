"""Checks of a report of correct and total predictions."""

from __future__ import annotations

from fedplcc.aggregator.computation.checked import MAX_ENTRIES, check_numbers, malformed
from fedplcc.shared.bounds import MAX_EXAMPLES
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.scoring.histograms import fault_of
from fedplcc.shared.types import (
    ALONE_MODEL,
    GLOBAL_MODEL,
    HISTOGRAM_SETS,
    LOCAL_MODEL,
    Evaluation,
    EvaluationCounts,
)

MAX_SETS = 16
"""Most evaluation sets of a report."""
MAX_TOTAL_RATIO = 100
"""Most test images for each training sample: by them a client weighs in accuracies, and nobody else can count them."""
FREE_TOTAL = 100_000
"""Test images that any client may have."""


def check_evaluation(evaluation: Evaluation, config: RunConfig) -> None:
    """Check a report of correct and total predictions.

    Whatever the method, a report may cover the global model alone: a client has no own model before its first update.

    Raises:
        MalformedUpdate: check is counts, models, entries or bound.
    """
    num_classes = len(config.data.classes)
    check_numbers("timings", evaluation.timings)
    most = MAX_SETS + (2 * config.stream.stages if config.stream.is_stream else 0)
    if not 1 <= len(evaluation.counts) <= most:
        raise malformed("counts", f"a report has 1 to {most} evaluation sets, not {len(evaluation.counts)}")
    if len({(counts.set_name, counts.model) for counts in evaluation.counts}) < len(evaluation.counts):
        raise malformed("counts", "an evaluation set is reported twice")
    for counts in evaluation.counts:
        if counts.model not in (GLOBAL_MODEL, LOCAL_MODEL, ALONE_MODEL) or not 1 <= len(counts.set_name) <= MAX_ENTRIES:
            raise malformed(
                "counts", "an evaluation set has no proper name, or its model is not global, local or alone"
            )
        if len(counts.correct) != num_classes or len(counts.total) != num_classes:
            raise malformed("counts", f"evaluation set {counts.set_name!r} has no {num_classes} classes")
        if any(not 0 <= hits <= total for hits, total in zip(counts.correct, counts.total, strict=True)):
            raise malformed("counts", f"evaluation set {counts.set_name!r} has more correct than total predictions")
        if sum(counts.total) > MAX_EXAMPLES:
            raise malformed("counts", f"evaluation set {counts.set_name!r} has more than {MAX_EXAMPLES} predictions")
        _check_confusion(counts, config)
        _check_histograms(counts, config)
    _check_local_counts(evaluation, config)


def check_totals(evaluation: Evaluation, num_examples: int, first: Evaluation | None) -> None:
    """Check the sizes of a client's evaluation sets: an inflated one would decide for all.

    Args:
        num_examples: Samples that the client may have by its Join; no set is out of proportion to them.
        first: Its first report of the run, whose sets keep their sizes; None where this is the first.

    Raises:
        MalformedUpdate: check is totals.
    """
    known = {} if first is None else {counts.set_name: counts.total for counts in first.counts}
    most = max(FREE_TOTAL, MAX_TOTAL_RATIO * num_examples)
    for counts in evaluation.counts:
        total = known.get(counts.set_name, counts.total)
        if counts.total != total:
            raise malformed(
                "totals",
                f"evaluation set {counts.set_name!r} has {sum(counts.total)} predictions, not those of each class as "
                f"in the client's first report of this run ({sum(total)})",
            )
        if sum(counts.total) > most:
            raise malformed(
                "totals",
                f"evaluation set {counts.set_name!r} has {sum(counts.total)} predictions: a client with "
                f"{num_examples} samples has at most {most}",
            )


def _check_confusion(counts: EvaluationCounts, config: RunConfig) -> None:
    """Check a confusion matrix against the counts beside it; a report may have none."""
    cells, num_classes = counts.confusion, len(counts.total)
    if not cells:
        return
    name = f"evaluation set {counts.set_name!r}"
    if not config.evaluation.confusion:
        raise malformed("counts", f"{name} has a confusion matrix, and the run asks for none")
    if len(cells) != num_classes**2:
        raise malformed("counts", f"the confusion matrix of {name} has {len(cells)} cells, not {num_classes**2}")
    if min(cells) < 0:
        raise malformed("counts", f"the confusion matrix of {name} has a negative count")
    if cells[:: num_classes + 1] != counts.correct:
        raise malformed("counts", f"the confusion matrix of {name} has another diagonal than its correct predictions")
    rows = (cells[start : start + num_classes] for start in range(0, len(cells), num_classes))
    if any(sum(row) > total for row, total in zip(rows, counts.total, strict=True)):
        raise malformed("counts", f"the confusion matrix of {name} has more samples of a class than there are")


def _check_histograms(counts: EvaluationCounts, config: RunConfig) -> None:
    """Check histograms against the counts beside them; a report may have none."""
    if counts.histograms is None:
        return
    name = f"evaluation set {counts.set_name!r}"
    if not config.evaluation.histograms or counts.set_name not in HISTOGRAM_SETS:
        raise malformed("counts", f"{name} has histograms, and the run asks for none of it")
    fault = fault_of(counts.histograms, counts.correct, counts.total)
    if fault is not None:
        raise malformed("counts", f"the histograms of {name} {fault}")


def _check_local_counts(evaluation: Evaluation, config: RunConfig) -> None:
    """Check counts of a client's own models: the run has such models, and the totals are those of the global model."""
    expected = config.evaluated_models
    totals = {counts.set_name: counts.total for counts in evaluation.counts if counts.model == GLOBAL_MODEL}
    for counts in evaluation.counts:
        if counts.model == GLOBAL_MODEL:
            continue
        if counts.model not in expected:
            raise malformed("models", "the run's clients have no models of their own, and the report is of one")
        if GLOBAL_MODEL in expected and counts.set_name not in totals:
            raise malformed(
                "models", f"evaluation set {counts.set_name!r} has counts of the model {counts.model!r} alone"
            )
        if totals.get(counts.set_name, counts.total) != counts.total:
            raise malformed(
                "counts",
                f"evaluation set {counts.set_name!r} has other totals for the model {counts.model!r} than for the global",
            )
