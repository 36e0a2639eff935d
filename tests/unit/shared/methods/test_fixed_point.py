"""Sums that are the same bytes in any order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.shared.methods.arithmetic.fixed_point import LARGEST, Total, is_too_large, narrow, rounded

numbers = st.lists(st.floats(-LARGEST, LARGEST, allow_subnormal=False), min_size=1, max_size=4)
clients = st.integers(1, 4).flatmap(
    lambda size: st.lists(st.lists(st.floats(-LARGEST, LARGEST), min_size=size, max_size=size), min_size=1, max_size=6)
)


def total(arrays: list[np.ndarray]) -> Total:
    found = Total.zero(arrays[0].shape)
    for array in arrays:
        found.add(array)
    return found


def bytes_of(found: Total) -> bytes:
    return found.value.tobytes()


@given(clients=clients, order=st.randoms(use_true_random=False))
def test_any_order_gives_the_same_bytes_and_the_exact_sum(clients: list[list[float]], order: object) -> None:
    sent = [rounded(np.array(values)) for values in clients]
    turned = list(sent)
    order.shuffle(turned)  # type: ignore[attr-defined]  # a random.Random
    assert bytes_of(total(sent)) == bytes_of(total(turned))
    exact = [sum(int(array[place]) for array in sent) for place in range(len(sent[0]))]
    assert total(sent).value.tolist() == [float(Fraction(number, 2**32)) for number in exact]


@given(clients=clients, leaver=st.data())
def test_a_client_that_is_added_and_taken_away_leaves_no_trace(
    clients: list[list[float]], leaver: st.DataObject
) -> None:
    sent = [rounded(np.array(values)) for values in clients]
    chosen = leaver.draw(st.integers(0, len(sent) - 1))
    found = total(sent)
    found.add(sent[chosen], -1)
    others = [array for number, array in enumerate(sent) if number != chosen]
    assert bytes_of(found) == bytes_of(total(others) if others else Total.zero(sent[0].shape))


@given(numbers)
def test_float32_holds_multiples_of_the_quantum_within_a_24_bit_mantissa(values: list[float]) -> None:
    sent = narrow(np.array(values))
    assert np.isfinite(sent).all()
    quanta = np.ldexp(sent.astype(np.float64), 32)
    assert quanta.tolist() == np.rint(quanta).tolist()
    np.testing.assert_allclose(sent, values, rtol=2.0**-24, atol=2.0**-33)
    found = Total.zero(sent.shape)
    found.add(sent)
    assert found.value.tolist() == sent.astype(np.float64).tolist()


def test_what_is_too_large_is_kept_within_bounds_and_found() -> None:
    for make in (rounded, narrow):
        assert is_too_large(make(np.array([1e300])))
        assert is_too_large(make(np.array([0.0, -float(LARGEST)])))
        assert not is_too_large(make(np.array([LARGEST * (1 - 2.0**-20)])))
