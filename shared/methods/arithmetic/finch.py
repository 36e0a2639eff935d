"""FINCH and FINCH*: parameter-free clustering by first neighbours, exact, in blocks, with equal results on every machine.

Sarfraz, Sharma, Stiefelhagen, "Efficient Parameter-free Clustering Using First Neighbor Relations", CVPR 2019,
https://arxiv.org/abs/1902.11266, Algorithm 1 without its optional last steps: neither an early exit nor a requested number
of clusters. FINCH* carries weights along (https://arxiv.org/abs/2409.18578; FedPLCC, eq. 9 and 10).

The first neighbour of row i, by cosine similarity, is

    kappa(i) = the lowest j != i with cos(x_i, x_j) >= max_j cos(x_i, x_j) - 1e-12,

where the similarities are those of `_exact_cosines`: float64, every addition in a fixed order. A matrix product rounds
differently for each block shape, thread count and processor, so it only proposes candidates. Its rounding error has a proven
bound; similarities within that bound of the best are computed again in the fixed order. The labels depend only on the rows.

Differs from the paper: rows that are zero have no direction; they get the label -1 and join no cluster. A zero row that
appears as the mean of a cluster has similarity 0 to everything, as in the published code.

Shape legend: N rows, D features, C clusters, P pairs, R and S the rows and columns of a tile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.sparse, a fifth of a second, where it is first used: most processes cluster nothing

from fedplcc.shared.types import FloatArray, IntArray

DoubleArray = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]
"""float32 (given rows) or float64 (means of them)."""
MergeMean = Literal["plain", "weighted"]

MIN_NORM = 1e-12
"""A row with a smaller norm is zero."""
TIE = 1e-12
"""Similarities closer than this are equal, and the lowest row wins."""

_BLOCK_ROWS = 1024
"""Rows of a tile: 4 MiB of float32 products, small enough to be reduced while still in cache."""
_SCRATCH_ELEMENTS = 1 << 20
"""Elements of one float64 temporary: 8 MiB."""
_LONE_PRODUCTS = 1 << 18
"""Multiplications up to which OpenBLAS leaves a matrix product to the thread that asks for it."""
_FEWEST_ROWS = 4
"""Rows below which a piece of a product is not worth a call."""
_MAX_CANDIDATES = 16
"""Rows with more near-best candidates than this are compared with all rows in float64 instead of pair by pair."""
_PARTITION = re.compile(r"last|first|index:(\d{1,6})")


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Result of FINCH*.

    Attributes:
        centres_CD: float32, the mean of each cluster's rows; clusters are numbered by their first row.
        weights_C: float64, the sum of each cluster's weights.
        labels_N: int64 cluster of each row, -1 where the row is zero.
        num_excluded: Number of zero rows.
    """

    centres_CD: FloatArray
    weights_C: DoubleArray
    labels_N: IntArray
    num_excluded: int


def finch(
    vectors: npt.ArrayLike,
    *,
    weights: npt.ArrayLike | None = None,
    merge_mean: MergeMean = "plain",
    block_rows: int = _BLOCK_ROWS,
) -> tuple[IntArray, ...]:
    """Return the hierarchy of partitions P_0, P_1, ..., P_L, each coarser than the previous one.

    Every partition has at least two clusters, unless P_0 itself is one cluster. Memory is linear in N: the rows, their
    float32 unit vectors and a few blocks.

    Args:
        vectors: `[N, D]`, taken as float32, any scale.
        weights: Positive `[N]`, all 1 if not given; they matter with `merge_mean="weighted"` only.
        merge_mean: Mean of a cluster's rows by which clusters are compared: `plain`, or `weighted`.
        block_rows: Rows of a tile of the similarity matrix; changes memory and speed, never the result.

    Returns:
        int64 labels `[N]` per partition, numbered by first row, -1 for zero rows; empty if no row is non-zero.

    Raises:
        ValueError: Not a matrix, a value that is not finite, or weights that are not N positive numbers.
    """
    rows_ND = _checked_rows(vectors)
    weights_N = _checked_weights(weights, len(rows_ND))
    is_used_N, used_ND = _without_zeros(rows_ND)
    partitions = _hierarchy(used_ND, weights_N[is_used_N] if merge_mean == "weighted" else None, block_rows)
    return tuple(_spread(labels, is_used_N) for labels in partitions)


