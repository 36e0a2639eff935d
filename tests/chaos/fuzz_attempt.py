"""Everything a client sends to have one update accepted, as plain records that a mutator can spoil anywhere.

A mutant is made in three stages, each of which may be spoilt: the material (arrays and counts), the blobs (bytes, named by
their right SHA-256), and the messages (uploads chunk by chunk, and the commit).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.convert.payloads import blob_to_proto
from fedplcc.shared.convert.updates import update_to_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from fedplcc.shared.types import LOCAL_CLUSTER, MODEL, BlobRef, Payload, Task, Update
from tests.support.federation.numpy_client import NumpyClient

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A tensor by its bytes: of any dtype that safetensors can name, whatever numpy has."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Tensors = Mapping[str, "Array | Raw"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Target of a mutant: one client's task in one round of one run, and the facts known from outside."""

    client: NumpyClient
    task: Task
    config: RunConfig
    start: bytes
    """The round's global model."""
    foreign: tuple[BlobRef, ...]
    """Blobs that are there, of others: of another client, and what the aggregator made."""
    others: tuple[NumpyClient, ...]
    """Other clients of the run."""
    max_chunk_bytes: int
    max_blob_bytes: int
    max_inline_bytes: int

    @property
    def run_id(self) -> str:
        assert self.task.run is not None
        return self.task.run.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A local model, a prototype set and an update, before they are bytes."""

    model: Tensors
    prototypes: Tensors
    update: Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Blobs:
    """The bytes of the model and of the prototypes."""

    model: bytes
    prototypes: bytes
    update: Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One upload: its header, or none, then chunks."""

    kind: str
    header: pb2.BlobHeader | None
    chunks: tuple[tuple[int, bytes], ...]
    has_second_header: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The calls of one attempt: uploads, then the commit; or one call of any method with any bytes."""

    uploads: tuple[Sending, ...] = ()
    commit: pb2.CommitUpdateRequest | None = None
    stray: tuple[str, bytes] | None = None
    """A method, "RoundService/Join", and what is sent to it."""


def valid_material(scene: Scene, rng: np.random.Generator) -> Material:
    """An honest update that nobody has sent before: noise around the global model, and prototypes of it."""
    client, model = scene.client, dict(arrays_of(scene.start))
    trained = {
        name: value + 1 if value.dtype == np.int64 else (value + rng.normal(size=value.shape)).astype(np.float32)
        for name, value in sorted(model.items())  # the library's own order changes from call to call
    }
    honest = client.prototypes(scene.task)
    prototypes: dict[str, Array | Raw] = {
        "vectors": (honest.vectors + rng.random(honest.vectors.shape)).astype(np.float32),
        "class_ids": honest.class_ids,
        "weights": honest.weights,
        "group_ids": honest.group_ids,
    }
    update = Update(
        client_id=client.client_id,
        payload=Payload(scalars={"norm": 0.5}, int_lists={"steps": (10, 20)}, metadata={"note": "x"}),
        num_examples=sum(client.counts),
        class_counts=client.counts,
        losses={"ce": 1.0},
        timings={"train_seconds": 0.25},
    )
    return Material(model=trained, prototypes=prototypes, update=update)


def to_blobs(material: Material) -> Blobs:
    """The material as bytes."""
    return Blobs(
        model=safetensors_bytes(material.model),
        prototypes=safetensors_bytes(material.prototypes),
        update=material.update,
    )


def to_attempt(scene: Scene, blobs: Blobs) -> Attempt:
    """The calls that send these bytes, each under its right name, and commit them."""
    refs = (_named(MODEL, blobs.model), _named(LOCAL_CLUSTER, blobs.prototypes))
    uploads = []
    for kind, ref, data in zip(("UploadModel", "UploadPrototypes"), refs, (blobs.model, blobs.prototypes), strict=True):
        header = UploadHeader(
            run_id=scene.run_id,
            round=scene.task.round,
            client_id=scene.client.client_id,
            instance_token=scene.client.token,
            blob=ref,
        )
        uploads.append(
            Sending(kind=kind, header=upload_header_to_proto(header), chunks=cut(data, scene.max_chunk_bytes))
        )
    commit = update_to_commit(
        blobs.update,
        run_id=scene.run_id,
        round_number=scene.task.round,
        instance_token=scene.client.token,
    )
    commit.payload.tensor_groups.append(blob_to_proto(refs[0]))
    commit.payload.prototype_sets.append(blob_to_proto(refs[1]))
    return Attempt(uploads=tuple(uploads), commit=commit)


def inline(attempt: Attempt) -> Attempt:
    """The attempt with the bytes of its uploads inside its commit, whatever their headers say."""
    if attempt.commit is None:
        return attempt
    commit = pb2.CommitUpdateRequest()
    commit.CopyFrom(attempt.commit)
    commit.inline_blobs.extend(b"".join(data for _, data in upload.chunks) for upload in attempt.uploads)
    return replace(attempt, uploads=(), commit=commit)


def cut(data: bytes, chunk_bytes: int) -> tuple[tuple[int, bytes], ...]:
    """The data in chunks with their offsets."""
    return tuple((begin, data[begin : begin + chunk_bytes]) for begin in range(0, len(data), chunk_bytes))


def safetensors_bytes(tensors: Tensors) -> bytes:
    """A safetensors file written without any library, laid out as the library does: by dtype size, then by name."""
    raws = {name: value if isinstance(value, Raw) else raw(value) for name, value in tensors.items()}
    order = sorted(raws, key=lambda name: (-_item_bytes(raws[name]), name))
    return laid_out({name: raws[name] for name in order})


def laid_out(raws: Mapping[str, Raw]) -> bytes:
    """A safetensors file with the tensors in this order."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in raws.items():
        offsets = [len(data), len(data) + len(value.data)]
        header[name] = {"dtype": value.dtype, "shape": list(value.shape), "data_offsets": offsets}
        data += value.data
    text = json.dumps(header, separators=(",", ":")).encode()
    return with_header(text + b" " * (-len(text) % 8), data)


def with_header(text: bytes, data: bytes) -> bytes:
    """A file of this header and these bytes behind it."""
    return struct.pack("<Q", len(text)) + text + data


def split(blob: bytes) -> tuple[bytes, bytes]:
    """The header's text of a safetensors file, and what is behind it."""
    (length,) = struct.unpack("<Q", blob[:8])
    return blob[8 : 8 + length], blob[8 + length :]


def raw(value: Array) -> Raw:
    """An array by its bytes."""
    names = {"f4": "F32", "i8": "I64", "f8": "F64", "f2": "F16", "i4": "I32", "u1": "U8", "b1": "BOOL"}
    return Raw(dtype=names[value.dtype.str[1:]], shape=value.shape, data=value.tobytes())


def arrays_of(blob: bytes) -> Mapping[str, Array]:
    """The tensors of a file, by the library."""
    from safetensors.numpy import load

    return load(blob)


def _item_bytes(value: Raw) -> int:
    return {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2, "U8": 1, "BOOL": 1}[value.dtype]


def _named(role: str, data: bytes) -> BlobRef:
    return BlobRef(role, hashlib.sha256(data).hexdigest(), max(1, len(data)))


def flipped(rng: Random, data: bytes, begin: int, end: int) -> bytes:
    """Flip a few bits between two places."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if begin < end:
            changed[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
    return bytes(changed)
