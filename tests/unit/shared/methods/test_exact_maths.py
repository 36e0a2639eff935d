"""Arithmetic with the same bits on any machine."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.methods.arithmetic.exact_maths import (
    EXACT_SUMS,
    exp,
    near_normal,
    on_grid,
    product,
    shuffled,
    softmax,
    uniform,
)


@given(seed=st.integers(0, 2**32 - 1), num_terms=st.integers(1, 3 * EXACT_SUMS), scale=st.integers(-300, 300))
def test_a_product_is_the_same_bits_under_any_permutation_of_its_inner_dimension(
    seed: int, num_terms: int, scale: int
) -> None:
    rng = np.random.default_rng(seed)
    x_MK, y_KN = np.ldexp(rng.normal(size=(3, num_terms)), scale), rng.normal(size=(num_terms, 2))
    order = rng.permutation(num_terms)
    expected = product(x_MK, y_KN)
    assert product(x_MK[:, order], y_KN[order]).tobytes() == expected.tobytes()
    x_grid, y_grid = on_grid(x_MK, num_terms), on_grid(y_KN, num_terms)
    one_by_one = np.zeros((3, 2))
    for term in range(num_terms):
        one_by_one += x_grid[:, term : term + 1] * y_grid[term]
    assert one_by_one.tobytes() == expected.tobytes()


def test_a_product_is_close_to_the_unrounded_one() -> None:
    rng = np.random.default_rng(0)
    x_MK, y_KN = np.abs(rng.normal(size=(10, 512))), np.abs(rng.normal(size=(512, 10)))
    np.testing.assert_allclose(product(x_MK, y_KN), x_MK @ y_KN, rtol=2e-6)


@pytest.mark.parametrize(("num_terms", "bits"), [(EXACT_SUMS, 21), (EXACT_SUMS + 1, 20), (4 * EXACT_SUMS + 1, 19)])
def test_the_grid_has_a_bit_less_for_every_factor_of_four_beyond_the_exact_sums(num_terms: int, bits: int) -> None:
    assert on_grid(np.array([0.5, 0.5 + 2.0 ** -(bits + 1) * 0.9]), num_terms).tolist() == [0.5, 0.5]
    assert on_grid(np.array([0.5, 0.5 + 2.0**-bits]), num_terms).tolist() == [0.5, 0.5 + 2.0**-bits]


@given(st.lists(st.floats(-700, 709), min_size=1, max_size=50))
def test_exp_is_within_one_unit_in_the_last_place_of_numpys(values: list[float]) -> None:
    found, expected = exp(np.array(values)), np.exp(np.array(values))
    assert (np.abs(found - expected) <= np.spacing(expected)).all()


def test_exp_at_its_ends() -> None:
    assert exp(np.array([0.0, -np.inf, -746.0])).tolist() == [1.0, 0.0, 0.0]
    assert np.isfinite(exp(np.array([1e308]))).all()


def test_shares_add_up_and_do_not_overflow() -> None:
    shares = softmax(np.array([[1e300, 0.0, -1e300], [1.0, 2.0, 3.0]]))
    assert shares[0].tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_allclose(shares[1], np.exp([1.0, 2, 3]) / np.exp([1.0, 2, 3]).sum(), rtol=1e-15)


def test_random_numbers_have_their_range_mean_and_variance() -> None:
    drawn = uniform((100_000,), 1, 2)
    assert 0 <= drawn.min() <= drawn.max() < 1
    normal = near_normal((100_000,), 1, 2)
    assert abs(normal.mean()) < 0.02
    assert abs(normal.var() - 1) < 0.02


def test_an_order_holds_every_number_once_and_is_another_for_another_seed() -> None:
    assert sorted(shuffled(100, 1, 2, 3).tolist()) == list(range(100))
    assert shuffled(100, 1, 2, 3).tolist() == shuffled(100, 1, 2, 3).tolist()
    assert shuffled(100, 1, 2, 3).tolist() != shuffled(100, 1, 2, 4).tolist()


def test_what_is_drawn_and_computed_is_the_same_on_any_machine() -> None:
    """Golden: recorded once; another sum is another result of every run that rests on these functions."""
    drawn = near_normal((20, 30), 7, 1)
    found = (drawn, product(drawn, drawn.T), exp(drawn), softmax(drawn), shuffled(50, 7, 1).astype(np.int64))
    digest = hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest()
    assert digest == "6086b56a44f8cb6fd3d84594dd739b2aa98b34bc5b0ed41ce0c57aad27c45279"