def finch_star(
    vectors: npt.ArrayLike,
    weights: npt.ArrayLike,
    partition: str = "last",
    merge_mean: MergeMean = "plain",
    *,
    block_rows: int = _BLOCK_ROWS,
) -> Clusters:
    """Cluster rows with FINCH; each cluster has the mean of its rows and the sum of their weights (FedPLCC, eq. 9 and 10).

    Args:
        vectors: `[N, D]`, taken as float32; not normalised before they are averaged.
        weights: Positive `[N]`: numbers of samples that the rows represent.
        partition: `last` (the coarsest with two clusters or more), `first` (P_0) or `index:<l>` (P_l, or the last where
            the hierarchy is shorter).
        merge_mean: `plain` averages rows equally, `weighted` by weight; for the centres and inside FINCH.
        block_rows: As in `finch`.

    Raises:
        ValueError: As `finch`; an unknown partition.
    """
    rows_ND = _checked_rows(vectors)
    weights_N = _checked_weights(weights, len(rows_ND))
    level = partition_level(partition)
    is_used_N, used_ND = _without_zeros(rows_ND)
    used_weights_N = weights_N[is_used_N]
    mean_weights_N = used_weights_N if merge_mean == "weighted" else None
    partitions = _hierarchy(used_ND, mean_weights_N, block_rows)
    labels = partitions[min(level, len(partitions) - 1)] if partitions else np.zeros(0, np.int64)
    return Clusters(
        centres_CD=_means(used_ND, labels, mean_weights_N).astype(np.float32),
        weights_C=np.bincount(labels, weights=used_weights_N).astype(np.float64),
        labels_N=_spread(labels, is_used_N),
        num_excluded=len(rows_ND) - len(used_ND),
    )


def partition_level(partition: str) -> int:
    """Return the index of the partition that a configuration names; `last` is beyond any hierarchy.

    Raises:
        ValueError: Not one of `last`, `first` and `index:<l>`.
    """
    match = _PARTITION.fullmatch(partition)
    if match is None:
        raise ValueError(f"partition is 'last', 'first' or 'index:<l>' with l = 0, 1, ..., not {partition!r}")
    if match[1] is not None:
        return int(match[1])
    return 0 if partition == "first" else np.iinfo(np.int64).max


