"""Images of a client whose classes are of different sizes."""

import numpy as np
import pytest
import torch

from tests.unit.trainer.builders import npz
from tests.unit.trainer.tasks import CLASSES


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of three classes: 9, 5 and 1 to train on, 4, 2 and 1 to test on."""
    torch.use_deterministic_algorithms(True)
    rng, path = np.random.default_rng(3), tmp_path_factory.mktemp("data") / "images.npz"
    train, test = np.repeat([0, 1, 2], [9, 5, 1]), np.repeat([0, 1, 2], [4, 2, 1])
    images, tests = (rng.integers(0, 255, (len(labels), 16, 16, 3)).astype(np.uint8) for labels in (train, test))
    return npz(path, images, train, CLASSES, tests=(tests, test))
