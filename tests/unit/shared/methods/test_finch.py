"""FINCH and FINCH*: published vectors, edges, ties, and blocks."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fedplcc.shared.methods.arithmetic.finch import MergeMean, finch, finch_star, first_neighbours, partition_level


def on_circle(*degrees: float) -> np.ndarray:
    angles = np.deg2rad(np.asarray(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


ONE_LEVEL = on_circle(0, 4, 10, 30, 33, 70, 75, 77)
TWO_LEVELS = on_circle(0, 2, 9, 11, 40, 42, 49, 51)
UNEVEN = on_circle(5, 6, 12, 17, 34, 45, 49, 50, 69, 73)
UNEVEN_WEIGHTS = [2, 20, 1, 1, 20, 1, 1, 2, 2, 20]


def fold(terms: list[float]) -> float:
    """The fixed order in which FINCH adds: the upper half onto the lower, until one number is left."""
    while len(terms) > 1:
        half = len(terms) // 2
        upper = terms[len(terms) - half :]
        terms = [low + high for low, high in zip(terms, upper, strict=False)] + terms[half : len(terms) - half]
    return terms[0]


def first_neighbours_by_definition(rows: np.ndarray) -> list[int]:
    """kappa pair by pair, in Python's own float64."""
    vectors = [[float(value) for value in row] for row in rows.astype(np.float32)]
    norms = [math.sqrt(fold([value * value for value in vector])) for vector in vectors]
    neighbours = []
    for i, left in enumerate(vectors):
        cosines = {
            j: fold([a * b for a, b in zip(left, right, strict=True)]) / (norms[i] * norms[j])
            for j, right in enumerate(vectors)
            if j != i
        }
        neighbours.append(min(j for j, cosine in cosines.items() if cosine >= max(cosines.values()) - 1e-12))
    return neighbours


