import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.trainer.devices.parts import LEAST, parts


@given(num_images=st.integers(1, 200), num_devices=st.integers(1, 8))
def test_every_image_counts_once_in_neighbouring_parts_of_sizes_that_differ_by_one(
    num_images: int, num_devices: int
) -> None:
    found = parts(num_images, num_devices)
    assert len(found) == num_devices
    own = [part for part in found if part.weight]
    assert found[: len(own)] == own
    assert [number for part in own for number in range(num_images)[part.rows]] == list(range(num_images))
    assert max(part.size for part in own) - min(part.size for part in own) <= 1
    assert [part.weight for part in own] == [part.size / num_images for part in own]
    assert len(own) == 1 or min(part.size for part in own) >= LEAST
    assert all(part.rows == own[-1].rows for part in found[len(own) :])


@given(
    num_devices=st.integers(1, 8), losses=st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=40)
)
def test_the_mean_over_devices_of_weighted_means_of_parts_is_the_mean_over_images(
    num_devices: int, losses: list[float]
) -> None:
    weighed = [
        sum(losses[part.rows]) / part.size * (part.weight * num_devices) for part in parts(len(losses), num_devices)
    ]
    assert sum(weighed) / num_devices == pytest.approx(sum(losses) / len(losses), abs=1e-9)
