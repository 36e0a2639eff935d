"""Client losses on plain numpy: `Ops` in float64.

Shape legend: B batch, D feature size, M classes, G prototypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.methods.parts.prototypes import class_means
from fedplcc.shared.methods.step import Prototypes
from fedplcc.shared.types import PrototypeSet

Array = npt.NDArray[Any]


class NumpyOps:
    """`fedplcc.shared.methods.step.Ops` without gradients."""

    def cosine(self, x_BD: Array, y_GD: Array) -> Array:
        """See `Ops.cosine`."""
        return np.asarray(self._unit(x_BD) @ self._unit(y_GD).T)

    def paired_cosine(self, x_BD: Array, y_BD: Array) -> Array:
        """See `Ops.paired_cosine`."""
        return np.asarray((self._unit(x_BD) * self._unit(y_BD)).sum(-1))

    def row_norm(self, x_BD: Array) -> Array:
        """See `Ops.row_norm`."""
        return np.asarray(np.linalg.norm(x_BD, axis=-1))

    def clamp_min(self, x: Array, minimum: float) -> Array:
        """See `Ops.clamp_min`."""
        return np.maximum(x, minimum)

    def log(self, x: Array) -> Array:
        """See `Ops.log`."""
        return np.asarray(np.log(x))

    def exp(self, x: Array) -> Array:
        """See `Ops.exp`."""
        return np.asarray(np.exp(x))

    def is_class(self, labels_B: Array, num_classes: int) -> Array:
        """See `Ops.is_class`."""
        return np.asarray(labels_B[:, None] == np.arange(num_classes))

    def logsumexp(self, x: Array, where: Array | None = None) -> Array:
        """See `Ops.logsumexp`."""
        where = np.ones(x.shape, bool) if where is None else where
        is_any = where.any(-1)
        top = np.where(is_any, np.where(where, x, -np.inf).max(-1), 0.0)
        total = np.where(where, np.exp(x - top[..., None], where=where, out=np.zeros(x.shape)), 0.0).sum(-1)
        return np.where(is_any, top + np.log(np.where(is_any, total, 1.0)), 0.0)

    def softplus(self, x: Array) -> Array:
        """See `Ops.softplus`."""
        return np.asarray(np.logaddexp(0.0, x))

    def largest(self, x: Array, where: Array, count_B: Array) -> Array:
        """See `Ops.largest`."""
        order = np.argsort(-np.where(where, x, -np.inf), axis=-1, kind="stable")
        rank = np.argsort(order, axis=-1, kind="stable")
        return where & (rank < count_B[:, None])

    def where(self, mask: Array, x: Array, other: float) -> Array:
        """See `Ops.where`."""
        return np.where(mask, x, other)

    @staticmethod
    def _unit(x: Array) -> Array:
        return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-8))


def cross_entropy(logits_BM: Array, labels_B: Array) -> np.float64:
    """The mean cross-entropy, as a trainer hands it to every method."""
    normaliser_B = NumpyOps().logsumexp(logits_BM)
    return np.float64((normaliser_B - logits_BM[np.arange(len(labels_B)), labels_B]).mean())


def on_device(prototypes: PrototypeSet, num_classes: int) -> Prototypes:
    """A prototype set as a client loss sees it."""
    return Prototypes(
        vectors_GD=prototypes.vectors.astype(np.float64),
        class_ids_G=prototypes.class_ids,
        weights_G=prototypes.weights.astype(np.float64),
        class_sizes_M=np.bincount(prototypes.class_ids, minlength=num_classes).astype(np.float64),
        group_ids_G=prototypes.group_ids,
        class_means_MD=class_means(prototypes, num_classes).astype(np.float64),
        num_groups=prototypes.num_groups,
    )
