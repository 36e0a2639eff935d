"""Ways to spoil an update, each a small pure function of a generator of random numbers: from a good one to a poisoned one.

A mutator belongs to the stage that it spoils (fuzz_attempt.py), and takes and returns what that stage has. Not every spoilt
update is bad: a flipped bit may leave another good model. That is for fuzz_judge.py to say, not for the mutator.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np

from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, types_pb2
from fedplcc.shared.types import Update
from tests.chaos.fuzz_attempt import (
    Array,
    Attempt,
    Blobs,
    Material,
    Raw,
    Scene,
    Sending,
    Tensors,
    laid_out,
    raw,
    split,
    with_header,
)
from tests.support.federation.numpy_client import FEATURE_DIM

Random: TypeAlias = random.Random
OfMaterial = Callable[[Random, Scene, Material], Material]
OfBlobs = Callable[[Random, Scene, Blobs], Blobs]
OfAttempt = Callable[[Random, Scene, Attempt], Attempt]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Mutator:
    """One way to spoil an update. `stage` is 0 for material, 1 for blobs, 2 for messages."""

    name: str
    stage: int
    change: Callable[[Random, Scene, Any], Any]


MUTATORS: dict[str, Mutator] = {}
"""Every mutator by name."""


def _mutator(stage: int) -> Callable[[_Function], _Function]:
    def register(function: _Function) -> _Function:
        name = function.__name__.replace("_", " ")
        MUTATORS[name] = Mutator(name, stage, function)
        return function

    return register


_material, _blobs, _messages = _mutator(0), _mutator(1), _mutator(2)

NAN, INF = float("nan"), float("inf")
LARGEST = float(np.finfo(np.float32).max)
HUGE_COUNTS = (2**29 + 1, 2**31, 2**53, 2**62, 2**63 - 1)
SIZES = (0, -1, -(2**63), 2**31, 2**40, 2**62, 2**63 - 1)


# Material: the model's arrays


@_material
def model_with_a_value_that_is_not_finite(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(["base.weight", "head.weight"])
    return _with_model(good, {name: _with_values(rng, good.model[name], [NAN, INF, -INF])})


@_material
def model_with_extreme_values(rng: Random, scene: Scene, good: Material) -> Material:
    """Very large and the smallest numbers: good ones, unless they are further away than the run allows."""
    name = rng.choice(["base.weight", "head.weight"])
    return _with_model(good, {name: _with_values(rng, good.model[name], [1e16, -1e16, 1e-45, -1e-45, -0.0, 1e12])})


@_material
def model_far_from_the_global_one(rng: Random, scene: Scene, good: Material) -> Material:
    factor = np.float32(10.0 ** rng.uniform(1, 30))
    floats = {name: value * factor for name, value in _arrays(good.model).items() if value.dtype == np.float32}
    return _with_model(good, floats)


@_material
def model_of_another_shape(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(["base.weight", "head.weight"])
    value = _arrays(good.model)[name]
    shapes = [
        value[:1],
        value[:, :1],
        value[0],
        value.reshape(-1),
        value.T.copy(),
        value[None],
        value[:0],
        value[:, :0],
    ]
    shapes += [np.concatenate([value, value]), value[:-1], np.asarray(value[0, 0]), value.reshape(*value.shape, 1)]
    return _with_model(good, {name: rng.choice(shapes)})


@_material
def model_with_a_scalar_that_is_a_list(rng: Random, scene: Scene, good: Material) -> Material:
    return _with_model(good, {"head.steps": np.ones(rng.choice([(1,), (1, 1), (0,), (2,)]), np.int64)})


@_material
def model_of_another_dtype(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.model))
    return _with_model(good, {name: _other_dtype(rng, _arrays(good.model)[name])})


@_material
def model_with_other_names(rng: Random, scene: Scene, good: Material) -> Material:
    model = dict(good.model)
    name = rng.choice(sorted(model))
    kept = model.pop(name)
    others = [name.upper(), f"{name} ", f" {name}", name.replace("e", "\u0435"), f"{name}\u0000", name * 40, "", "../x"]
    change = rng.choice(["missing", "extra", "renamed", "swapped"])
    if change == "extra":
        model |= {name: kept, rng.choice([*others, "extra", "__metadata__"]): kept}
    elif change == "renamed":
        model[rng.choice(others)] = kept
    elif change == "swapped":
        model = {"base.weight": good.model["head.weight"], "head.weight": good.model["base.weight"]}
        model["head.steps"] = good.model["head.steps"]
    return replace(good, model=model)


# Material: the prototypes


@_material
def prototypes_that_are_not_finite(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(["vectors", "weights"])
    return _with_prototypes(good, {name: _with_values(rng, good.prototypes[name], [NAN, INF, -INF])})


@_material
def prototypes_with_extreme_vectors(rng: Random, scene: Scene, good: Material) -> Material:
    """Zero rows, the largest and the smallest numbers: all of them good."""
    vectors = _arrays(good.prototypes)["vectors"].copy()
    vectors[rng.randrange(len(vectors))] = rng.choice([0.0, LARGEST, -LARGEST, 1e-45])
    return _with_prototypes(good, {"vectors": vectors})


@_material
def prototypes_with_other_weights(rng: Random, scene: Scene, good: Material) -> Material:
    weights = _arrays(good.prototypes)["weights"].copy()
    index = rng.randrange(len(weights))
    weights[index] = rng.choice(
        [0, -1, -weights[index], 0.5, weights[index] + 1, weights[index] + 0.25, 1e9, LARGEST, 1e-45]
    )
    return _with_prototypes(good, {"weights": weights})


@_material
def prototypes_of_other_classes(rng: Random, scene: Scene, good: Material) -> Material:
    ids = _arrays(good.prototypes)["class_ids"].copy()
    ids[rng.randrange(len(ids))] = rng.choice([-1, 0, 1, 2, 3, 2**31, 2**62, -(2**63), 2**63 - 1])
    return _with_prototypes(good, {"class_ids": ids})


@_material
def prototypes_with_group_ids(rng: Random, scene: Scene, good: Material) -> Material:
    ids = _arrays(good.prototypes)["group_ids"].copy()
    ids[rng.randrange(len(ids))] = rng.choice([-2, -(2**63), 0, 2**63 - 1])
    return _with_prototypes(good, {"group_ids": ids})


@_material
def prototypes_of_another_dimension(rng: Random, scene: Scene, good: Material) -> Material:
    vectors = _arrays(good.prototypes)["vectors"]
    wider = np.concatenate([vectors, vectors], axis=1)
    shapes = [vectors[:, :1], vectors[:, :-1], wider, vectors[:, :0], vectors.reshape(-1), vectors[None], vectors[:1]]
    return _with_prototypes(good, {"vectors": rng.choice(shapes)})


@_material
def prototypes_of_other_numbers_of_rows(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.prototypes))
    value = _arrays(good.prototypes)[name]
    return _with_prototypes(good, {name: rng.choice([value[:-1], value[:0], np.concatenate([value, value[:1]])])})


@_material
def too_many_prototypes(rng: Random, scene: Scene, good: Material) -> Material:
    count = rng.choice([sum(scene.client.counts) + 1, 4097, 70_000])
    rows: dict[str, Array | Raw] = {
        "vectors": np.ones((count, FEATURE_DIM), np.float32),
        "class_ids": np.full(count, rng.randrange(3), np.int64),
        "weights": np.ones(count, np.float32),
        "group_ids": np.full(count, -1, np.int64),
    }
    return replace(good, prototypes=rows)


@_material
def no_prototypes(rng: Random, scene: Scene, good: Material) -> Material:
    return replace(good, prototypes={name: value[:0] for name, value in _arrays(good.prototypes).items()})


@_material
def prototypes_of_another_dtype(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.prototypes))
    return _with_prototypes(good, {name: _other_dtype(rng, _arrays(good.prototypes)[name])})


@_material
def prototypes_with_other_names(rng: Random, scene: Scene, good: Material) -> Material:
    prototypes = dict(good.prototypes)
    name = rng.choice(sorted(prototypes))
    change = rng.choice(["missing", "extra", "renamed"])
    kept = prototypes[name]
    if change != "extra":
        del prototypes[name]
    if change != "missing":
        prototypes[rng.choice(["vector", "Weights", "x", "__metadata__", ""])] = kept
    return replace(good, prototypes=prototypes)


@_material
def model_and_prototypes_swapped(rng: Random, scene: Scene, good: Material) -> Material:
    return replace(good, model=good.prototypes, prototypes=good.model)


# Material: counts and named numbers


@_material
def counts_of_samples(rng: Random, scene: Scene, good: Material) -> Material:
    total = sum(scene.client.counts)
    count = rng.choice([0, -1, -total, total - 1, total + 1, *HUGE_COUNTS, -(2**63)])
    update = replace(good.update, num_examples=count)
    if rng.random() < 0.5 and count < 2**62:
        update = replace(update, class_counts=(count, *([0] * (len(scene.client.counts) - 1))))
    return replace(good, update=update)


@_material
def counts_by_class(rng: Random, scene: Scene, good: Material) -> Material:
    counts = list(scene.client.counts)
    index = rng.randrange(len(counts))
    other = (index + 1) % len(counts)
    change = rng.choice(["short", "long", "none", "many", "negative", "sum", "huge", "moved"])
    if change in ("short", "none"):
        counts = [] if change == "none" else counts[:-1]
    elif change in ("long", "many"):
        counts += [0] * (1 if change == "long" else 20_000)
    elif change == "negative":
        counts[index], counts[other] = -1, counts[other] + counts[index] + 1
    elif change == "sum":
        counts[index] += rng.choice([-1, 1, 100])
    elif change == "huge":
        counts[index], counts[other] = 2**62, -(2**62)
    else:
        counts[index], counts[other] = counts[index] + 1, counts[other] - 1
    return replace(good, update=replace(good.update, class_counts=tuple(counts)))


@_material
def count_of_excluded_samples(rng: Random, scene: Scene, good: Material) -> Material:
    total = sum(scene.client.counts)
    count = rng.choice([-1, 1, total, total + 1, 2**62, -(2**63)])
    return replace(good, update=replace(good.update, num_excluded=count))


@_material
def named_numbers(rng: Random, scene: Scene, good: Material) -> Material:
    field = rng.choice(["losses", "timings", "scalars"])
    entries: dict[str, float] = rng.choice(
        [
            {"ce": rng.choice([NAN, INF, -INF])},
            {f"term{number}": 1.0 for number in range(rng.choice([65, 129, 5000]))},
            {"x" * rng.choice([65, 1025, 100_000]): 1.0},
        ]
    )
    if field == "scalars":
        return replace(good, update=_with_payload(good.update, scalars=entries))
    changes: dict[str, Any] = {field: entries}
    return replace(good, update=replace(good.update, **changes))


@_material
def named_lists_and_texts(rng: Random, scene: Scene, good: Material) -> Material:
    changes: dict[str, Any] = rng.choice(
        [
            {"int_lists": {f"list{number}": (1,) for number in range(rng.choice([65, 129]))}},
            {"int_lists": {"long": (0,) * 10_001}},
            {"int_lists": {"x" * 1025: (1,)}},
            {"metadata": {f"key{number}": "" for number in range(rng.choice([65, 129]))}},
            {"metadata": {"key": "x" * rng.choice([1025, 2_000_000])}},
            {"metadata": {"x" * 1025: ""}},
        ]
    )
    return replace(good, update=_with_payload(good.update, **changes))


# Blobs: bytes under their right SHA-256


@_blobs
def flipped_bits(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: _flipped(rng, blob, 0, len(blob)))


@_blobs
def flipped_bits_of_the_header(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: _flipped(rng, blob, 0, len(blob) - len(split(blob)[1])))


@_blobs
def truncated_bytes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(
        rng, good, lambda blob: blob[: rng.choice([1, 7, 8, 9, len(blob) - 1, rng.randrange(1, len(blob))])]
    )


@_blobs
def bytes_behind_the_end(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    return _spoil_one(rng, good, lambda blob: blob + rng.randbytes(rng.choice([1, 4, 8, 4096])))


@_blobs
def bytes_left_out_or_put_in(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        begin = rng.randrange(len(blob))
        put = rng.choice([b"", b"\x00", rng.randbytes(8), blob[:begin]])
        return (blob[:begin] + put + blob[begin + rng.choice([0, 1, 8]) :]) or b"\x00"

    return _spoil_one(rng, good, spoil)


@_blobs
def something_else_altogether(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    others = (b"\x80\x04\x95cposix\nsystem\n.", b"PK\x03\x04" * 50, b"\x00", b"\x00" * 4096, b"\xff" * 64, b"{}" * 9)
    return _spoil_one(rng, good, lambda blob: rng.choice([*others, rng.randbytes(rng.randrange(1, 2000))]))


@_blobs
def header_that_lies_about_its_length(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        (length,) = struct.unpack("<Q", blob[:8])
        lies = [0, 1, length - 1, length + 1, length + 8, len(blob), len(blob) - 8, 2**20 + 1, 2**31, 2**63, 2**64 - 1]
        return struct.pack("<Q", rng.choice(lies)) + blob[8:]

    return _spoil_one(rng, good, spoil)


@_blobs
def header_that_lies_about_offsets(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        begin, end = entry["data_offsets"]
        shift = rng.choice([1, 4, 8, -1, -4, 2**31])
        lies: list[Any] = [
            [begin + shift, end + shift],
            [begin, end + shift],
            [end, begin],
            [begin, begin],
            [0, len(data)],
            [-8, end],
            [float(begin), float(end)],
            [str(begin), str(end)],
            [False, end],
            [begin],
            [begin, end, end],
            {},
            None,
            [10**400, 10**400],
            [2**64, 2**64 + 8],
        ]
        entry["data_offsets"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


@_blobs
def header_that_lies_about_shapes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        shape = entry["shape"]
        lies: list[Any] = [
            [2**32, 2**32],
            [2**63, 2, 0],
            [-1, *shape],
            [*shape, -1],
            [0, *shape],
            [1] * 64 + shape,
            [float(size) for size in shape] or [1.0],
            [str(size) for size in shape] or ["1"],
            [[size] for size in shape] or [[1]],
            [True, *shape],
            None,
            "6",
            10,
            [10**400],
        ]
        entry["shape"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


@_blobs
def header_that_lies_about_dtypes(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        lies: list[Any] = [
            "F64",
            "I64",
            "F32",
            "U32",
            "F16",
            "BF16",
            "f32",
            "",
            None,
            32,
            ["F32"],
            "F8_E4M3",
            "O",
            "C64",
        ]
        header[rng.choice(sorted(header))]["dtype"] = rng.choice(lies)

    return _spoil_header(rng, good, spoil)


@_blobs
def header_with_other_keys(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(header: dict[str, Any], data: bytes) -> None:
        entry = header[rng.choice(sorted(header))]
        change = rng.choice(["less", "more", "metadata", "tensor", "none"])
        if change == "less":
            del entry[rng.choice(sorted(entry))]
        elif change == "more":
            entry["strides"] = [1]
        elif change == "metadata":
            header["__metadata__"] = rng.choice([{}, {"format": "pt"}, {"x": "y" * 500_000}, None, [], {"a": 1}])
        elif change == "tensor":
            header["more"] = rng.choice([{}, None, [], "x", {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}])
        else:
            header.clear()

    return _spoil_header(rng, good, spoil)


@_blobs
def header_that_is_odd_json(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        text, data = split(blob)
        first = text.rstrip()[1:-1].split(b"},")[0] + b"}"
        odd = [
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 300 + b"]" * 300,
            text[:1] + first + b"," + text[1:],  # the same name twice
            text.replace(b'"dtype"', b'"shape":[1],"dtype"', 1),
            b"\xef\xbb\xbf" + text,
            text.replace(b'"', b"\xff", 1),
            text.replace(b'"', b"'"),
            text.decode().encode("utf-16-le"),
            text.replace(b"0", b"NaN", 1),
            text.replace(b"[", b"[-0,", 1),
            text + b"\x00" * 8,
            text + text,
            b"[" + text + b"]",
            b"null",
            b"{}",
            b'"x"',
            b"1" * 100_000,
            text.replace(b"weight", b"\\ud800"),
            b" " * (2**20 + 8 - len(text)) + text,
            text + b" " * 8,
            b" " * 8 + text,
        ]
        return with_header(rng.choice(odd), data)

    return _spoil_one(rng, good, spoil)


@_blobs
def tensors_in_another_order(rng: Random, scene: Scene, good: Blobs) -> Blobs:
    def spoil(blob: bytes) -> bytes:
        text, data = split(blob)
        header = json.loads(text)
        if rng.random() < 0.5:  # the same layout, told in another order
            names = rng.sample(sorted(header), len(header))
            return with_header(json.dumps({name: header[name] for name in names}, separators=(",", ":")).encode(), data)
        parts = {
            name: Raw(dtype=entry["dtype"], shape=tuple(entry["shape"]), data=data[slice(*entry["data_offsets"])])
            for name, entry in header.items()
        }
        return laid_out({name: parts[name] for name in rng.sample(sorted(parts), len(parts))})

    return _spoil_one(rng, good, spoil)


# Messages: uploads


@_messages
def upload_under_another_sha256(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    other = rng.choice([rng.randbytes(32).hex(), "0" * 64, "A" * 64, "", "../../etc/passwd", "a" * 63, "é" * 64])
    return _with_header(rng, good, lambda header: setattr(header.blob, "sha256", other))


@_messages
def upload_of_another_size(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(header: pb2.BlobHeader) -> None:
        size = header.blob.size_bytes
        header.blob.size_bytes = rng.choice([*SIZES, size - 1, size + 1, scene.max_blob_bytes + 1])

    return _with_header(rng, good, change)


@_messages
def upload_in_another_name(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    field, value = rng.choice(_wrong_addresses(rng, scene))
    return _with_header(rng, good, lambda header: setattr(header, field, value))


@_messages
def chunks_out_of_order(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        chunks = [part for offset, data in upload.chunks for part in _halves(offset, data)]
        index = rng.randrange(len(chunks))
        offset, data = chunks[index]
        kind = rng.choice(["swap", "again", "skip", "offset", "empty", "negative"])
        if kind == "swap":
            chunks.reverse()
        elif kind == "again":
            chunks.insert(index, chunks[index])
        elif kind == "skip":
            del chunks[index]
        elif kind == "empty":
            chunks.insert(index, (offset + 1, b""))
        else:
            chunks[index] = (rng.choice([offset + 1, -1, -(2**63), 2**62]), data)
        return replace(upload, chunks=tuple(chunks))

    return _with_upload(rng, good, change)


@_messages
def more_bytes_than_announced(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        offset, data = upload.chunks[-1]
        return replace(upload, chunks=(*upload.chunks[:-1], (offset, data + rng.randbytes(rng.choice([1, 100])))))

    return _with_upload(rng, good, change)


@_messages
def a_chunk_over_the_limit(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    size = rng.choice([scene.max_chunk_bytes + 1, 2 * scene.max_chunk_bytes, 6 << 20])

    def change(upload: Sending) -> Sending:
        assert upload.header is not None
        header = _copied(upload.header)
        header.blob.size_bytes = size
        return replace(upload, header=header, chunks=((0, bytes(size)),))

    return _with_upload(rng, good, change)


@_messages
def a_stream_that_breaks_the_order(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        kind = rng.choice(["no header", "nothing", "two headers", "no chunks"])
        if kind == "two headers":
            return replace(upload, has_second_header=True)
        return replace(
            upload,
            header=upload.header if kind == "no chunks" else None,
            chunks=upload.chunks if kind == "no header" else (),
        )

    return _with_upload(rng, good, change)


@_messages
def a_blob_that_is_not_sent(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    return replace(good, uploads=tuple(rng.sample(good.uploads, rng.randrange(2))))


@_messages
def other_bytes_than_announced(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(upload: Sending) -> Sending:
        offset, data = rng.choice(upload.chunks)
        spoilt = {offset: _flipped(rng, data, 0, len(data))}
        return replace(upload, chunks=tuple((begin, spoilt.get(begin, data)) for begin, data in upload.chunks))

    return _with_upload(rng, good, change)


# Messages: the commit


@_messages
def bytes_inside_the_commit_that_nobody_named(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    most = scene.max_inline_bytes
    extra = rng.choice([[b""], [rng.randbytes(100)], [bytes(most + 1)], [bytes(most // 2)] * 3, [b"x"] * 100])
    return _with_commit(good, lambda commit: commit.inline_blobs.extend(extra))


@_messages
def commit_in_another_name(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    field, value = rng.choice(_wrong_addresses(rng, scene))
    return _with_commit(good, lambda commit: setattr(commit, field, value))


@_messages
def commit_of_a_blob_of_somebody_else(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    foreign = rng.choice(scene.foreign)

    def change(commit: pb2.CommitUpdateRequest) -> None:
        blobs = rng.choice([commit.payload.tensor_groups, commit.payload.prototype_sets])
        blobs[0].sha256, blobs[0].size_bytes = foreign.sha256, foreign.size_bytes

    return _with_commit(good, change)


@_messages
def commit_of_other_blobs(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(commit: pb2.CommitUpdateRequest) -> None:
        blob = rng.choice([commit.payload.tensor_groups, commit.payload.prototype_sets])[0]
        kind = rng.choice(["sha256", "size", "case"])
        if kind == "sha256":
            blob.sha256 = rng.choice([rng.randbytes(32).hex(), "", "x" * 64, "../" * 20 + "abcd", "0" * 5000])
        elif kind == "size":
            blob.size_bytes = rng.choice([*SIZES, blob.size_bytes - 1, blob.size_bytes + 1])
        else:
            blob.sha256 = blob.sha256.upper()

    return _with_commit(good, change)


@_messages
def commit_with_other_roles(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    def change(commit: pb2.CommitUpdateRequest) -> None:
        groups, sets = commit.payload.tensor_groups, commit.payload.prototype_sets
        kind = rng.choice(["renamed", "second", "twice", "missing", "swapped", "many"])
        blobs = rng.choice([groups, sets])
        if kind == "renamed":
            blobs[0].role = rng.choice(["", "Model", "gradient", "global_cluster", "x" * 2000, "model "])
        elif kind in ("second", "twice", "many"):
            for number in range(100 if kind == "many" else 1):
                again = blobs.add()
                again.CopyFrom(blobs[0])
                again.role = again.role if kind == "twice" else f"role{number}"
        elif kind == "missing":
            del blobs[:]
        else:
            model, prototypes = _copied(groups[0]), _copied(sets[0])
            del groups[:], sets[:]
            groups.append(prototypes)
            sets.append(model)

    return _with_commit(good, change)


@_messages
def flipped_bits_of_the_commit(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    assert good.commit is not None
    data = good.commit.SerializeToString()
    spoilt = _flipped(rng, data, 0, len(data)) if rng.random() < 0.7 else data[: rng.randrange(len(data))]
    commit = pb2.CommitUpdateRequest()
    try:
        commit.ParseFromString(spoilt)
    except Exception:  # google.protobuf.message.DecodeError, whose bytes no record can hold
        return Attempt(stray=("RoundService/CommitUpdate", spoilt))
    return replace(good, commit=commit)


# Messages: anything to any method

_ROUND_METHODS: Mapping[str, Any] = {
    "Join": pb2.JoinRequest,
    "SyncRound": pb2.SyncRoundRequest,
    "Heartbeat": pb2.HeartbeatRequest,
    "DownloadBlob": pb2.DownloadBlobRequest,
    "GetUploadStatus": pb2.GetUploadStatusRequest,
    "UploadModel": pb2.UploadModelRequest,
    "UploadPrototypes": pb2.UploadPrototypesRequest,
    "CommitUpdate": pb2.CommitUpdateRequest,
    "ReportEvaluation": pb2.ReportEvaluationRequest,
}
_RUN_METHODS = tuple(run_service_pb2.DESCRIPTOR.services_by_name["RunService"].methods_by_name)


@_messages
def garbage_to_any_method(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    names = [*(f"RoundService/{name}" for name in _ROUND_METHODS), *(f"RunService/{name}" for name in _RUN_METHODS)]
    size = rng.choice([0, 1, 2, 3, 5, 10, 100, 10_000, 6 << 20]) if rng.random() < 0.1 else rng.randrange(40)
    return Attempt(stray=(rng.choice(names), rng.randbytes(size)))


@_messages
def torn_messages_of_a_stranger(rng: Random, scene: Scene, good: Attempt) -> Attempt:
    """Well-formed requests of somebody who is in no roster, with flipped bits or cut off."""
    name = rng.choice(sorted(_ROUND_METHODS))
    data = _strangers_request(name, scene).SerializeToString()
    spoilt = _flipped(rng, data, 0, len(data)) if rng.random() < 0.7 else data[: rng.randrange(len(data))]
    return Attempt(stray=(f"RoundService/{name}", spoilt))


def _strangers_request(name: str, scene: Scene) -> Any:
    own: dict[str, Any] = {"client_id": "zz-stranger", "instance_token": "zz-stranger-token-0123456789"}
    work: dict[str, Any] = {"run_id": scene.run_id, "round": scene.task.round}
    blob = types_pb2.BlobRef(role="model", sha256="ab" * 32, size_bytes=100)
    header = pb2.BlobHeader(blob=blob, **own, **work)
    counts = types_pb2.EvaluationCounts(set_name="test", model="global", correct=[1, 2, 3], total=[4, 5, 6])
    fields: Mapping[str, Mapping[str, Any]] = {
        "Join": {
            **own,
            "domain": "nowhere",
            "num_examples": 3,
            "class_counts": [types_pb2.ClassCount(class_name="a", num_examples=3)],
            "version": "1",
        },
        "SyncRound": {**own, "poll": pb2.Poll()},
        "Heartbeat": {**own, **work, "activity": 1, "readings": {"x_seconds": 1.0}},
        "DownloadBlob": {**own, "sha256": "ab" * 32},
        "GetUploadStatus": {"header": header},
        "UploadModel": {"header": header},
        "UploadPrototypes": {"header": header},
        "CommitUpdate": {**own, **work, "payload": types_pb2.Payload(tensor_groups=[blob]), "num_examples": 3},
        "ReportEvaluation": {**own, **work, "counts": [counts], "timings": {"seconds": 1.0}},
    }
    return _ROUND_METHODS[name](**fields[name])


# Parts of the above


def _arrays(tensors: Tensors) -> dict[str, Array]:
    """The tensors that are arrays still; another mutator may have made bytes of the others."""
    return {name: value if not isinstance(value, Raw) else _read(value) for name, value in tensors.items()}


def _read(value: Raw) -> Array:
    dtypes = {"F32": np.float32, "I64": np.int64}
    if value.dtype not in dtypes:
        return np.zeros(value.shape, np.float32)
    return np.frombuffer(value.data, dtypes[value.dtype]).reshape(value.shape)


def _with_model(good: Material, tensors: Mapping[str, Array | Raw]) -> Material:
    return replace(good, model={**good.model, **tensors})


def _with_prototypes(good: Material, tensors: Mapping[str, Array | Raw]) -> Material:
    return replace(good, prototypes={**good.prototypes, **tensors})


def _with_payload(update: Update, **changes: Any) -> Update:
    return replace(update, payload=replace(update.payload, **changes))


def _with_values(rng: Random, value: Array | Raw, values: list[float]) -> Array:
    array = (_read(value) if isinstance(value, Raw) else value).copy()
    if array.size:
        for _ in range(rng.choice([1, 1, 1, 3])):
            array.flat[rng.randrange(array.size)] = rng.choice(values)
    return array


def _other_dtype(rng: Random, value: Array) -> Array | Raw:
    name = rng.choice(["f8", "f2", "i4", "u1", "b1", "BF16", "i8", "f4", "F32 of half the size"])
    if name == "BF16":
        half = np.ascontiguousarray(value, np.float32).view(np.uint16)[..., 1::2] if value.ndim else np.zeros((), "u2")
        return Raw(dtype="BF16", shape=value.shape, data=half.tobytes())
    if name.startswith("F32"):
        return Raw(dtype="F32", shape=value.shape, data=raw(value).data[: value.nbytes // 2])
    with np.errstate(all="ignore"):
        return np.asarray(value.astype(name))


def _spoil_one(rng: Random, good: Blobs, spoil: Callable[[bytes], bytes]) -> Blobs:
    if rng.random() < 0.5:
        return replace(good, model=spoil(good.model))
    return replace(good, prototypes=spoil(good.prototypes))


def _spoil_header(rng: Random, good: Blobs, spoil: Callable[[dict[str, Any], bytes], None]) -> Blobs:
    def spoilt(blob: bytes) -> bytes:
        text, data = split(blob)
        header = json.loads(text)
        if header:
            spoil(header, data)
        return with_header(json.dumps(header, separators=(",", ":")).encode(), data)

    return _spoil_one(rng, good, spoilt)


def _flipped(rng: Random, data: bytes, begin: int, end: int) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if begin < end:
            changed[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _halves(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    middle = len(data) // 2
    return [(offset, data[:middle]), (offset + middle, data[middle:])] if middle else [(offset, data)]


def _wrong_addresses(rng: Random, scene: Scene) -> list[tuple[str, Any]]:
    other = rng.choice(scene.others)
    here = scene.task.round
    return [
        *(("run_id", text) for text in ("", "no-such-run", scene.run_id.upper(), scene.run_id + " ", "x" * 2000)),
        *(("round", number) for number in (-1, 0, here - 1, here + 1, 2**31 - 1, -(2**31)) if number != here),
        *(("client_id", name) for name in ("", "nobody", other.client_id, "../" + other.client_id, "x" * 2000)),
        *(("instance_token", token) for token in ("", other.token, scene.client.token[:-1], "x" * 2000)),
    ]


def _with_upload(rng: Random, good: Attempt, change: Callable[[Sending], Sending]) -> Attempt:
    if not good.uploads:
        return good
    index = rng.randrange(len(good.uploads))
    if good.uploads[index].header is None or not good.uploads[index].chunks:
        return good
    uploads = list(good.uploads)
    uploads[index] = change(uploads[index])
    return replace(good, uploads=tuple(uploads))


def _with_header(rng: Random, good: Attempt, change: Callable[[pb2.BlobHeader], Any]) -> Attempt:
    def changed(upload: Sending) -> Sending:
        assert upload.header is not None
        header = _copied(upload.header)
        change(header)
        return replace(upload, header=header)

    return _with_upload(rng, good, changed)


def _with_commit(good: Attempt, change: Callable[[pb2.CommitUpdateRequest], Any]) -> Attempt:
    if good.commit is None or not good.commit.payload.tensor_groups or not good.commit.payload.prototype_sets:
        return good
    commit = _copied(good.commit)
    change(commit)
    return replace(good, commit=commit)


_Message = TypeVar("_Message")


def _copied(message: _Message) -> _Message:
    copy: Any = type(message)()
    copy.CopyFrom(message)
    result: _Message = copy
    return result
