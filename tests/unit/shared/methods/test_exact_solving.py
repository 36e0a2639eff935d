"""Linear equations with the same bits on any machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, full_product, log
from fedplcc.shared.methods.arithmetic.exact_solving import BLOCK, NotPositive, factor, solved


def a_matrix(dim: int, seed: int = 0, least: float = 0.1) -> DoubleArray:
    rows = np.random.default_rng(seed).normal(size=(2 * dim, dim))
    matrix: DoubleArray = rows.T @ rows / dim + least * np.eye(dim)
    return matrix


@pytest.mark.parametrize("dim", [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_the_solution_is_lapacks_to_float64s_precision(dim: int) -> None:
    matrix, right = a_matrix(dim), np.random.default_rng(1).normal(size=(dim, 5))
    expected = np.linalg.solve(matrix, right)
    np.testing.assert_allclose(solved(matrix, right), expected, rtol=0, atol=1e-13 * np.abs(expected).max())
    np.testing.assert_allclose(factor(matrix), np.linalg.cholesky(matrix), rtol=0, atol=1e-13 * np.abs(matrix).max())


def test_the_upper_triangle_and_the_arguments_are_let_be() -> None:
    matrix, right = a_matrix(BLOCK + 3), np.ones((BLOCK + 3, 1))
    before = matrix.tobytes(), right.tobytes()
    expected = solved(matrix, right)
    assert solved(np.tril(matrix), right).tobytes() == expected.tobytes()
    assert (matrix.tobytes(), right.tobytes()) == before


@pytest.mark.parametrize("dim", [1, 3, BLOCK + 2])
def test_a_matrix_that_is_not_positive_definite_is_refused(dim: int) -> None:
    flat = np.outer(np.arange(1, dim + 1.0), np.arange(1, dim + 1.0)) if dim > 1 else np.zeros((1, 1))
    for matrix in (flat, -a_matrix(dim), np.zeros((dim, dim))):
        with pytest.raises(NotPositive):
            solved(matrix, np.ones((dim, 1)))


@given(seed=st.integers(0, 2**32 - 1), num_terms=st.integers(1, 5000), scale=st.integers(-60, 60))
@settings(max_examples=50)
def test_a_full_product_is_the_same_bits_in_any_order_of_its_terms_and_as_good_as_float64(
    seed: int, num_terms: int, scale: int
) -> None:
    rng = np.random.default_rng(seed)
    x_MK, y_KN = np.ldexp(rng.normal(size=(3, num_terms)), scale), rng.normal(size=(num_terms, 2))
    order, found = rng.permutation(num_terms), full_product(x_MK, y_KN)
    assert full_product(x_MK[:, order], y_KN[order]).tobytes() == found.tobytes()
    largest = np.abs(x_MK).max() * np.abs(y_KN).max()
    np.testing.assert_allclose(found, x_MK @ y_KN, rtol=0, atol=1e-15 * num_terms * largest)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=50))
def test_log_is_within_two_units_in_the_last_place_of_numpys(values: list[float]) -> None:
    found, expected = log(np.array(values)), np.log(np.array(values))
    assert (np.abs(found - expected) <= 2 * np.spacing(np.abs(expected))).all()
    assert log(np.ones(1)).tolist() == [0.0]
