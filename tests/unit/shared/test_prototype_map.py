"""The prototype map where there is little or nothing to draw, and its numbers where they are known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fedplcc.shared import prototype_map as maps
from fedplcc.shared.prototype_map import (
    NO_OWNER,
    PrototypeMap,
    key_rounds,
    map_prototypes,
    polygon,
    procrustes,
    reference_round,
)
from fedplcc.shared.types import Comparison, PrototypeSet

EMPTY = PrototypeSet.empty()


def a_set(*rows: tuple[int, Sequence[float], float]) -> PrototypeSet:
    """A set of (class, vector, weight)."""
    return PrototypeSet.of([row[1] for row in rows], [row[0] for row in rows], [row[2] for row in rows])


def drawn(*local: PrototypeSet, made: PrototypeSet = EMPTY, comparison: Comparison = "distance") -> PrototypeMap:
    return map_prototypes(by_client(local), made, comparison=comparison, num_classes=4)


def by_client(sets: Sequence[PrototypeSet]) -> list[tuple[str, PrototypeSet]]:
    return [(f"client {place}", prototypes) for place, prototypes in enumerate(sets)]


def test_no_prototypes_give_an_empty_map() -> None:
    for found in (drawn(), drawn(EMPTY, PrototypeSet.empty(5), made=PrototypeSet.empty(5))):
        assert (len(found), found.explained, found.centres) == (0, 1.0, {})
        assert found.places_N2.shape == (0, 2)


def test_one_prototype_lies_in_the_middle() -> None:
    found = drawn(a_set((2, (3, 4, 5), 7)))
    assert found.places_N2.tolist() == [[0, 0]]
    assert (found.explained, found.weights_N.tolist(), found.shares_N.tolist()) == (1.0, [7], [1])


def test_two_prototypes_keep_their_distance_and_all_is_shown() -> None:
    found = drawn(a_set((0, (0, 0, 3), 1), (1, (0, 4, 0), 1)))
    assert np.linalg.norm(found.places_N2[0] - found.places_N2[1]) == pytest.approx(5)
    assert found.explained == pytest.approx(1)
    assert found.places_N2[:, 0] @ found.places_N2[:, 0] + found.places_N2[:, 1] @ found.places_N2[
        :, 1
    ] == pytest.approx(12.5)


@pytest.mark.parametrize("comparison", ["cosine", "distance"])
def test_prototypes_that_are_all_equal_lie_in_one_place(comparison: Comparison) -> None:
    same = a_set(*((class_id, (0.1, 0.7, 0.3), 1 + class_id) for class_id in range(4)))
    found = drawn(same, same, made=same, comparison=comparison)
    assert np.abs(found.places_N2).max() < 1e-12
    assert found.explained == 1


def test_one_class_lies_on_its_side_of_the_polygon_and_is_not_mirrored_at_will() -> None:
    one = a_set((1, (5, 0, 0), 9), (1, (0, 1, 0), 1), (1, (0, 0, 2), 3))
    made = a_set((1, (5, 0, 0), 1))
    found, again = drawn(one, made=made), drawn(one, made=made)
    assert found.places_N2.tolist() == again.places_N2.tolist()
    centres = np.array([found.centres[1, ""], found.centres[1, "client 0"]])
    middle = centres.sum(0)
    assert middle / np.linalg.norm(middle) == pytest.approx(np.array(polygon(4)[1]))


def test_a_zero_vector_has_no_direction_and_breaks_nothing() -> None:
    found = drawn(a_set((0, (0, 0), 1), (1, (0, 3), 1), (2, (2, 0), 1)), comparison="cosine")
    assert np.isfinite(found.places_N2).all()


@pytest.mark.parametrize(
    ("vector", "weight", "sentence"),
    [
        ((np.nan, 0), 1, "a prototype is not finite"),
        ((np.inf, 0), 1, "a prototype is not finite"),
        ((1, 0), np.nan, "the weight of a prototype is not a positive number"),
        ((1, 0), 0, "the weight of a prototype is not a positive number"),
    ],
)
def test_what_is_no_number_is_refused(vector: Sequence[float], weight: float, sentence: str) -> None:
    for local, made in (((a_set((0, vector, weight)),), EMPTY), ((), a_set((0, vector, weight)))):
        with pytest.raises(ValueError, match=sentence):
            drawn(*local, made=made)


def test_huge_and_tiny_numbers_of_single_precision_are_drawn() -> None:
    for scale in (1e38, 1e-30):
        found = drawn(a_set((0, (scale, 0), 1), (1, (0, scale), 1), (2, (scale, scale), 1)))
        assert np.isfinite(found.places_N2).all()
        assert np.ptp(found.places_N2, axis=0).max() > scale / 2


def test_global_prototypes_come_first_and_each_kind_from_the_heaviest_on() -> None:
    made = a_set((0, (1, 0), 0.25), (0, (0, 1), 0.75), (1, (3, 3), 1))
    found = drawn(a_set((0, (1, 0), 2), (1, (3, 2), 5)), a_set((0, (0, 1), 3)), made=made)
    assert found.owners_N.tolist() == [NO_OWNER] * 3 + [0, 1, 0]
    assert found.weights_N.tolist() == [1, 0.75, 0.25, 5, 3, 2]
    assert found.class_ids_N.tolist() == [1, 0, 0, 1, 0, 0]
    assert found.shares_N.tolist() == [1, 0.75, 0.25, 1, 1, 1]


def test_a_local_prototype_knows_the_nearest_global_one_of_its_class_in_the_whole_space() -> None:
    made = a_set((0, (9, 0, 0), 0.5), (0, (0, 1, 0), 0.5), (1, (0, 1, 0.01), 1))
    found = drawn(a_set((0, (0, 6, 1), 2), (0, (1, 0, 0), 1), (2, (1, 1, 1), 1)), made=made, comparison="cosine")
    of_global = {tuple(v): i for i, v in enumerate(found.places_N2[:3].round(9).tolist())}
    assert len(of_global) == 3
    order = [found.weights_N.tolist().index(0.5), 1 + found.weights_N.tolist().index(0.5)]
    nearest = dict(
        zip(zip(found.class_ids_N.tolist(), found.weights_N.tolist(), strict=True), found.nearest_N, strict=True)
    )
    assert {nearest[0, 2.0], nearest[0, 1.0]} == set(order)
    assert nearest[2, 1.0] == -1, "its class has no global prototype here"
    assert (found.nearest_N[:3] == -1).all()


def test_beyond_the_bound_the_lightest_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maps, "MAX_LOCAL", 3)
    monkeypatch.setattr(maps, "MAX_GLOBAL", 2)
    rng = np.random.default_rng(3)
    sets = [PrototypeSet.of(rng.normal(size=(4, 5)), [0, 1, 2, 3], 1 + 4 * k + np.arange(4)) for k in range(2)]
    made = PrototypeSet.of(rng.normal(size=(3, 5)), [0, 0, 1], [0.9, 0.1, 1])
    found = drawn(*sets, made=made)
    assert found.weights_N.tolist() == [1, pytest.approx(0.9), 8, 7, 6]
    assert (found.left_out_global, found.left_out_local) == (1, 5)
    assert drawn(*reversed(sets), made=made).weights_N.tolist() == found.weights_N.tolist()


def test_a_pool_that_is_sent_beside_its_averages_is_not_drawn_twice() -> None:
    vectors = np.eye(3, 4, dtype=np.float32)
    both = PrototypeSet(vectors, np.array([0, 0, 0]), np.array([3, 4, 1], np.float32), np.array([0, 1, -1]))
    assert drawn(made=both).weights_N.tolist() == [1]
    only_owned = PrototypeSet(vectors, both.class_ids, both.weights, np.array([0, 1, 2]))
    assert len(drawn(made=only_owned)) == 3


def test_centres_are_means_by_weight_of_each_class_at_each_owner() -> None:
    made = a_set((0, (0, 8), 0.25), (0, (0, 0), 0.75))
    found = drawn(a_set((0, (0, 8), 1), (0, (0, 0), 1), (3, (6, 1), 2), (3, (6, 4), 4)), EMPTY, made=made)
    assert set(found.centres) == {(0, ""), (0, "client 0"), (3, "client 0")}
    apart = np.array(found.centres[0, ""]) - np.array(found.centres[3, "client 0"])
    assert np.linalg.norm(apart) == pytest.approx(np.hypot(6, 2 - 3))
    apart = np.array(found.centres[0, "client 0"]) - np.array(found.centres[3, "client 0"])
    assert np.linalg.norm(apart) == pytest.approx(np.hypot(6, 4 - 3))


def test_classes_stay_where_they_are_when_the_largest_variance_becomes_the_second() -> None:
    """A cross of two arms: when the second one is the longer, components swap places, and the map does not."""

    def a_cross(first: float, second: float) -> PrototypeSet:
        return a_set((0, (first, 0, 9), 1), (1, (-first, 0, 9), 1), (2, (0, second, 9), 1), (3, (0.5, -second, 9), 1))

    before = drawn(a_cross(3, 2))
    free = drawn(a_cross(2.4, 2.6))
    after = map_prototypes(
        by_client([a_cross(2.4, 2.6)]), EMPTY, comparison="distance", num_classes=4, reference=before.centres
    )

    def way(found: PrototypeMap) -> float:
        return max(float(np.hypot(*np.subtract(before.centres[key], found.centres[key]))) for key in before.centres)

    assert way(after) < 0.8
    assert way(after) <= way(free)
    unaligned = replace(after, places_N2=after.places_N2[:, ::-1])
    assert way(unaligned) > 2, "the same picture with its axes swapped"
    assert np.allclose(maps.align(unaligned, before.centres, 4).places_N2, after.places_N2)


def test_clients_hold_a_picture_whose_classes_lie_in_one_place() -> None:
    """As after the first round, where prototypes lie by domain: global centres say nothing, the clients' say how to turn."""

    def a_pair(x: float, y: float) -> list[PrototypeSet]:
        return [a_set((0, (x, y, 1), 2), (1, (x, y, 2), 2)), a_set((0, (-x, -y, 1), 1), (1, (-x, -y, 2), 1))]

    made = a_set((0, (0, 0, 1), 1), (1, (0, 0, 2), 1))
    before = drawn(*a_pair(5, 0), made=made)
    after = map_prototypes(
        by_client(a_pair(0, 5)), made, comparison="distance", num_classes=4, reference=before.centres
    )
    assert np.allclose(before.places_N2, after.places_N2, atol=1e-6)


