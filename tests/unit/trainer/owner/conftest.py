"""Images of a client whose classes are of different sizes."""

import numpy as np
import pytest
import torch

from tests.unit.trainer.task.test_runner import CLASSES


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of three classes: 9, 5 and 1 to train on, 4, 2 and 1 to test on."""
    torch.use_deterministic_algorithms(True)
    rng, path = np.random.default_rng(3), tmp_path_factory.mktemp("data") / "images.npz"
    train, test = np.repeat([0, 1, 2], [9, 5, 1]), np.repeat([0, 1, 2], [4, 2, 1])
    np.savez(
        path,
        x_train=rng.integers(0, 255, (len(train), 16, 16, 3)).astype(np.uint8),
        y_train=train,
        x_test=rng.integers(0, 255, (len(test), 16, 16, 3)).astype(np.uint8),
        y_test=test,
        classes=list(CLASSES),
    )
    return f"npz:{path}"
