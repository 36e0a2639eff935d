"""Ways to spoil the material of an update, its arrays and counts: each public function is one, small and pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from fedplcc.shared.types import Update
from tests.chaos.fuzz_attempt import Array, Material, Raw, Scene, Tensors, raw
from tests.support.federation.numpy_client import FEATURE_DIM

NAN, INF = float("nan"), float("inf")
LARGEST = float(np.finfo(np.float32).max)
HUGE_COUNTS = (2**29 + 1, 2**31, 2**53, 2**62, 2**63 - 1)


# The model's arrays


def model_with_a_value_that_is_not_finite(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(["base.weight", "head.weight"])
    return _with_model(good, {name: _with_values(rng, good.model[name], [NAN, INF, -INF])})


def model_with_extreme_values(rng: Random, scene: Scene, good: Material) -> Material:
    """Very large and the smallest numbers: good ones, unless they are further away than the run allows."""
    name = rng.choice(["base.weight", "head.weight"])
    return _with_model(good, {name: _with_values(rng, good.model[name], [1e16, -1e16, 1e-45, -1e-45, -0.0, 1e12])})


def model_far_from_the_global_one(rng: Random, scene: Scene, good: Material) -> Material:
    factor = np.float32(10.0 ** rng.uniform(1, 30))
    floats = {name: value * factor for name, value in _arrays(good.model).items() if value.dtype == np.float32}
    return _with_model(good, floats)


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


def model_with_a_scalar_that_is_a_list(rng: Random, scene: Scene, good: Material) -> Material:
    return _with_model(good, {"head.steps": np.ones(rng.choice([(1,), (1, 1), (0,), (2,)]), np.int64)})


def model_of_another_dtype(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.model))
    return _with_model(good, {name: _other_dtype(rng, _arrays(good.model)[name])})


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


# The prototypes


def prototypes_that_are_not_finite(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(["vectors", "weights"])
    return _with_prototypes(good, {name: _with_values(rng, good.prototypes[name], [NAN, INF, -INF])})


def prototypes_with_extreme_vectors(rng: Random, scene: Scene, good: Material) -> Material:
    """Zero rows, the largest and the smallest numbers: all of them good."""
    vectors = _arrays(good.prototypes)["vectors"].copy()
    vectors[rng.randrange(len(vectors))] = rng.choice([0.0, LARGEST, -LARGEST, 1e-45])
    return _with_prototypes(good, {"vectors": vectors})


def prototypes_with_other_weights(rng: Random, scene: Scene, good: Material) -> Material:
    weights = _arrays(good.prototypes)["weights"].copy()
    index = rng.randrange(len(weights))
    weights[index] = rng.choice(
        [0, -1, -weights[index], 0.5, weights[index] + 1, weights[index] + 0.25, 1e9, LARGEST, 1e-45]
    )
    return _with_prototypes(good, {"weights": weights})


def prototypes_of_other_classes(rng: Random, scene: Scene, good: Material) -> Material:
    ids = _arrays(good.prototypes)["class_ids"].copy()
    ids[rng.randrange(len(ids))] = rng.choice([-1, 0, 1, 2, 3, 2**31, 2**62, -(2**63), 2**63 - 1])
    return _with_prototypes(good, {"class_ids": ids})


def prototypes_with_group_ids(rng: Random, scene: Scene, good: Material) -> Material:
    ids = _arrays(good.prototypes)["group_ids"].copy()
    ids[rng.randrange(len(ids))] = rng.choice([-2, -(2**63), 0, 2**63 - 1])
    return _with_prototypes(good, {"group_ids": ids})


def prototypes_of_another_dimension(rng: Random, scene: Scene, good: Material) -> Material:
    vectors = _arrays(good.prototypes)["vectors"]
    wider = np.concatenate([vectors, vectors], axis=1)
    shapes = [vectors[:, :1], vectors[:, :-1], wider, vectors[:, :0], vectors.reshape(-1), vectors[None], vectors[:1]]
    return _with_prototypes(good, {"vectors": rng.choice(shapes)})


def prototypes_of_other_numbers_of_rows(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.prototypes))
    value = _arrays(good.prototypes)[name]
    return _with_prototypes(good, {name: rng.choice([value[:-1], value[:0], np.concatenate([value, value[:1]])])})


def too_many_prototypes(rng: Random, scene: Scene, good: Material) -> Material:
    count = rng.choice([sum(scene.client.counts) + 1, 4097, 70_000])
    rows: dict[str, Array | Raw] = {
        "vectors": np.ones((count, FEATURE_DIM), np.float32),
        "class_ids": np.full(count, rng.randrange(3), np.int64),
        "weights": np.ones(count, np.float32),
        "group_ids": np.full(count, -1, np.int64),
    }
    return replace(good, prototypes=rows)


def no_prototypes(rng: Random, scene: Scene, good: Material) -> Material:
    return replace(good, prototypes={name: value[:0] for name, value in _arrays(good.prototypes).items()})


def prototypes_of_another_dtype(rng: Random, scene: Scene, good: Material) -> Material:
    name = rng.choice(sorted(good.prototypes))
    return _with_prototypes(good, {name: _other_dtype(rng, _arrays(good.prototypes)[name])})


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


def model_and_prototypes_swapped(rng: Random, scene: Scene, good: Material) -> Material:
    return replace(good, model=good.prototypes, prototypes=good.model)


# Counts and named numbers


def counts_of_samples(rng: Random, scene: Scene, good: Material) -> Material:
    total = sum(scene.client.counts)
    count = rng.choice([0, -1, -total, total - 1, total + 1, *HUGE_COUNTS, -(2**63)])
    update = replace(good.update, num_examples=count)
    if rng.random() < 0.5 and count < 2**62:
        update = replace(update, class_counts=(count, *([0] * (len(scene.client.counts) - 1))))
    return replace(good, update=update)


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


def count_of_excluded_samples(rng: Random, scene: Scene, good: Material) -> Material:
    total = sum(scene.client.counts)
    count = rng.choice([-1, 1, total, total + 1, 2**62, -(2**63)])
    return replace(good, update=replace(good.update, num_excluded=count))


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
