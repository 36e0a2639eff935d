"""Data that travel between clients and aggregator: blobs by name, the containers that hold them, and prototypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
MODEL = "model"
"""Role of the tensor group that holds the whole model."""
ENCODED = "encoded_model"
"""Role of the blob that holds an encoded model, and of the server state that keeps the latest one."""
START = "start"
"""Name of the model that the next round starts from, where that is not the round's result."""
FEATURE_DIM = "feature_dim"
"""Integer list of round 0's update: the model's feature size D, one number."""
PARAMETERS, HEAD, BATCH_NORM = "parameters", "head", "batch_norm"
TENSOR_LISTS = (PARAMETERS, HEAD, BATCH_NORM)
"""Integer lists of round 0's update: which tensors are trained, belong to the head, belong to BatchNorm layers.

Each is ascending; a number is a tensor's place in the model's file, from 0.
"""
PUBLIC_DATA = "public_data"
"""Integer list of an update in a run with public images: the 32 bytes of the SHA-256 of the images that its sender has.
That of round 0's update is the run's."""
STREAM_PLACE = "stream_place"
"""Integer list of an update in a run with stages: pass and stage of the data that it was trained on."""
STAGE_DATA = "stage_data"
"""Integer list of an update in a run with stages: the 32 bytes of the SHA-256 of the images that it was trained on."""
CLASS_MEAN = "class_mean"
"""Kind of the prototypes that a client uploads: one mean per class, with sample counts."""
LOCAL_CLUSTER = "local_cluster"
"""Kind of the prototypes that a client uploads (FINCH* centres with sample counts)."""
GLOBAL_CLUSTER = "global_cluster"
"""Kind of the prototypes that the aggregator sends (FINCH* centres with normalised weights)."""
Comparison = Literal["cosine", "distance"]
"""How a method compares prototypes: by the angle between them, or by the Euclidean distance."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A blob by name: role within its payload, lowercase hexadecimal SHA-256, size."""

    role: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The five generic containers in which every method sends its data, in both directions, and how the model travels."""

    tensor_groups: tuple[BlobRef, ...] = ()
    prototype_sets: tuple[BlobRef, ...] = ()
    scalars: Mapping[str, float] = field(default_factory=dict)
    int_lists: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    encoded: BlobRef | None = None
    """The model as an encoded difference from the one that the round's training began with (shared/encoded_models.py)."""

    @property
    def blobs(self) -> tuple[BlobRef, ...]:
        """Every blob: tensor groups, then prototype sets."""
        return self.tensor_groups + self.prototype_sets

    @property
    def moved(self) -> tuple[BlobRef, ...]:
        """Every blob as it travels: the encoded model in the place of the model, where there is one."""
        encoded = self.encoded
        return tuple(blob if encoded is None or blob.role != MODEL else encoded for blob in self.blobs)

    def tensor_group(self, role: str) -> BlobRef | None:
        """The tensor group with this role, if there is one."""
        return next((blob for blob in self.tensor_groups if blob.role == role), None)

    def prototype_set(self, kind: str) -> BlobRef | None:
        """The prototype set of this kind, if there is one."""
        return next((blob for blob in self.prototype_sets if blob.role == kind), None)


@dataclass(frozen=True, slots=True, eq=False)
class PrototypeSet:
    """Prototypes as one dense matrix; classes may have different numbers of rows, or none.

    Attributes:
        vectors: float32 `[n, D]`, not normalised; D is 0 while the feature size is unknown.
        class_ids: int64 `[n]`, each in [0, M).
        weights: float32 `[n]`, positive: sample counts on upload, normalised per class on download (FedPLCC, eq. 11).
        group_ids: int64 `[n]`, owner or cluster where a method needs one, else -1.
    """

    vectors: FloatArray
    class_ids: IntArray
    weights: FloatArray
    group_ids: IntArray

    def __len__(self) -> int:
        return len(self.class_ids)

    @property
    def num_groups(self) -> int:
        """Number of different group ids."""
        return len(np.unique(self.group_ids))

    @classmethod
    def empty(cls, dim: int = 0) -> PrototypeSet:
        """Return a set without rows, of feature size `dim`."""
        none = np.zeros(0, dtype=np.int64)
        return cls(np.zeros((0, dim), np.float32), none, np.zeros(0, np.float32), none)

    @classmethod
    def of(cls, vectors: npt.ArrayLike, class_ids: npt.ArrayLike, weights: npt.ArrayLike) -> PrototypeSet:
        """Return a set without group ids, from anything that numpy can convert."""
        ids = np.asarray(class_ids, dtype=np.int64)
        rows = np.asarray(vectors, dtype=np.float32)
        return cls(rows, ids, np.asarray(weights, dtype=np.float32), np.full(len(ids), -1, dtype=np.int64))
