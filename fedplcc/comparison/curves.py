"""Accuracy over the rounds, a line per row with a band over its seeds, as SVG. Equal values give equal bytes."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from fedplcc.comparison.outcomes import Spread
from fedplcc.runs.plots import STROKES

COLOURS = ("#1f77b4", "#e1701a", "#2ca02c", "#d62728", "#9467bd", "#a5714f", "#e377c2", "#7f8c8d", "#a8a81e", "#17a2b8")
"""Of lines; each is seen on white and on black."""
INK = "#010203"
"""Stands for the colour of text, which a page sets."""
PAPER = "#fdfeff"
"""Stands for the background."""
TITLE_CHARACTERS = 68
"""Longest line of a title."""
FEW_ROUNDS = 40
"""Up to this many rounds each one gets a mark."""


def accuracy_drawing(curves: Mapping[str, Mapping[int, Spread]], *, title: str, looks: Mapping[str, int]) -> str:
    """Draw accuracies in percent over the rounds, with one standard deviation over seeds on either side.

    Args:
        curves: By label, then round: mean and deviation over seeds; fractions.
        title: What the drawing shows.
        looks: By label, the number of its colour and stroke, so that a row looks the same in several drawings.

    Returns:
        The text of an SVG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    # Neither pyplot nor its windows: a figure of its own works in any thread and without a display.
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Text stays text, so that it can be searched and takes the page's font; without the salt ids are drawn at random.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "fedplcc", "font.size": 11}
    settings |= {"font.family": "sans-serif", "text.parse_math": False}
    settings |= {
        name: INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    }
    with mpl.rc_context(settings):
        rows = -(-len(curves) // 2)
        figure = Figure(figsize=(6.4, 4.0 + 0.24 * rows), layout="constrained", facecolor=PAPER)
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none")
        for label, curve in curves.items():
            _draw(axes, looks[label], label, curve)
        axes.set_title(textwrap.fill(title, TITLE_CHARACTERS), fontsize=11)
        axes.set_xlabel("Round")
        axes.set_ylabel("Accuracy (%)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(visible=True, color=INK, alpha=0.15)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=10)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)
    svg = file.getvalue()
    # What stands before the element belongs to a file of its own kind; ids of groups are counted, not drawn.
    return svg[svg.index("<svg") :].replace(INK, "#1b1f24").replace(PAPER, "#ffffff")


def for_page(svg: str, prefix: str) -> str:
    """The drawing within a page: in the page's colours, and with ids that no other drawing has."""
    svg = svg.replace("#1b1f24", "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)


def _draw(axes: Any, number: int, label: str, curve: Mapping[int, Spread]) -> None:
    colour, stroke = COLOURS[number % len(COLOURS)], STROKES[number // len(COLOURS) % len(STROKES)]
    rounds = list(curve)
    means = [100 * found.mean for found in curve.values()]
    marker = "o" if len(rounds) <= FEW_ROUNDS else None
    axes.plot(rounds, means, color=colour, linestyle=stroke, linewidth=1.8, marker=marker, markersize=3, label=label)
    if any(found.std is not None for found in curve.values()):
        margins = [100 * (found.std or 0.0) for found in curve.values()]
        low, high = (
            [mean + sign * margin for mean, margin in zip(means, margins, strict=True)] for sign in (-1.0, 1.0)
        )
        axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
