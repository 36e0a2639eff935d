"""Sizes of local and global clusters: the number of samples behind each prototype. Pure.

FedPLCC weighs a prototype by the samples behind it (FedPLCC, eq. 9 to 11) because clusters differ much in size; these
numbers show how much they differ in a run.

Shape legend: C clusters, M classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedplcc.pictures.points import DoubleArray
from shared.types import IntArray, PrototypeSet

SHARE_TOLERANCE = 1e-3
"""Tolerance for the sum of the float32 shares of a class, which is 1."""
SAMPLES, PERCENT, NOTHING = "samples", "% of its class", ""
"""Units of sizes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sizes:
    """Local clusters by client, or global clusters by class.

    Attributes:
        owners: Names of the owners.
        owner_C: Owner of each cluster, an index into `owners`.
        class_ids_C: Its class.
        sizes_C: Its size, in `unit`.
        unit: `SAMPLES`; `PERCENT` where only shares are known; `NOTHING` where the method gives no sizes and each is 1.
    """

    owners: tuple[str, ...]
    owner_C: IntArray
    class_ids_C: IntArray
    sizes_C: DoubleArray
    unit: str

    def __len__(self) -> int:
        return len(self.sizes_C)

    @property
    def are_known(self) -> bool:
        """Whether there are clusters with known sizes."""
        return self.unit != NOTHING and len(self) > 0

    def of(self, owner: int) -> DoubleArray:
        """Return the sizes of one owner's clusters, largest first within each class, classes in order."""
        rows = np.flatnonzero(self.owner_C == owner)
        order = np.lexsort((-self.sizes_C[rows], self.class_ids_C[rows]))
        sizes_C: DoubleArray = self.sizes_C[rows[order]]
        return sizes_C

    def classes_of(self, owner: int) -> IntArray:
        """Return the classes of one owner's clusters, in the order of `of`."""
        return np.sort(self.class_ids_C[self.owner_C == owner])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterSizes:
    """The clusters of a run's model.

    Attributes:
        title: Name of the model, for people.
        facts: Description of the model, for programs.
        classes: The run's class names.
        local: Clusters of each client's training images.
        global_: Clusters of each class at the aggregator.
    """

    title: str
    facts: Mapping[str, Any]
    classes: tuple[str, ...]
    local: Sizes
    global_: Sizes

    def table(self) -> str:
        """Return all clusters as CSV: side, client, class, size, unit. An unknown size is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["side", "client", "class", "size", "unit"])
        for side, found in (("local", self.local), ("global", self.global_)):
            for number, owner in enumerate(found.owners):
                for class_id, size in zip(found.classes_of(number), found.of(number), strict=True):
                    shown = f"{size:.6g}" if found.are_known else ""
                    writer.writerow([side, owner if side == "local" else "", self.classes[class_id], shown, found.unit])
        return text.getvalue()

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs, without single clusters."""
        return {
            "title": self.title,
            **self.facts,
            "local": _side_facts(self.local),
            "global": _side_facts(self.global_),
            "alt_text": self.alt_text(),
            "caption": self.caption(),
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for people on each side."""
        yield self.title
        for side, found in (("local", self.local), ("global", self.global_)):
            yield f"{side} prototypes: {summary(found)}"

    def caption(self) -> str:
        """Return the caption of the picture in a paper."""
        return (
            f"Samples behind each prototype of {self.title}. Local prototypes: of the clients' training images under this "
            f"model; {summary(self.local)}. Global prototypes: {summary(self.global_)}. A segment is one prototype; "
            "its colour is its class. CV is the standard deviation over the mean: 0 where all clusters are of one size."
        )

    def alt_text(self) -> str:
        """Return a text for people who do not see the picture."""
        return (
            f"Histograms of the sizes of local and global clusters of {self.title}, and bars of how the samples of each "
            f"client and of each class divide among them. Local: {summary(self.local)}. Global: {summary(self.global_)}."
        )


def local_sizes(names: Sequence[str], sets: Sequence[PrototypeSet], *, are_counts: bool) -> Sizes:
    """Return the sizes of the clients' clusters.

    Args:
        names: The clients.
        sets: The prototypes that each would upload.
        are_counts: Whether their weights are sample counts.
    """
    owner_C = np.repeat(np.arange(len(sets)), [len(prototypes) for prototypes in sets])
    weights_C = np.concatenate([prototypes.weights for prototypes in sets]).astype(np.float64)
    return Sizes(
        owners=tuple(names),
        owner_C=owner_C,
        class_ids_C=np.concatenate([prototypes.class_ids for prototypes in sets]),
        sizes_C=weights_C if are_counts else np.ones(len(weights_C)),
        unit=SAMPLES if are_counts else NOTHING,
    )


def global_sizes(classes: Sequence[str], prototypes: PrototypeSet, samples_M: IntArray | None) -> Sizes:
    """Return the sizes of the aggregator's clusters.

    Args:
        classes: The run's class names.
        prototypes: The global prototypes. Their weights are shares of their class's samples; or sample counts of prototypes
            with a group id, where those without one are averages and left out.
        samples_M: Samples of each class behind the pooled prototypes; None if unknown.
    """
    ids, weights_C = prototypes.class_ids, prototypes.weights.astype(np.float64)
    sums_M = np.bincount(ids, weights=weights_C, minlength=len(classes))
    are_shares = bool((np.abs(sums_M[ids] - 1) < SHARE_TOLERANCE).all())
    is_pooled_C = prototypes.group_ids >= 0
    if are_shares and samples_M is not None:
        sizes_C, unit = weights_C * samples_M[ids], SAMPLES
    elif are_shares:
        sizes_C, unit = 100 * weights_C, PERCENT
    elif is_pooled_C.any():
        ids, sizes_C, unit = ids[is_pooled_C], weights_C[is_pooled_C], SAMPLES
    else:
        sizes_C, unit = np.ones(len(ids)), NOTHING
    return Sizes(owners=tuple(classes), owner_C=ids, class_ids_C=ids, sizes_C=sizes_C, unit=unit)


def variation(sizes_C: DoubleArray) -> float:
    """Return the coefficient of variation: standard deviation over mean, 0 if all sizes are equal."""
    return float(sizes_C.std() / sizes_C.mean())


def summary(found: Sizes) -> str:
    """Return a summary of all clusters of a side, in words."""
    count = f"{len(found)} prototype{'' if len(found) == 1 else 's'}"
    if not len(found):
        return "none"
    if not found.are_known:
        return f"{count}; the method does not say how many samples are behind each"
    sizes_C = found.sizes_C
    smallest, median, largest = (f"{round(float(np.quantile(sizes_C, at)), 1):g}" for at in (0, 0.5, 1))
    if smallest == largest:
        return f"{count} of {median} {found.unit}"
    return f"{count} of {smallest} to {largest} {found.unit}, median {median}, CV {variation(sizes_C):.2f}"


def _side_facts(found: Sizes) -> dict[str, Any]:
    owners = {owner: _facts(found, found.of(number)) for number, owner in enumerate(found.owners)}
    return {"unit": found.unit, "all": _facts(found, found.sizes_C), "by_owner": owners}


def _facts(found: Sizes, sizes_C: DoubleArray) -> dict[str, Any]:
    facts: dict[str, Any] = {"num_prototypes": len(sizes_C)}
    if found.are_known and len(sizes_C):
        facts |= {
            "smallest": float(sizes_C.min()),
            "median": float(np.median(sizes_C)),
            "mean": float(sizes_C.mean()),
            "largest": float(sizes_C.max()),
            "variation": variation(sizes_C),
        }
    return facts
