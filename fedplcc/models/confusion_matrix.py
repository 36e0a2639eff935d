"""The picture of a model's confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedplcc.runs.plots import png
from fedplcc.shared.types import IntArray

MOST_WRITTEN_CLASSES = 30
"""Up to this many classes a confusion matrix has its numbers in the cells."""
MAX_CONFUSION_INCHES = 13.0
"""Longest side of a confusion matrix; with more classes the cells become smaller."""
POINTS_PER_INCH = 72
TITLE_INCHES_PER_CHARACTER = 0.12
MAX_LABEL_CHARACTERS = 24
"""Longest class name at a confusion matrix; a longer one is cut."""


def confusion_matrix(confusion_MM: IntArray, classes: Sequence[str], *, title: str) -> bytes:
    """Draw a confusion matrix: a row per true class, a column per predicted class.

    Colour is the share of the row, so that a rare class is seen as well as a common one. Few classes have their numbers of
    images written into the cells.

    Args:
        confusion_MM: Number of images of class i that were given class j.
        title: What the picture shows, in one line or more; of a line that is too long the end is shown.

    Returns:
        A PNG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    num_classes = len(classes)
    share_MM = confusion_MM / np.maximum(confusion_MM.sum(axis=1, keepdims=True), 1)
    labels = [_shortened(name) for name in classes]
    longest = max(map(len, labels))
    size = min(max(0.45 * num_classes, 4.5), MAX_CONFUSION_INCHES)
    cell = size / num_classes
    font = max(2.0, min(9.0, POINTS_PER_INCH * 0.8 * cell))
    label_width = 0.65 * font / POINTS_PER_INCH * longest
    are_level = label_width < cell
    figure = Figure(
        figsize=(size + label_width + 1.4, size + (0.0 if are_level else label_width) + 1.0),
        dpi=150,
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # The square root of the share: a mistake in twenty is to be seen beside hits.
    image = axes.imshow(share_MM, cmap="Blues", norm=PowerNorm(0.5, vmin=0.0, vmax=1.0), interpolation="nearest")
    positions = range(num_classes)
    # As they are: a class may be called "$5 to $10".
    axes.set_xticks(positions, labels, fontsize=font, rotation=0 if are_level else 90, parse_math=False)
    axes.set_yticks(positions, labels, fontsize=font, parse_math=False)
    axes.tick_params(length=0)
    axes.set_xlabel("Predicted class")
    axes.set_ylabel("True class")
    width = int(figure.get_figwidth() / TITLE_INCHES_PER_CHARACTER)
    axes.set_title("\n".join(_ending(line, width) for line in title.splitlines()), parse_math=False)
    if num_classes <= MOST_WRITTEN_CLASSES:
        digits = len(str(confusion_MM.max()))
        number_font = min(font, POINTS_PER_INCH * cell / (0.75 * digits))
        for row, column in zip(*confusion_MM.nonzero(), strict=True):
            colour = "white" if share_MM[row, column] > 0.3 else "black"
            number = str(confusion_MM[row, column])
            axes.text(column, row, number, ha="center", va="center", color=colour, fontsize=number_font)
    figure.colorbar(image, ax=axes, label="Share of the true class", shrink=0.8, ticks=[0, 0.05, 0.2, 0.4, 0.6, 0.8, 1])
    return png(figure)


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_LABEL_CHARACTERS else name[: MAX_LABEL_CHARACTERS - 1] + "…"


def _ending(line: str, width: int) -> str:
    return line if len(line) <= width else "…" + line[-(width - 1) :]
