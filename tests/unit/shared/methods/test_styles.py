"""Pooled styles: moments of all clients' images, whatever a client says of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.methods.server_arrays import group_fault
from shared.methods.styles import MAX_STATISTIC, PLACES, SCHEMA, pooled, style_fault


def styles_of(statistics_N2C: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Moments of images' statistics, as a client uploads them."""
    return {
        place: np.stack((values.mean(0), values.var(0)), axis=1).astype(np.float32)
        for place, values in statistics_N2C.items()
    }


def some_statistics(client: int, count: int = 6) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(client)
    return {place: rng.gamma(2.0, client + 1.0, (count, 2, width)) for place, width in PLACES.items()}


@given(num_clients=st.integers(1, 5))
def test_pooled_moments_are_those_of_all_images_together(num_clients: int) -> None:
    clients = [some_statistics(client) for client in range(num_clients)]
    found = pooled(map(styles_of, clients))
    assert group_fault(found, SCHEMA, 3) is None
    assert style_fault(found) is None
    together = {place: np.concatenate([each[place] for each in clients]) for place in PLACES}
    for place, wanted in styles_of(together).items():
        np.testing.assert_allclose(found[place], wanted, rtol=1e-4)


def test_every_client_weighs_alike_and_one_alone_keeps_its_styles() -> None:
    alone = styles_of(some_statistics(0))
    assert all(array.tobytes() == alone[place].tobytes() for place, array in pooled([alone]).items())
    few, many = styles_of(some_statistics(1, 2)), styles_of(some_statistics(2, 200))
    middle = pooled([few, many])
    for place in PLACES:
        np.testing.assert_allclose(middle[place][:, 0], (few[place][:, 0] + many[place][:, 0]) / 2, rtol=1e-6)


def test_equal_clients_leave_no_variance_below_zero() -> None:
    same = {place: np.full((2, 2, width), 1e5 / 3, np.float32) for place, width in PLACES.items()}
    for array in same.values():
        array[:, 1] = 0
    assert style_fault(pooled([same] * 7)) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((0, 0, 2e6), "the styles of stage1 reach 2e+06, and 1e+06 is the most that they can be"),
        ((0, 0, -2e6), "reach 2e+06"),
        ((0, 1, -0.5), "the styles of stage1 have a variance of -0.5, and none is below 0"),
        ((1, 1, -0.5), "have a variance of -0.5"),
        ((1, 0, -0.5), "the styles of stage1 have a standard deviation of -0.5, and none is below 0"),
    ],
)
def test_styles_that_cannot_be_are_named(change: Any, sentence: str) -> None:
    styles = styles_of(some_statistics(0))
    assert style_fault(styles) is None
    statistic, moment, value = change
    styles["stage1"][statistic, moment, 5] = value
    found = style_fault(styles)
    assert found is not None
    assert sentence in found
    assert MAX_STATISTIC == 1e6
