"""Optical digits: 1,797 real handwritten digits, 8 x 8 grey in 17 shades; a fifth of each class for testing.

Alpaydin, Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository; the test part, which
scikit-learn ships.
"""

from __future__ import annotations

import numpy as np

from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.sets.digits.shipped import shipped_file
from fedplcc.trainer.data.sets.digits.splits import held_out
from fedplcc.trainer.data.source import Pixels, Samples

SIDE = 8
MAX_SHADE = 16
TEST_SHARE = 0.2


def samples() -> tuple[Samples, Samples]:
    """Return the training and the test images.

    Raises:
        InvalidData: scikit-learn is not installed.
    """
    file = shipped_file("sklearn", "datasets/data/digits.csv.gz", "scikit-learn")
    rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    labels = rows[:, -1]
    images = (rows[:, :-1].reshape(-1, SIDE, SIDE, 1) * 255 // MAX_SHADE).astype(np.uint8)
    train, test = held_out(labels, TEST_SHARE, "optdigits")
    return _samples(images, labels, train), _samples(images, labels, test)


def _samples(images: Pixels, labels: IntArray, numbers: IntArray) -> Samples:
    return Samples(labels[numbers], lambda i: images[numbers[i]])
