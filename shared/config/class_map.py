"""Classes of a run that begins with a model of other classes: the rows of its head go by name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LINEAR_HEAD_NEEDED = (
    "the run has other classes than its initial model, and only the rows of one linear layer (weight and bias) go by class; "
    "use the model's own classes, or another model"
)


class ClassMap(NamedTuple):
    """Where the classes of a run are in the head of its initial model."""

    known: int
    """Number of the model's classes."""
    rows: tuple[int | None, ...]
    """For each class of the run its row in the model's head; None for a class that is new to the model."""


def class_map(classes: Sequence[str], known: Sequence[str]) -> ClassMap | None:
    """Return where a run's classes are in its initial model; None if both have the same classes in the same order.

    Args:
        known: Those of the initial model, in the order of its outputs.
    """
    places = {name: row for row, name in enumerate(known)}
    return None if tuple(classes) == tuple(known) else ClassMap(len(known), tuple(map(places.get, classes)))


def is_linear_head(shapes: Sequence[tuple[int, ...]], num_classes: int) -> bool:
    """Return whether a head is one linear layer: a weight `[M, D]`, D above 0, with or without a bias `[M]`."""
    weights, others = [s for s in shapes if len(s) == 2], [s for s in shapes if len(s) != 2]
    is_weight = len(weights) == 1 and weights[0][0] == num_classes and weights[0][1] > 0
    return is_weight and others in ([], [(num_classes,)])


def class_fault(classes: Sequence[str], known: Sequence[str], *, drops: bool) -> str | None:
    """Return a sentence about a class of the initial model that the run would lose unasked; None if there is none.

    Args:
        drops: Whether the run may lose classes (`run.drop_classes`).
    """
    kept = set(classes)
    lost = [name for name in known if name not in kept]
    if drops or not lost:
        return None
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return (
        f"the initial model knows class {lost[0]!r}{more}, which data.classes does not; add it or set run.drop_classes"
    )
