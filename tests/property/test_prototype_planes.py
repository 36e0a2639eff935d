"""The prototype map: what turns, orders and splits prototypes turns nothing on it, and alignment only ever helps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedplcc.shared.prototype_map import NO_OWNER, Centres, PrototypeMap, map_prototypes, polygon, procrustes
from fedplcc.shared.types import Comparison, PrototypeSet

Doubles = npt.NDArray[np.float64]
CLASSES = 5
SEEDS = st.integers(0, 2**32 - 1)
COMPARISONS = st.sampled_from(["cosine", "distance"])
SOME = settings(max_examples=40)


def a_round(seed: int, *, dim: int = 7, clients: int = 3) -> tuple[list[PrototypeSet], PrototypeSet]:
    """Local sets around class centres, and a global prototype for each class: a picture with two directions of its own."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(CLASSES, dim)) * np.linspace(6, 1, dim)
    sets = []
    for _ in range(clients):
        ids = rng.integers(0, CLASSES, size=rng.integers(3, 9))
        sets.append(
            PrototypeSet.of(centres[ids] + rng.normal(size=(len(ids), dim)), ids, 1 + rng.permutation(50)[: len(ids)])
        )
    return sets, PrototypeSet.of(centres, range(CLASSES), np.ones(CLASSES))


def drawn(
    sets: Sequence[PrototypeSet], made: PrototypeSet, comparison: Comparison, reference: Centres | None = None
) -> PrototypeMap:
    by_client = [(f"client {place}", prototypes) for place, prototypes in enumerate(sets)]
    return map_prototypes(by_client, made, comparison=comparison, num_classes=CLASSES, reference=reference)


def rows(found: PrototypeMap) -> list[tuple[float, ...]]:
    """Its points as a multiset: class, owner, weight, and the place to what single precision leaves of it."""
    points = zip(found.class_ids_N, found.owners_N, found.weights_N, found.places_N2, strict=True)
    return sorted((int(c), int(o), float(w), *(round(float(v), 3) + 0.0 for v in place)) for c, o, w, place in points)


def assert_alike(left: PrototypeMap, right: PrototypeMap) -> None:
    assert [row[:3] for row in rows(left)] == [row[:3] for row in rows(right)]
    scale = np.abs(left.places_N2).max(initial=1e-9)
    for one, other in zip(rows(left), rows(right), strict=True):
        assert np.allclose(one[3:], other[3:], atol=2e-3 * max(1.0, scale))


def a_rotation(rng: np.random.Generator, dim: int) -> Doubles:
    """Any orthogonal matrix, reflections among them."""
    return np.asarray(np.linalg.qr(rng.normal(size=(dim, dim)))[0])


def turned(prototypes: PrototypeSet, rotation: Doubles) -> PrototypeSet:
    vectors = (prototypes.vectors.astype(np.float64) @ rotation).astype(np.float32)
    return PrototypeSet(vectors, prototypes.class_ids, prototypes.weights, prototypes.group_ids)


def is_clear(sets: Sequence[PrototypeSet], found: PrototypeMap) -> bool:
    """Whether the plane and its alignment hang on no tie: three variances apart, and classes that are not on a line."""
    local = found.owners_N != NO_OWNER
    weights, places = found.weights_N[local], found.places_N2[local]
    spread = np.linalg.svd(np.sqrt(weights / weights.sum())[:, None] * places, compute_uv=False)
    shared = np.array([found.centres[c] for c in sorted(found.centres)])
    target = np.array([polygon(CLASSES)[class_id] for class_id, _ in sorted(found.centres)])
    fit = np.linalg.svd(shared.T @ target, compute_uv=False)
    rest = np.sqrt(max(0.0, (1 / max(found.explained, 1e-9) - 1)) * float((spread**2).sum()))
    return bool(spread[1] > 1.02 * rest and spread[0] > 1.02 * spread[1] and fit[1] > 0.02 * fit[0])


@SOME
@given(SEEDS, COMPARISONS)
def test_the_order_of_prototypes_and_a_turn_of_the_feature_space_turn_nothing(
    seed: int, comparison: Comparison
) -> None:
    rng = np.random.default_rng(seed)
    sets, made = a_round(seed)
    found = drawn(sets, made, comparison)
    assume(is_clear(sets, found))
    rotation = a_rotation(rng, made.vectors.shape[1])
    shuffled = []
    for prototypes in sets:
        order = rng.permutation(len(prototypes))
        same = PrototypeSet(
            prototypes.vectors[order],
            prototypes.class_ids[order],
            prototypes.weights[order],
            prototypes.group_ids[order],
        )
        shuffled.append(turned(same, rotation))
    again = drawn(shuffled, turned(made, rotation), comparison)
    assert_alike(found, again)
    assert again.explained == pytest.approx(found.explained, abs=1e-4)


@SOME
@given(SEEDS, COMPARISONS)
def test_distances_on_the_map_are_never_larger_than_those_of_what_is_compared(
    seed: int, comparison: Comparison
) -> None:
    sets, made = a_round(seed)
    found = drawn(sets[:1], made, comparison)
    local = found.places_N2[found.owners_N == 0]
    order = np.lexsort((sets[0].class_ids, -sets[0].weights))
    vectors = sets[0].vectors.astype(np.float64)[order]
    if comparison == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    on_map = np.linalg.norm(local[:, None] - local[None], axis=-1)
    in_space = np.linalg.norm(vectors[:, None] - vectors[None], axis=-1)
    assert (on_map <= in_space + 1e-6).all()


def a_picture(points: Sequence[tuple[float, float]]) -> Centres:
    return {(class_id, ""): place for class_id, place in enumerate(points)}


PLACES = st.lists(
    st.tuples(st.floats(-10, 10, allow_subnormal=False), st.floats(-10, 10, allow_subnormal=False)),
    min_size=1,
    max_size=12,
)


def distance(places: Doubles, reference: Doubles) -> float:
    return float(np.linalg.norm(places - reference))


@given(PLACES, PLACES, st.floats(0, 7), st.booleans())
def test_alignment_is_orthogonal_and_no_other_turn_comes_nearer(
    one: list[tuple[float, float]], other: list[tuple[float, float]], angle: float, is_mirrored: bool
) -> None:
    count = min(len(one), len(other))
    A, B = np.array(one[:count]), np.array(other[:count])
    turn = procrustes(a_picture(one[:count]), a_picture(other[:count]))
    assert turn is not None
    assert np.allclose(turn @ turn.T, np.eye(2), atol=1e-9)
    cos, sin = np.cos(angle), np.sin(angle)
    any_turn = np.array([[cos, -sin], [sin, cos]]) @ np.diag([1.0, -1.0 if is_mirrored else 1.0])
    slack = 1e-6 * (1 + float(np.abs(A).max() + np.abs(B).max()))
    assert distance(A @ turn, B) <= distance(A @ any_turn, B) + slack
    assert distance(A @ turn, B) <= distance(A, B) + slack, "not turning at all is one of the turns"


@SOME
@given(SEEDS)
def test_a_round_that_has_hardly_changed_hardly_moves(seed: int) -> None:
    sets, made = a_round(seed)
    before = drawn(sets, made, "cosine")
    assume(is_clear(sets, before))
    rng = np.random.default_rng(seed)
    jittered = [
        PrototypeSet.of(p.vectors + 1e-4 * rng.normal(size=p.vectors.shape), p.class_ids, p.weights) for p in sets
    ]
    after = drawn(jittered, made, "cosine", before.centres)
    assert np.abs(before.places_N2 - after.places_N2).max() < 0.05