def test_pictures_without_a_class_in_common_fall_back_on_the_polygon() -> None:
    assert procrustes({(0, ""): (1.0, 0.0)}, {(1, ""): (1.0, 0.0)}) is None
    sets = a_set((0, (5, 0, 1), 1), (1, (0, 4, 0), 1), (2, (0, 0, 3), 2))
    elsewhere = map_prototypes(
        by_client([sets]), EMPTY, comparison="distance", num_classes=4, reference={(3, ""): (1.0, 1.0)}
    )
    assert elsewhere.places_N2.tolist() == drawn(sets).places_N2.tolist()


@pytest.mark.parametrize(
    ("number", "rounds", "expected"),
    [
        (1, [1], None),
        (2, [1, 2], 1),
        (5, list(range(1, 12)), 1),
        (6, list(range(1, 12)), 5),
        (9, list(range(1, 20)), 5),
        (12, list(range(12, 30)), 13),  # before the first key round that is kept
        (13, list(range(12, 30)), None),
        (30, list(range(12, 31)), 29),
        (4, [3, 4], 3),  # no key round among the few that are kept
        (3, [3, 4], None),
        (5, [], None),
    ],
)
def test_rounds_are_aligned_on_key_rounds(number: int, rounds: list[int], expected: int | None) -> None:
    assert reference_round(number, key_rounds(rounds)) == expected