class TestPublishedVectors:
    def test_first_neighbours_of_eight_angles(self) -> None:
        assert first_neighbours(ONE_LEVEL).tolist() == [1, 0, 1, 4, 3, 6, 7, 6]

    def test_one_partition_is_kept_when_the_next_would_be_one_cluster(self) -> None:
        assert [labels.tolist() for labels in finch(ONE_LEVEL)] == [[0, 0, 0, 1, 1, 2, 2, 2]]

    def test_plain_means_give_two_partitions(self) -> None:
        first, last = finch(UNEVEN, weights=UNEVEN_WEIGHTS, merge_mean="plain")
        assert first.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
        assert last.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]

    def test_weighted_means_give_one_partition_of_the_same_rows(self) -> None:
        (only,) = finch(UNEVEN, weights=UNEVEN_WEIGHTS, merge_mean="weighted")
        assert only.tolist() == [0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
        assert len(finch_star(UNEVEN, UNEVEN_WEIGHTS, merge_mean="weighted").centres_CD) == 4

    @pytest.mark.parametrize(
        ("merge_mean", "centres"),
        [
            ("plain", [(0.994124, 0.081135), (0.852348, 0.522320), (0.275263, 0.959996)]),
            ("weighted", [(0.997482, 0.034772), (0.861466, 0.507440), (0.289638, 0.955889)]),
        ],
    )
    def test_centres_and_weights_of_finch_star(self, merge_mean: MergeMean, centres: list[tuple[float, float]]) -> None:
        clusters = finch_star(ONE_LEVEL, [5, 1, 1, 10, 2, 3, 3, 1], merge_mean=merge_mean)
        np.testing.assert_allclose(clusters.centres_CD, centres, atol=6e-7)
        assert clusters.centres_CD.dtype == np.float32
        assert clusters.weights_C.tolist() == [7, 12, 7]
        assert clusters.labels_N.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
        assert clusters.num_excluded == 0

    def test_two_partitions(self) -> None:
        assert [labels.tolist() for labels in finch(TWO_LEVELS)] == [[0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]]


class TestPartitionChoice:
    @pytest.mark.parametrize(
        ("partition", "num_clusters"), [("first", 4), ("last", 2), ("index:0", 4), ("index:1", 2), ("index:7", 2)]
    )
    def test_a_partition_is_named_by_its_place_in_the_hierarchy(self, partition: str, num_clusters: int) -> None:
        assert len(finch_star(TWO_LEVELS, np.ones(8), partition).centres_CD) == num_clusters

    @pytest.mark.parametrize("partition", ["", "middle", "index:", "index:-1", "index:1.5", "last ", "index:1\n"])
    def test_an_unknown_partition_is_refused_by_name(self, partition: str) -> None:
        with pytest.raises(ValueError, match="'last', 'first' or 'index:<l>'"):
            partition_level(partition)


class TestEdges:
    def test_no_rows_give_no_partition_and_no_cluster(self) -> None:
        assert finch([]) == ()
        assert finch(np.zeros((0, 5))) == ()
        clusters = finch_star(np.zeros((0, 5)), [])
        assert clusters.centres_CD.shape == (0, 5)
        assert (len(clusters.weights_C), len(clusters.labels_N), clusters.num_excluded) == (0, 0, 0)

    def test_zero_rows_are_left_out_and_counted(self) -> None:
        rows = np.insert(ONE_LEVEL, [0, 3, 8], 0, axis=0)
        weights = np.insert([5.0, 1, 1, 10, 2, 3, 3, 1], [0, 3, 8], 100)
        assert [labels.tolist() for labels in finch(rows)] == [[-1, 0, 0, 0, -1, 1, 1, 2, 2, 2, -1]]
        clusters = finch_star(rows, weights)
        assert clusters.num_excluded == 3
        assert clusters.labels_N.tolist() == [-1, 0, 0, 0, -1, 1, 1, 2, 2, 2, -1]
        assert clusters.weights_C.tolist() == [7, 12, 7]

    def test_a_mean_of_opposite_rows_is_far_from_everything_and_finite(self) -> None:
        # P_0 joins each row to its opposite twin's neighbour; two of the means are exactly zero.
        rows = np.array(
            [[1, 0, 0], [-1, 0, 0], [0, 1, 0.1], [0, 1, 0], [0, 0, 1], [0, 0.1, 1], [0, 1, 0.11]], np.float32
        )
        for labels in finch(rows):
            assert labels.min() == 0
        np.testing.assert_array_equal(first_neighbours(np.array([[0.0, 0], [1, 0], [0, 0], [1, 0.1]])), [1, 3, 0, 1])

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
    def test_values_that_are_not_finite_in_float32_are_refused(self, bad: float) -> None:
        with pytest.raises(ValueError, match="finite"):
            finch([[1.0, bad], [1.0, 0.0]])

    @pytest.mark.parametrize("weights", [[1.0], [1, 1, 1], [1, 0], [1, -2], [1, np.nan], [1, np.inf], [[1, 1]]])
    def test_weights_must_be_one_positive_number_per_row(self, weights: list[Any]) -> None:
        with pytest.raises(ValueError, match="weights"):
            finch_star(np.eye(2), weights)

    def test_one_row_is_one_cluster_with_its_own_centre(self) -> None:
        assert [labels.tolist() for labels in finch([[3.0, 4.0]])] == [[0]]
        np.testing.assert_array_equal(finch_star([[3.0, 4.0]], [7]).centres_CD, [[3.0, 4.0]])

    @pytest.mark.parametrize("rows", [[[1, 0], [-1, 0]], [[1, 0], [0, 1], [-1, -1]], [[2, 1]] * 5])
    def test_up_to_three_rows_and_equal_rows_are_one_cluster(self, rows: list[list[int]]) -> None:
        assert [labels.tolist() for labels in finch(rows)] == [[0] * len(rows)]

    def test_two_pairs_of_duplicates_are_two_clusters(self) -> None:
        assert [labels.tolist() for labels in finch([[1, 0], [0, 1], [1, 0], [0, 1]])] == [[0, 1, 0, 1]]

    def test_nothing_but_zero_rows_gives_no_cluster(self) -> None:
        assert finch(np.zeros((3, 2))) == ()
        clusters = finch_star(np.full((3, 2), 1e-13), np.ones(3))
        assert clusters.centres_CD.shape == (0, 2)
        assert clusters.labels_N.tolist() == [-1, -1, -1]
        assert clusters.num_excluded == 3


def duplicates(seed: int) -> np.ndarray:
    """Rows of few directions, some repeated exactly, some scaled, some moved by a last bit."""
    rng = np.random.default_rng(seed)
    pool = rng.normal(size=(rng.integers(1, 8), rng.integers(2, 40)))
    rows = pool[rng.integers(0, len(pool), rng.integers(2, 60))]
    rows *= rng.choice([1.0, 1.0, 2.0, 3.0, 0.1], size=(len(rows), 1))
    return np.asarray(rows * (1 + rng.choice([0, 0, 6e-8], size=rows.shape)), dtype=np.float32)


def integers(seed: int) -> np.ndarray:
    """Rows of small integers: many exact ties, at every similarity, with opposite rows among them."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 2, size=(rng.integers(2, 50), rng.integers(1, 6)))
    return np.asarray(rows[rows.any(axis=1)], dtype=np.float32)


def on_the_edge(seed: int) -> np.ndarray:
    """Nearly parallel rows whose similarities differ by multiples of 5e-17: some lie on the tie's very edge."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(-200, 201, size=rng.integers(2, 60))
    return np.stack([np.ones(len(steps)), steps * 1e-8], axis=1).astype(np.float32)


class TestTies:
    @pytest.mark.parametrize("make", [duplicates, integers, on_the_edge])
    @pytest.mark.parametrize("block_rows", [1, 7, 1024])
    def test_the_lowest_of_tied_rows_wins_at_any_block_size(
        self, make: Callable[[int], np.ndarray], block_rows: int
    ) -> None:
        for seed in range(40):
            rows = make(seed)
            if len(rows) >= 2:
                assert first_neighbours(rows, block_rows=block_rows).tolist() == first_neighbours_by_definition(rows)

    def test_ties_are_found_whatever_the_length_of_the_rows(self) -> None:
        rng = np.random.default_rng(5)
        for dim in (1, 3, 64, 511, 2048):
            rows = rng.normal(size=(3, dim))[rng.integers(0, 3, 24)].astype(np.float32)
            assert first_neighbours(rows).tolist() == first_neighbours_by_definition(rows)

    @pytest.mark.parametrize("make", [duplicates, integers, on_the_edge])
    def test_neither_blocks_nor_threads_change_a_label_or_a_bit(self, make: Callable[[int], np.ndarray]) -> None:
        for seed in range(100, 110):
            rows = make(seed)
            weights = np.arange(1.0, len(rows) + 1)
            with threadpool_limits(1):
                expected = finch(rows)
                centres = finch_star(rows, weights, merge_mean="weighted").centres_CD
            for threads, block_rows in [(1, 1), (1, 5), (2, 1024), (2, 3)]:
                with threadpool_limits(threads):
                    actual = finch(rows, block_rows=block_rows)
                    clusters = finch_star(rows, weights, merge_mean="weighted", block_rows=block_rows)
                assert [labels.tolist() for labels in actual] == [labels.tolist() for labels in expected]
                assert clusters.centres_CD.tobytes() == centres.tobytes()

    def test_a_few_rows_are_multiplied_in_pieces_that_change_no_label(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(12)
        rows = np.abs(rng.normal(size=(4, 512))[rng.integers(0, 4, 35)] + 1e-5 * rng.normal(size=(35, 512)))
        rows[20] = rows[3]
        expected = first_neighbours_by_definition(rows)
        for multiplications in (4 * 35 * 512, 7 * 35 * 512, 2**18, 0):  # pieces of 4, 7 and 14 rows; all at once
            monkeypatch.setattr("fedplcc.shared.methods.arithmetic.finch._LONE_PRODUCTS", multiplications)
            assert first_neighbours(rows.astype(np.float32)).tolist() == expected


class TestCrowds:
    """Rows with so many near-best neighbours that the float32 product cannot tell them apart."""

    @pytest.mark.parametrize("spread", [0.0, 1e-7, 1e-6, 1e-5, 1e-3])
    def test_tight_clusters_are_told_apart(self, spread: float) -> None:
        rng = np.random.default_rng(3)
        rows = (1 + spread * rng.normal(size=(80, 33))).astype(np.float32)
        assert first_neighbours(rows, block_rows=32).tolist() == first_neighbours_by_definition(rows)

    def test_a_crowd_far_away_is_forgotten_when_something_nearer_comes(self) -> None:
        # The first tile shows row 0 thirty equal rows at right angles; its neighbour comes last.
        rows = np.zeros((40, 3), np.float32)
        rows[:39, 1] = 1
        rows[0] = [1, 0, 0]
        rows[39] = [1, 0.01, 0]
        assert first_neighbours(rows, block_rows=35).tolist() == first_neighbours_by_definition(rows)

    def test_memory_is_a_few_blocks_even_when_all_pairs_are_candidates(self) -> None:
        rows = np.tile(np.linspace(1, 2, 8, dtype=np.float32), (6000, 1))
        tracemalloc.start()
        (labels,) = finch(rows)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert labels.max() == 0
        assert peak_bytes < 64 * 2**20, "all pairs would take 144 MB in float32"