def _checked_rows(vectors: npt.ArrayLike) -> FloatArray:
    with np.errstate(over="ignore"):  # an overflow gives inf, which is refused below
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
    if rows.size == 0 and rows.ndim < 2:
        rows = rows.reshape(0, 0)
    if rows.ndim != 2:
        raise ValueError(f"vectors must be a matrix of rows, not of shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("vectors must be finite")
    return rows


def _checked_weights(weights: npt.ArrayLike | None, num_rows: int) -> DoubleArray:
    if weights is None:
        return np.ones(num_rows)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (num_rows,):
        raise ValueError(f"weights must be one per row: shape ({num_rows},), not {values.shape}")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("weights must be positive and finite")
    return values


def _without_zeros(rows_ND: FloatArray) -> tuple[npt.NDArray[np.bool_], FloatArray]:
    is_used_N = _norms(rows_ND) >= MIN_NORM
    return is_used_N, rows_ND if is_used_N.all() else rows_ND[is_used_N]


def _spread(labels: IntArray, is_used_N: npt.NDArray[np.bool_]) -> IntArray:
    spread = np.full(len(is_used_N), -1, dtype=np.int64)
    spread[is_used_N] = labels
    return spread


def _hierarchy(rows_ND: FloatArray, weights_N: DoubleArray | None, block_rows: int) -> list[IntArray]:
    """Return the partitions of rows that are not zero; with weights, clusters are compared by their weighted means."""
    if block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, not {block_rows}")
    if len(rows_ND) < 2:
        return [np.zeros(1, dtype=np.int64)] if len(rows_ND) else []
    partitions = [_merge(rows_ND, block_rows)]
    while True:
        labels = partitions[-1]
        num_clusters = int(labels.max()) + 1
        # A cluster has at least two members of the level below, so fewer than four can only become one.
        if num_clusters < 4:
            return partitions
        # Means of the given rows, not of means.
        merged = _merge(_means(rows_ND, labels, weights_N), block_rows)
        if merged.max() == 0:
            return partitions
        partitions.append(merged[labels])


def _merge(rows_ND: Rows, block_rows: int) -> IntArray:
    """Join every row to its first neighbour and number the connected components by their first rows."""
    num_rows = len(rows_ND)
    neighbours_N = first_neighbours(rows_ND, block_rows=block_rows)
    ones = np.ones(num_rows, dtype=np.int8)
    links_NN = scipy.sparse.csr_array((ones, neighbours_N, np.arange(num_rows + 1)), shape=(num_rows, num_rows))
    _, component_N = scipy.sparse.csgraph.connected_components(links_NN, directed=True, connection="weak")
    _, first_C, label_N = np.unique(component_N, return_index=True, return_inverse=True)
    number_C = np.empty(len(first_C), dtype=np.int64)
    number_C[np.argsort(first_C)] = np.arange(len(first_C))
    return number_C[label_N]


def _means(rows_ND: FloatArray, labels_N: IntArray, weights_N: DoubleArray | None) -> DoubleArray:
    """Return the float64 mean `[C, D]` of each cluster's rows, each sum taken in row order.

    A sparse product with ones adds row after row; slices of columns bound its float64 copies and change no bit.
    """
    num_rows, dim = rows_ND.shape
    sizes_C = np.bincount(labels_N)
    num_clusters = len(sizes_C)
    members_CN = scipy.sparse.csr_array(
        (np.ones(num_rows), np.argsort(labels_N, kind="stable"), np.concatenate([[0], np.cumsum(sizes_C)])),
        shape=(num_clusters, num_rows),
    )
    means_CD = np.empty((num_clusters, dim))
    width = max(1, _SCRATCH_ELEMENTS // max(1, num_rows))
    for start in range(0, dim, width):
        part = rows_ND[:, start : start + width].astype(np.float64)
        if weights_N is not None:
            part *= weights_N[:, None]
        means_CD[:, start : start + width] = members_CN @ part
    means_CD /= (sizes_C if weights_N is None else members_CN @ weights_N)[:, None]
    return means_CD


def first_neighbours(rows_ND: Rows, *, block_rows: int = _BLOCK_ROWS) -> IntArray:
    """Return kappa, the first neighbour of each of N >= 2 rows, int64 `[N]`; see the module's definition.

    Three stages, each exact by the error bound of the previous one: a float32 product proposes candidates; rows with many
    candidates (duplicates, tight clusters) go through a float64 product; undecided rows are computed in fixed order.
    """
    norms_N = _norms(rows_ND)
    norms_N[norms_N < MIN_NORM] = np.inf  # similarity 0 to everything
    candidates = _propose(_unit_rows(rows_ND, norms_N), block_rows)
    neighbours_N = np.empty(len(rows_ND), dtype=np.int64)

    crowded_R, row_P, column_P = candidates.result()
    is_alone_P = np.bincount(row_P, minlength=len(rows_ND))[row_P] == 1
    neighbours_N[row_P[is_alone_P]] = column_P[is_alone_P]
    _settle(rows_ND, norms_N, row_P[~is_alone_P], column_P[~is_alone_P], neighbours_N)

    for part in _slices(len(crowded_R), max(1, 4 * _SCRATCH_ELEMENTS // len(rows_ND))):
        _compare_with_all(rows_ND, norms_N, crowded_R[part], neighbours_N)
    return neighbours_N


class _Candidates:
    """Columns that may be a row's first neighbour, from tiles of float32 products in any order.

    The margin. Let u, v be unit rows in float64, U = 2^-24 the float32 unit roundoff. Rounding u and v to float32 changes
    u.v by at most 2U + U^2; summing D products in float32, in whatever order, fused or not, by at most
    D U / (1 - D U) times sum |u_d v_d| <= 1. With 2 U to spare for the subtraction below, for `TIE` and for float64's own
    roundings, each product is within E = (D + 4) U / (1 - D U) of the exact similarity. If j may be the first neighbour of
    i, its product is no more than 2 E below the best of row i. Products are forgotten only beyond that, so every column
    that may win is kept.
    """

    def __init__(self, num_rows: int, dim: int) -> None:
        unit_roundoff = 2.0**-24
        error = (dim + 4) * unit_roundoff / max(1 - dim * unit_roundoff, unit_roundoff)
        self._margin = np.float32(min(2 * error, 4.0))  # products lie in [-1, 1], give or take an error
        self._best_N = np.full(num_rows, -np.inf, dtype=np.float32)
        self._dropped_N = np.full(num_rows, -np.inf, dtype=np.float32)
        self._parts: list[tuple[IntArray, IntArray, FloatArray]] = []

    def see(self, first_row: int, first_column: int, products_RS: FloatArray) -> None:
        """Add the tile of products of rows `first_row...` with rows `first_column...`."""
        rows = slice(first_row, first_row + len(products_RS))
        tile_best_R = products_RS.max(axis=1)
        best_R = np.maximum(self._best_N[rows], tile_best_R)
        self._best_N[rows] = best_R
        floor_R = best_R - self._margin
        hot = np.flatnonzero(tile_best_R >= floor_R)
        if len(hot) == 0:
            return
        products_RS = products_RS if len(hot) == len(products_RS) else products_RS[hot]
        is_near_RS = products_RS >= floor_R[hot, None]
        is_crowded_R = np.count_nonzero(is_near_RS, axis=1) > _MAX_CANDIDATES
        if is_crowded_R.any():
            self._drop(hot[is_crowded_R] + first_row, tile_best_R[hot[is_crowded_R]])
            is_near_RS[is_crowded_R] = False
        row_P, column_P = np.nonzero(is_near_RS)
        self._parts.append((hot[row_P] + first_row, column_P + first_column, products_RS[row_P, column_P]))

    def compact(self) -> None:
        """Drop candidates below the margin, and those of rows with too many."""
        row_P, column_P, product_P = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        is_near_P = product_P >= self._best_N[row_P] - self._margin
        is_crowded_P = np.bincount(row_P[is_near_P], minlength=len(self._best_N))[row_P] > _MAX_CANDIDATES
        self._drop(row_P[is_near_P & is_crowded_P], product_P[is_near_P & is_crowded_P])
        kept_P = is_near_P & ~is_crowded_P
        self._parts = [(row_P[kept_P], column_P[kept_P], product_P[kept_P])]

    def result(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the crowded rows, then rows and columns of all other rows' candidates, sorted by both."""
        self.compact()
        is_crowded_N = self._dropped_N >= self._best_N - self._margin
        row_P, column_P, _ = self._parts[0]
        kept_P = ~is_crowded_N[row_P]
        row_P, column_P = row_P[kept_P], column_P[kept_P]
        order_P = np.lexsort((column_P, row_P))
        return np.flatnonzero(is_crowded_N), row_P[order_P], column_P[order_P]

    def _drop(self, row_P: IntArray, product_P: FloatArray) -> None:
        # A row is crowded in the end only if a dropped product is still within the margin then: best values only rise.
        np.maximum.at(self._dropped_N, row_P, product_P)


def _propose(unit_ND: FloatArray, block_rows: int) -> _Candidates:
    """Return the candidates of every row; each tile of products serves its rows and, transposed, its columns."""
    num_rows, dim = unit_ND.shape
    candidates = _Candidates(num_rows, dim)
    scratch = np.empty(min(block_rows, num_rows) ** 2, dtype=np.float32)
    for first_row in range(0, num_rows, block_rows):
        left_RD = unit_ND[first_row : first_row + block_rows]
        for first_column in range(first_row, num_rows, block_rows):
            right_SD = unit_ND[first_column : first_column + block_rows]
            products_RS = scratch[: len(left_RD) * len(right_SD)].reshape(len(left_RD), len(right_SD))
            _multiply(left_RD, right_SD, products_RS)
            if first_row == first_column:
                np.fill_diagonal(products_RS, -np.inf)
            else:
                candidates.see(first_column, first_row, products_RS.T)
            candidates.see(first_row, first_column, products_RS)
        candidates.compact()
    return candidates


def _multiply(left_RD: FloatArray, right_SD: FloatArray, products_RS: FloatArray) -> None:
    """Write all products of rows; a small matrix in pieces that are too small for a second thread.

    Products of one class's features take microseconds: threads that wait for each other would take longer than the work, and
    many times longer on a busy machine.
    """
    num_rows = max(1, _LONE_PRODUCTS // max(1, right_SD.size))
    if num_rows < _FEWEST_ROWS:
        num_rows = len(left_RD)
    for part in _slices(len(left_RD), num_rows):
        np.matmul(left_RD[part], right_SD.T, out=products_RS[part])


def _compare_with_all(rows_ND: Rows, norms_N: DoubleArray, row_R: IntArray, neighbours_N: IntArray) -> None:
    """Write the first neighbours of a few rows after a float64 product with all rows.

    The product is within E = (D + 64) 2^-53 of `_exact_cosines`: at most D roundings in the product, log2 D + 1 in the fixed
    order, and one for each of three scalings. A similarity 2 E inside the tie's edge ties for certain, and one 2 E outside
    does not; a row is settled here unless an uncertain similarity comes before its first certain tie.
    """
    num_rows, dim = rows_ND.shape
    error = (dim + 64) * 2.0**-53
    cosines_RN = np.empty((len(row_R), num_rows))
    left_RD = rows_ND[row_R].astype(np.float64)
    for part in _slices(num_rows, max(1, _SCRATCH_ELEMENTS // max(1, dim))):
        np.matmul(left_RD, rows_ND[part].astype(np.float64).T, out=cosines_RN[:, part])
    cosines_RN /= norms_N[row_R, None]
    cosines_RN /= norms_N
    cosines_RN[np.arange(len(row_R)), row_R] = -np.inf

    best_R1 = cosines_RN.max(axis=1, keepdims=True)
    is_tie_RN = cosines_RN >= best_R1 - (TIE - 2 * error)
    is_near_RN = cosines_RN >= best_R1 - (TIE + 2 * error)
    first_tie_R = np.where(is_tie_RN.any(axis=1), is_tie_RN.argmax(axis=1), num_rows)
    is_settled_R = is_near_RN.argmax(axis=1) == first_tie_R
    neighbours_N[row_R[is_settled_R]] = first_tie_R[is_settled_R]

    # Up to the first certain tie every near column may win; beyond it only a possible maximum matters.
    open_R = np.flatnonzero(~is_settled_R)
    is_needed_RN = is_near_RN[open_R] & (np.arange(num_rows) <= first_tie_R[open_R, None])
    is_needed_RN |= cosines_RN[open_R] >= best_R1[open_R] - 2 * error
    row_P, column_P = np.nonzero(is_needed_RN)
    _settle(rows_ND, norms_N, row_R[open_R[row_P]], column_P, neighbours_N)


def _settle(rows_ND: Rows, norms_N: DoubleArray, row_P: IntArray, column_P: IntArray, neighbours_N: IntArray) -> None:
    """Write each row's first neighbour among its candidates; pairs are sorted by row and column."""
    if len(row_P) == 0:
        return
    cosine_P = _exact_cosines(rows_ND, norms_N, row_P, column_P)
    starts_R = np.flatnonzero(np.diff(row_P, prepend=-1))
    best_R = np.maximum.reduceat(cosine_P, starts_R)
    best_P = np.repeat(best_R, np.diff(starts_R, append=len(row_P)))
    tied = np.flatnonzero(cosine_P >= best_P - TIE)
    first_rows, first_tied = np.unique(row_P[tied], return_index=True)
    neighbours_N[first_rows] = column_P[tied[first_tied]]


def _exact_cosines(rows_ND: Rows, norms_N: DoubleArray, row_P: IntArray, column_P: IntArray) -> DoubleArray:
    """Return the cosine similarity of pairs in float64, the same bits on every machine and for either order of a pair."""
    cosine_P = np.empty(len(row_P))
    for part in _slices(len(row_P), max(1, _SCRATCH_ELEMENTS // max(1, rows_ND.shape[1]))):
        products = np.multiply(rows_ND[row_P[part]], rows_ND[column_P[part]], dtype=np.float64)
        cosine_P[part] = _sum_rows(products) / (norms_N[row_P[part]] * norms_N[column_P[part]])
    return cosine_P


def _norms(rows_ND: Rows) -> DoubleArray:
    """Return the Euclidean norm of each row in float64, in fixed order."""
    num_rows, dim = rows_ND.shape
    norms_N = np.empty(num_rows)
    for part in _slices(num_rows, max(1, _SCRATCH_ELEMENTS // max(1, dim))):
        norms_N[part] = np.sqrt(_sum_rows(np.square(rows_ND[part], dtype=np.float64)))
    return norms_N


def _unit_rows(rows_ND: Rows, norms_N: DoubleArray) -> FloatArray:
    """Return rows divided by their norms in float64 and rounded once to float32."""
    unit_ND = np.empty(rows_ND.shape, dtype=np.float32)
    for part in _slices(len(rows_ND), max(1, _SCRATCH_ELEMENTS // max(1, rows_ND.shape[1]))):
        unit_ND[part] = rows_ND[part] / norms_N[part, None]
    return unit_ND


def _sum_rows(terms_ND: DoubleArray) -> DoubleArray:
    """Return the sum of each row, folding its halves onto each other; overwrites the terms.

    The order of the elementwise additions depends only on D: no library's choice of blocks or lanes can change a bit.
    """
    width = terms_ND.shape[1]
    if width == 0:
        return np.zeros(len(terms_ND))
    while width > 1:
        half = width // 2
        terms_ND[:, :half] += terms_ND[:, width - half : width]
        width -= half
    return terms_ND[:, 0].copy()


def _slices(length: int, size: int) -> Iterator[slice]:
    for start in range(0, length, size):
        yield slice(start, min(start + size, length))
