"""A mini-batch in numpy for tests of methods' losses."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fedplcc.method_contract.numpy_ops import NumpyOps, cross_entropy, on_device
from fedplcc.shared.methods.step import ClientStep
from fedplcc.shared.types import PrototypeSet


def a_step(
    features_BD: npt.ArrayLike,
    labels_B: npt.ArrayLike,
    prototypes: PrototypeSet | None,
    *,
    num_classes: int = 2,
    round_number: int = 2,
    reference_features: Mapping[str, npt.ArrayLike] | None = None,
) -> ClientStep:
    """A mini-batch whose logits are the features' first components, repeated where there are too few."""
    features = np.asarray(features_BD, dtype=np.float64)
    labels = np.asarray(labels_B, dtype=np.int64)
    logits = np.resize(features, (len(labels), num_classes))
    return ClientStep(
        ops=NumpyOps(),
        features_BD=features,
        logits_BM=logits,
        labels_B=labels,
        task_loss=cross_entropy(logits, labels),
        params={},
        start={},
        prototypes=None if prototypes is None or len(prototypes) == 0 else on_device(prototypes, num_classes),
        round=round_number,
        total_rounds=10,
        reference_features={name: np.asarray(rows, np.float64) for name, rows in (reference_features or {}).items()},
    )
