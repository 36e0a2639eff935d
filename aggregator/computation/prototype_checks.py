"""Checks of an uploaded prototype set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.aggregator.computation.checked import malformed
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.errors import UpdateNormExceeded
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.prototypes import (
    MAX_ROWS,
    MAX_ROWS_PER_CLASS,
    PrototypeExchange,
    excess_rows,
    per_class_counts,
)
from fedplcc.shared.types import (
    CLASS_MEAN,
    PrototypeSet,
    Update,
)

MAX_PROTOTYPE_BYTES = 2**28
"""Largest prototype set; unlike a model it is read whole into memory."""
PROTOTYPE_HEADER_BYTES = 4096
"""More than the header of a prototype set needs."""
BYTES_BESIDE_VECTOR = 20
"""Bytes of a prototype's class, weight and group."""


def prototype_norm(prototypes: PrototypeSet) -> float:
    """Return the largest L2 norm of a prototype, in float64, where no finite float32 vector overflows; 0 without any."""
    return float(np.linalg.norm(prototypes.vectors.astype(np.float64), axis=1).max(initial=0.0))


def check_prototype_norms(prototypes: PrototypeSet, most: float) -> None:
    """Check the L2 norm of each prototype, in float64, where no finite float32 vector overflows.

    Args:
        prototypes: The set, its finiteness checked.
        most: The largest norm that the run accepts.

    Raises:
        UpdateNormExceeded: A norm is larger than `most`; the metadata have both, and the prototype's class.
    """
    if prototype_norm(prototypes) <= most:
        return
    norms_K = np.linalg.norm(prototypes.vectors.astype(np.float64), axis=1)
    norm, class_id = float(norms_K.max()), int(prototypes.class_ids[norms_K.argmax()])
    raise UpdateNormExceeded(
        f"a prototype of class {class_id} has norm {norm:.6g}; the run takes up to {most:g} (admission.max_prototype_norm)",
        check="prototype_norm",
        norm=f"{norm:.9g}",
        max_prototype_norm=f"{most:.9g}",
        class_id=str(class_id),
    )


def max_prototype_bytes(config: RunConfig, dim: int) -> int:
    """Return the size of the largest prototype set that a run allows, whose features have size `dim`."""
    rows = min(MAX_ROWS, len(config.data.classes) * config.max_prototypes_per_class)
    return min(MAX_PROTOTYPE_BYTES, PROTOTYPE_HEADER_BYTES + rows * (4 * dim + BYTES_BESIDE_VECTOR))


def check_prototypes(
    prototypes: PrototypeSet,
    update: Update,
    *,
    method: Method,
    dim: int,
    class_counts: Sequence[int],
    max_per_class: int = MAX_ROWS_PER_CLASS,
) -> None:
    """Check an uploaded prototype set (docs/algorithms.md, rule 1.7).

    Args:
        prototypes: The set, structure already checked.
        dim: The run's feature size D.
        class_counts: The client's samples per class, `[M]`.
        max_per_class: Most prototypes of a class that the run allows.

    Raises:
        MalformedUpdate: check is dim, class_id, group_id, finite, weight, count (also for several means of a class) or sum.
    """
    if prototypes.vectors.shape[1] != dim and len(prototypes):
        raise malformed("dim", f"prototypes have {prototypes.vectors.shape[1]} features, the model {dim}")
    if len(prototypes) > update.num_examples:
        raise malformed("count", f"{len(prototypes)} prototypes for {update.num_examples} samples")
    num_classes = len(class_counts)
    if len(prototypes) and not (prototypes.class_ids.min() >= 0 and prototypes.class_ids.max() < num_classes):
        raise malformed("class_id", f"a prototype's class id is outside [0, {num_classes})")
    if len(prototypes) and prototypes.group_ids.min() < -1:
        raise malformed("group_id", "a prototype's group id is neither an id nor -1 for none")
    excess = excess_rows(prototypes, num_classes, max_per_class)
    if excess is not None:
        raise malformed("count", f"the update has {excess}")
    if not (np.isfinite(prototypes.vectors).all() and np.isfinite(prototypes.weights).all()):
        raise malformed("finite", "a prototype or its weight is NaN or infinite")
    if len(prototypes) and prototypes.weights.min() <= 0:
        raise malformed("weight", "a prototype's weight is not positive")
    counts_M = per_class_counts(prototypes.class_ids, num_classes)
    exchange = method.part(PrototypeExchange)
    if exchange is not None and exchange.kind == CLASS_MEAN and counts_M.max() > 1:
        # Each further mean of a class would count like one more client in plain means over clients.
        raise malformed("count", f"{counts_M.max()} means of class {counts_M.argmax()}, and a client has one per class")
    if exchange is not None and exchange.has_noise:
        if (prototypes.weights > update.num_examples).any():
            raise malformed("weight", f"a prototype weighs more than all {update.num_examples} samples")
    elif ((counts_M > 0) & (np.asarray(class_counts) == 0)).any():
        raise malformed("class_id", "a prototype is of a class that the client has no samples of")
    if exchange is not None and exchange.weights_are_counts:
        _check_sums(prototypes, update, class_counts)


def _check_sums(prototypes: PrototypeSet, update: Update, class_counts: Sequence[int]) -> None:
    weights = prototypes.weights.astype(np.float64)
    if (weights != np.rint(weights)).any():
        raise malformed("weight", "a prototype's weight is a sample count, so a whole number")
    sums = np.bincount(prototypes.class_ids, weights=weights, minlength=len(class_counts))
    if (sums > np.asarray(class_counts)).any():
        raise malformed("sum", "the prototypes of a class stand for more samples than the client has of it")
    if sums.sum() != update.num_examples - update.num_excluded:
        raise malformed(
            "sum",
            f"the prototypes stand for {sums.sum():.0f} samples, expected {update.num_examples} - {update.num_excluded}",
        )
