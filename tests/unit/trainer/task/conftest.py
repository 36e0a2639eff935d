"""Data of the client of tests.unit.trainer.tasks."""

import numpy as np
import pytest

from tests.unit.trainer.builders import npz


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight images of "a" and five of "c"; none of "b"."""
    rng = np.random.default_rng(0)
    labels = np.array([0] * 8 + [1] * 5)
    images = (rng.integers(0, 60, (13, 16, 16, 3)) + 150 * labels[:, None, None, None]).astype(np.uint8)
    tests = images[::3] + np.uint8(1)  # no copies, which are told
    return npz(tmp_path_factory.mktemp("data") / "images.npz", images, labels, ["a", "c"], tests=(tests, labels[::3]))
