"""Weighted means of whole models that the aggregator keeps."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.aggregator.computation.fold import WeightedModel, fold_models
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.methods import fedavg
from fedplcc.shared.tensors import TensorTable
from fedplcc.shared.types import BlobRef


def mean_model(
    role: str, models: Sequence[tuple[BlobRef, float]], table: TensorTable, blobs: BlobStore, block_elements: int
) -> BlobRef:
    """Store sum_i v_i w_i / sum_i v_i of models w_i with weights v_i; of integers, the elementwise maximum.

    Args:
        models: Models of one layout with positive weights, at least one.

    Raises:
        PayloadCorrupt: A stored blob is missing or has changed.
    """
    weighted = [WeightedModel(blobs.verified_path(blob.sha256), weight) for blob, weight in models]
    return blobs.put(
        role, fold_models(table, weighted[0].path, weighted, fedavg.METHOD, fedavg.Config(), block_elements)
    )
