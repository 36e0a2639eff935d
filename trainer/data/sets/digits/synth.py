"""Synthetic digits: digits drawn with fonts; 4,000 for training and 1,000 for testing, equally many of each class.

After the description of SYN Numbers in Ganin, Lempitsky, "Unsupervised Domain Adaptation by Backpropagation", ICML 2015,
https://arxiv.org/abs/1409.7495: numbers of one to three digits, the labelled one in the middle, with random font, position,
orientation, colours and blur. That data set itself is not used.

Differs from the description: the fonts are 21 text fonts that matplotlib ships; backgrounds are plain and strokes have no
outline. Training and test images share the fonts.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from fedplcc.trainer.data.sets.digits.shipped import shipped_file
from fedplcc.trainer.data.source import Pixels, Samples
from fedplcc.trainer.reproducibility.randomness import derive_seed

SIDE = 32
SCALE = 2
"""Factor by which digits are drawn larger, before they are reduced."""
NUM_TRAIN, NUM_TEST = 4000, 1000
MIN_CONTRAST = 255
"""Smallest sum over the channels of the absolute difference between the colours of digit and background."""
MAX_ANGLE_DEGREES = 15.0
MAX_SHIFT_PIXELS = 1.7
MAX_BLUR_PIXELS = 1.2
NUM_NEIGHBOURS = (0, 0, 1, 2)
"""Digits beside the labelled one, each entry equally likely: first to the right, then to the left."""
FONT_SIZES = tuple(range(20, 29))
"""Height of the em square in pixels of the finished image."""
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSans-Bold.ttf",
    "DejaVuSans-BoldOblique.ttf",
    "DejaVuSans-Oblique.ttf",
    "DejaVuSansMono.ttf",
    "DejaVuSansMono-Bold.ttf",
    "DejaVuSansMono-BoldOblique.ttf",
    "DejaVuSansMono-Oblique.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Bold.ttf",
    "DejaVuSerif-BoldItalic.ttf",
    "DejaVuSerif-Italic.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralBol.ttf",
    "STIXGeneralBolIta.ttf",
    "STIXGeneralItalic.ttf",
    "cmb10.ttf",
    "cmr10.ttf",
    "cmss10.ttf",
    "cmti10.ttf",
    "cmtt10.ttf",
)


def samples() -> tuple[Samples, Samples]:
    """Return the training and the test images."""
    return _samples("train", NUM_TRAIN), _samples("test", NUM_TEST)


def _samples(split: str, count: int) -> Samples:
    labels = np.arange(count, dtype=np.int64) % 10
    return Samples(labels, lambda i: draw(int(labels[i]), derive_seed("digits", "synth", split, i)))


def draw(digit: int, seed: int) -> Pixels:
    """Return a picture of the digit, 32 x 32 x 3.

    Raises:
        InvalidData: matplotlib is not installed.
    """
    rng = np.random.default_rng(seed)
    font = _font(FONTS[rng.integers(len(FONTS))], int(rng.choice(FONT_SIZES)))
    side = SIDE * SCALE
    canvas = Image.new("L", (side, side))
    pen = ImageDraw.Draw(canvas)
    centre = (side - 1) / 2 + rng.uniform(-MAX_SHIFT_PIXELS, MAX_SHIFT_PIXELS, 2) * SCALE
    text, width = str(digit), font.getlength(str(digit))
    pen.text((centre[0], centre[1]), text, fill=255, font=font, anchor="mm")
    left, right = rng.integers(10, size=2)
    num_neighbours = rng.choice(NUM_NEIGHBOURS)
    if num_neighbours >= 1:
        pen.text((centre[0] + width / 2, centre[1]), str(right), fill=255, font=font, anchor="lm")
    if num_neighbours == 2:
        pen.text((centre[0] - width / 2, centre[1]), str(left), fill=255, font=font, anchor="rm")
    canvas = canvas.rotate(rng.uniform(-MAX_ANGLE_DEGREES, MAX_ANGLE_DEGREES), Image.Resampling.BILINEAR)
    canvas = canvas.filter(ImageFilter.GaussianBlur(rng.uniform(0, MAX_BLUR_PIXELS) * SCALE)).reduce(SCALE)
    ink, paper = _colours(rng)
    share_HW1 = np.asarray(canvas, dtype=np.float64)[:, :, None] / 255
    return np.rint(paper + (ink - paper) * share_HW1).astype(np.uint8)


def _colours(rng: np.random.Generator) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return two random colours that differ by `MIN_CONTRAST` or more."""
    while True:
        pair = rng.integers(256, size=(2, 3)).astype(np.float64)
        if np.abs(pair[0] - pair[1]).sum() >= MIN_CONTRAST:
            return pair


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    file = shipped_file("matplotlib", f"mpl-data/fonts/ttf/{name}", "matplotlib")
    # The basic layout engine: the other one depends on a system library that may be missing.
    return ImageFont.truetype(str(file), size * SCALE, layout_engine=ImageFont.Layout.BASIC)
