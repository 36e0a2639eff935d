"""A second opinion on an attempt: whether it is a good update after all, by the safetensors library and plain numpy.

Written from the contract (protos/, the run configuration, docs/algorithms.md, rule 1.7), and from none of the aggregator's
checks: where the two disagree, one of them is wrong.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.chaos.fuzz_attempt import Attempt, Scene, Sending, split
from tests.support.federation.numpy_client import FEATURE_DIM

MAX_SAMPLES = 2**29
MAX_ROWS_OF_A_CLASS, MAX_ROWS = 4096, 65_536
MAX_NAMED, MAX_TEXT, MAX_INTEGERS = 64, 1024, 10_000
MAX_HEADER_BYTES = 2**20
DTYPES = {"F32": np.dtype(np.float32), "I64": np.dtype(np.int64)}


def faults(attempt: Attempt, scene: Scene) -> list[str]:
    """What is wrong with an attempt; empty where it is a good update."""
    if attempt.commit is None:
        return ["it commits nothing"]
    return list(_faults(attempt, attempt.commit, scene))


def _faults(attempt: Attempt, commit: pb2.CommitUpdateRequest, scene: Scene) -> Iterator[str]:
    yield from _of_address(commit, scene, "commit")
    yield from _of_numbers(commit, scene)
    groups, sets = commit.payload.tensor_groups, commit.payload.prototype_sets
    if [blob.role for blob in groups] != ["model"] or [blob.role for blob in sets] != ["local_cluster"]:
        yield "roles"
        return
    delivered = {sha256: data for upload in attempt.uploads for sha256, data in _delivered(upload, scene)}
    inline = {hashlib.sha256(data).hexdigest(): data for data in commit.inline_blobs}
    if len(commit.inline_blobs) > MAX_NAMED or sum(map(len, commit.inline_blobs)) > scene.max_inline_bytes:
        yield "too much comes with the commit"
    named = {(blob.sha256, blob.size_bytes) for blob in (groups[0], sets[0])}
    if any((sha256, len(data)) not in named for sha256, data in inline.items()):
        yield "bytes that the payload does not name come with the commit"
    delivered |= inline
    for blob in (groups[0], sets[0]):
        if len(delivered.get(blob.sha256, b"")) != blob.size_bytes:
            yield f"blob {blob.role} was not delivered as it is named"
    if groups[0].sha256 in delivered:
        yield from _of_model(delivered[groups[0].sha256], scene)
    if sets[0].sha256 in delivered:
        yield from _of_prototypes(delivered[sets[0].sha256], commit, scene)


def _of_address(message: Any, scene: Scene, what: str) -> Iterator[str]:
    right = (scene.run_id, scene.task.round, scene.client.client_id, scene.client.token)
    if (message.run_id, message.round, message.client_id, message.instance_token) != right:
        yield f"{what} is in another name"


def _delivered(upload: Sending, scene: Scene) -> Iterator[tuple[str, bytes]]:
    """The blob that an upload leaves with the aggregator, if it keeps to the protocol."""
    header = upload.header
    if header is None or upload.has_second_header or list(_of_address(header, scene, "upload")):
        return
    data = b""
    for offset, piece in upload.chunks:
        if offset != len(data) or len(piece) > scene.max_chunk_bytes:
            return
        data += piece
    named: types_pb2.BlobRef = header.blob
    is_right = 1 <= len(data) == named.size_bytes <= scene.max_blob_bytes and 1 <= len(named.role) <= MAX_TEXT
    if is_right and hashlib.sha256(data).hexdigest() == named.sha256:
        yield named.sha256, data


def _of_numbers(commit: pb2.CommitUpdateRequest, scene: Scene) -> Iterator[str]:
    counts, limit = list(commit.class_counts), scene.config.admission.max_num_examples
    has = sum(scene.client.counts)
    if not 1 <= commit.num_examples <= min(has, MAX_SAMPLES if limit is None else limit):
        yield "num_examples"
    if len(counts) != len(scene.config.data.classes) or any(count < 0 for count in counts):
        yield "class counts"
    if any(counts) and sum(counts) != commit.num_examples:  # a client may keep them to itself
        yield "class counts do not sum"
    if any(count > said for count, said in zip(counts, scene.client.counts, strict=False)):
        yield "more samples of a class than said"
    if not 0 <= commit.num_excluded <= commit.num_examples:
        yield "num_excluded"
    payload = commit.payload
    for numbers in (commit.losses, commit.timings, payload.scalars):
        if len(numbers) > MAX_NAMED or not all(len(name) <= MAX_NAMED for name in numbers):
            yield "names"
        if not all(map(math.isfinite, numbers.values())):
            yield "a named number is not finite"
    texts: list[Mapping[str, Any]] = [payload.int_lists, payload.metadata]
    if any(len(entries) > MAX_NAMED or any(len(name) > MAX_TEXT for name in entries) for entries in texts):
        yield "lists or texts"
    if any(len(text) > MAX_TEXT for text in payload.metadata.values()):
        yield "a text is too long"
    if any(len(entry.values) > MAX_INTEGERS for entry in payload.int_lists.values()):
        yield "a list is too long"


def _of_model(data: bytes, scene: Scene) -> Iterator[str]:
    arrays = _loaded(data)
    if isinstance(arrays, str):
        yield f"model: {arrays}"
        return
    start = load(scene.start)
    if {name: (value.dtype, value.shape) for name, value in arrays.items()} != {
        name: (value.dtype, value.shape) for name, value in start.items()
    }:
        yield "model: other tensors"
        return
    if split(data)[0] != split(scene.start)[0]:
        yield "model: laid out otherwise"  # the fold reads all models at the same offsets
    floats = [name for name, value in arrays.items() if value.dtype == np.float32]
    if not all(np.isfinite(arrays[name]).all() for name in floats):
        yield "model: not finite"
        return
    limit = scene.config.admission.max_update_norm
    away = np.concatenate([(arrays[name].astype(np.float64) - start[name]).ravel() for name in floats])
    if np.linalg.norm(away) > (1e18 if limit is None else min(limit, 1e18)):  # beyond it no float32 has a square
        yield "model: too far away"


def _of_prototypes(data: bytes, commit: pb2.CommitUpdateRequest, scene: Scene) -> Iterator[str]:
    arrays = _loaded(data)
    if isinstance(arrays, str):
        yield f"prototypes: {arrays}"
        return
    kinds = {"vectors": ("f4", 2), "class_ids": ("i8", 1), "weights": ("f4", 1), "group_ids": ("i8", 1)}
    if {name: (value.dtype.str[1:], value.ndim) for name, value in arrays.items()} != kinds:
        yield "prototypes: other tensors"
        return
    vectors, ids, weights = arrays["vectors"], arrays["class_ids"], arrays["weights"]
    n, counts = len(ids), list(commit.class_counts)
    if {len(value) for value in arrays.values()} != {n}:
        yield "prototypes: other numbers of rows"
        return
    if n and vectors.shape[1] != FEATURE_DIM:
        yield "prototypes: another dimension"
    if n > min(commit.num_examples, MAX_ROWS):
        yield "prototypes: too many"
    if not all(0 <= class_id < len(counts) for class_id in ids.tolist()):
        yield "prototypes: unknown class"
        return
    if any(value < -1 for value in arrays["group_ids"].tolist()):
        yield "prototypes: group ids"
    if not (np.isfinite(vectors).all() and np.isfinite(weights).all()):
        yield "prototypes: not finite"
        return
    stands_for = [0.0] * len(counts)
    for class_id, weight in zip(ids.tolist(), weights.tolist(), strict=True):
        if weight <= 0 or weight != int(weight):
            yield "prototypes: a weight that is no count"
        if not counts[class_id]:
            yield "prototypes: of a class without samples"
        stands_for[class_id] += weight
    if any(ids.tolist().count(class_id) > MAX_ROWS_OF_A_CLASS for class_id in range(len(counts))):
        yield "prototypes: too many of a class"
    if any(weight > count for weight, count in zip(stands_for, counts, strict=True)):
        yield "prototypes: more samples of a class than there are"
    if sum(stands_for) != commit.num_examples - commit.num_excluded:
        yield "prototypes: do not stand for the samples"


def _loaded(data: bytes) -> dict[str, Any] | str:
    """The tensors of a file, or why it may not travel."""
    try:
        arrays = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError, OverflowError, AttributeError) as error:
        return f"the library cannot read it ({type(error).__name__})"
    text, _ = split(data)
    if len(text) > MAX_HEADER_BYTES:
        return "a header of more than a megabyte"
    pairs: list[list[tuple[str, Any]]] = []
    header = json.loads(text, object_pairs_hook=lambda found: pairs.append(found) or dict(found))  # type: ignore[func-returns-value]
    if any(len(dict(found)) < len(found) for found in pairs):
        return "a name that occurs twice"
    if "__metadata__" in header:
        return "metadata"
    if not header:
        return "no tensor"
    for name, entry in header.items():
        if set(entry) != {"dtype", "shape", "data_offsets"} or not name or len(name) > 256 or not name.isprintable():
            return "an entry or a name that does not travel"
        if entry["dtype"] not in DTYPES or len(entry["shape"]) > 32:
            return "a dtype or a shape that does not travel"
    return arrays
