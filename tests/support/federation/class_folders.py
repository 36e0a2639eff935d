"""Class folders with small images that a model can tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.federation.numpy_client import CLASSES

NUM_PER_CLASS = 4
"""Images of each class, to train on and to test on."""


def write_class_folders(folder: Path) -> Path:
    """Write a folder of images for each class, brighter from class to class; returns the whole folder."""
    rng = np.random.default_rng(0)
    for label, name in enumerate(CLASSES):
        for split in ("train", "test"):
            path = folder / split / name
            path.mkdir(parents=True)
            for number in range(NUM_PER_CLASS):
                pixels = (rng.integers(0, 60, (16, 16, 3)) + 60 * label).astype(np.uint8)
                Image.fromarray(pixels).save(path / f"{number}.png")
    return folder
