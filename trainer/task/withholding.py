"""What a client leaves out of its messages: for a run's claim, and for the policy of its site. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fedplcc.shared.types import (
    GLOBAL_MODEL,
    TEST_SET,
    ClientProblem,
    Evaluation,
    EvaluationCounts,
    PrototypeSet,
    Update,
)
from fedplcc.trainer.owner.policy import Leaves, Thresholds

TOLD_TIMINGS = frozenset(
    {"build_seconds", "download_seconds", "received_bytes", "retries", "sent_bytes", "stage_seconds", "upload_seconds"}
)
"""Measurements of a task that no image has a part in."""
KEPT = "this client keeps its problems to itself; the log of its trainer has them"
"""Sentence of a problem whose own one stays."""


def without_counts(update: Update) -> Update:
    """Return an update without losses, excluded samples and samples of each class; their number stays."""
    return replace(update, num_excluded=0, class_counts=(0,) * len(update.class_counts), losses={}, timings={})


def told_timings(timings: Mapping[str, float], *, withholds: bool) -> dict[str, float]:
    """Return the measurements of a task that leave the client."""
    return {name: value for name, value in timings.items() if not withholds or name in TOLD_TIMINGS}


def without_detail(problem: ClientProblem) -> ClientProblem:
    """Return a problem that says its kind and what to do, and nothing of the images."""
    return replace(problem, detail=KEPT)


def told_update(update: Update, leaves: Leaves) -> Update:
    """Return an update as it leaves the site: without losses, and with 0 for the samples of each class, where those stay."""
    losses = update.losses if leaves.losses else {}
    class_counts = update.class_counts if leaves.class_counts else (0,) * len(update.class_counts)
    return replace(update, losses=losses, class_counts=class_counts)


def told_prototypes(prototypes: PrototypeSet, least: int) -> PrototypeSet:
    """Return the prototypes that stand for at least so many samples."""
    is_told_n = prototypes.weights >= least
    if is_told_n.all():
        return prototypes
    return PrototypeSet(
        prototypes.vectors[is_told_n],
        prototypes.class_ids[is_told_n],
        prototypes.weights[is_told_n],
        prototypes.group_ids[is_told_n],
    )


def told_counts(counts: EvaluationCounts, thresholds: Thresholds, withhold_below: int) -> EvaluationCounts:
    """Return what an evaluation set says of itself: nothing if it is too small, and nothing of a class that is too small.

    A set with a class of very few images has neither a confusion matrix nor histograms.

    Args:
        withhold_below: Images of a class below which matrix and histograms stay.
    """
    if sum(counts.total) < thresholds.test_images:
        return EvaluationCounts(counts.set_name, counts.model, (0,) * len(counts.total), (0,) * len(counts.total))
    least = max(withhold_below, thresholds.class_images)
    if min(filter(None, counts.total), default=least) >= least:
        return counts
    is_told = [total >= thresholds.class_images for total in counts.total]
    return replace(
        counts,
        correct=tuple(value if told else 0 for value, told in zip(counts.correct, is_told, strict=True)),
        total=tuple(value if told else 0 for value, told in zip(counts.total, is_told, strict=True)),
        confusion=(),
        histograms=None,
    )


def no_scores(client_id: str, domain: str, num_classes: int) -> Evaluation:
    """Return the report of a client whose scores stay at its site: a test set without images."""
    none = (0,) * num_classes
    return Evaluation(
        client_id=client_id, domain=domain, counts=(EvaluationCounts(TEST_SET, GLOBAL_MODEL, none, none),)
    )
