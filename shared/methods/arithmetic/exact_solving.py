"""Systems of linear equations with a positive definite matrix, solved with the same bits on any machine.

Cholesky's factorisation by columns of blocks: what comes of the blocks to the left is one full product (exact_maths.py), and
within a block plain operations go column by column. The error is about that of LAPACK. A matrix of 1,280 rows with 65 right
sides takes less than a second on one core.

Shape legend: D rows, N right sides.
"""

from __future__ import annotations

import math

import numpy as np

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, full_product

BLOCK = 64
"""Columns of a block."""
SMALLEST_PIVOT = 1e-15
"""Least pivot, as a share of the largest element of the diagonal."""


class NotPositive(ArithmeticError):
    """A matrix that is not positive definite, or is none to float64's precision."""


def solved(matrix_DD: DoubleArray, right_DN: DoubleArray) -> DoubleArray:
    """Return X `[D, N]` with A X = B, for a symmetric A of which the lower triangle is read.

    Raises:
        NotPositive: A is not positive definite.
    """
    lower_DD = factor(matrix_DD)
    found, dim = right_DN.astype(np.float64), len(lower_DD)
    for first in range(0, dim, BLOCK):
        rows = slice(first, min(first + BLOCK, dim))
        found[rows] -= full_product(lower_DD[rows, :first], found[:first]) if first else 0.0
        for row in range(rows.start, rows.stop):
            found[row] /= lower_DD[row, row]
            found[row + 1 : rows.stop] -= lower_DD[row + 1 : rows.stop, row, None] * found[row]
    for first in reversed(range(0, dim, BLOCK)):
        rows = slice(first, min(first + BLOCK, dim))
        found[rows] -= full_product(lower_DD[rows.stop :, rows].T, found[rows.stop :]) if rows.stop < dim else 0.0
        for row in reversed(range(rows.start, rows.stop)):
            found[row] /= lower_DD[row, row]
            found[rows.start : row] -= lower_DD[row, rows.start : row, None] * found[row]
    return found


def factor(matrix_DD: DoubleArray) -> DoubleArray:
    """Return the lower triangle L `[D, D]` with L L^T = A, for a symmetric A of which the lower triangle is read.

    Raises:
        NotPositive: A is not positive definite.
    """
    dim = len(matrix_DD)
    least = SMALLEST_PIVOT * float(np.diagonal(matrix_DD).max(initial=0.0))
    lower_DD = np.zeros((dim, dim))
    for first in range(0, dim, BLOCK):
        last = min(first + BLOCK, dim)
        panel = matrix_DD[first:, first:last].astype(np.float64)
        if first:
            panel -= full_product(lower_DD[first:, :first], lower_DD[first:last, :first].T)
        for column in range(last - first):
            pivot = float(panel[column, column])
            if not pivot > least:
                raise NotPositive(f"pivot {first + column} is {pivot}")
            panel[column:, column] /= math.sqrt(pivot)
            below = panel[column + 1 :, column]
            panel[column + 1 :, column + 1 :] -= below[:, None] * below[: last - first - column - 1]
        lower_DD[first:, first:last] = panel
    return np.tril(lower_DD)
