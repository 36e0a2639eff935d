"""Drawings of a report: accuracy over the rounds as SVG. Equal values give equal bytes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedplcc.comparison.outcomes import MEAN, WORST, Spread, curve
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Drawing, Paragraph, Part
from fedplcc.runs.plots import STROKES
from fedplcc.shared.types import LOCAL_MODEL

COLOURS = ("#1f77b4", "#e1701a", "#2ca02c", "#d62728", "#9467bd", "#a5714f", "#e377c2", "#7f8c8d", "#a8a81e", "#17a2b8")
"""Colours of lines; each is visible on white and on black."""
INK = "#010203"
"""Placeholder of the text's colour, which a page sets."""
PAPER = "#fdfeff"
"""Placeholder of the background's colour."""
TITLE_CHARACTERS = 68
"""Longest line of a title."""
LONG_LABEL = 36
"""Most letters of a label beside which another one has room in the legend."""
FEW_ROUNDS = 40
"""Up to this many rounds each one gets a mark."""


def accuracy_drawing(curves: Mapping[str, Mapping[int, Spread]], *, title: str, looks: Mapping[str, int]) -> str:
    """Draw accuracies in percent over the rounds, with one standard deviation over seeds on either side.

    Args:
        curves: By label, then round: mean and deviation over seeds; fractions.
        looks: Number of the colour and stroke by label, so that a row looks the same in all drawings.

    Returns:
        The text of an SVG file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    # Without pyplot a figure works in any thread and needs no display.
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Text stays text, so that it can be searched and takes the page's font; without the salt, ids are random.
    settings: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "fedplcc", "font.size": 11}
    settings |= {"font.family": "sans-serif", "text.parse_math": False}
    settings |= {
        name: INK for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    }
    with mpl.rc_context(settings):
        columns = 1 if max(map(len, curves), default=0) > LONG_LABEL else 2
        rows = -(-len(curves) // columns)
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
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, facecolor=PAPER)
    svg = file.getvalue()
    # A page takes the element alone, without the XML header; ids of groups are numbered, not random.
    return svg[svg.index("<svg") :].replace(INK, "#1b1f24").replace(PAPER, "#ffffff")


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


TITLES = {MEAN: "Mean over domains", WORST: "Worst domain"}
"""Titles of each group's drawings, by column."""


def curve_drawings(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield drawings of these rows' mean and worst domain over the rounds; of local models where there is no global one."""
    comparison = findings.comparison
    place = {row: number for number, row in enumerate(comparison.rows_of(dataset))}
    for column, title in TITLES.items():
        curves, looks = {}, {}
        for row in rows:
            cells, name = findings.cells(dataset, row), comparison.label_of_row(row)
            found = curve(cells, column)
            if not found:
                found, name = curve(cells, column, LOCAL_MODEL), f"{name} (local models)"
            if found:
                curves[name], looks[name] = found, place[row]
        if not curves:
            continue
        label = comparison.label_of_dataset(dataset)
        of_what = findings.heading(dataset, comparison.title_of_group(group))
        try:
            svg = accuracy_drawing(curves, title=f"{of_what}, {title.lower()}", looks=looks)
        except ImportError:
            yield Paragraph("The accuracy curves are not drawn: matplotlib is not installed (pip install matplotlib).")
            return
        ends = "; ".join(f"{row} {100 * list(found.values())[-1].mean:.1f}" for row, found in curves.items())
        yield Drawing(
            name=drawing_name(dataset, group, column),
            caption=f"{title} over the rounds; the band is one standard deviation over seeds on either side, and a line "
            "without one is of a single seed.",
            alternative=f"{title} of the accuracy on {label} over the rounds. In the last round, in percent: {ends}.",
            svg=svg,
        )


CLASSES, DOMAINS = "classes", "domains"
"""Columns of the heat maps (fedplcc/comparison/report/accuracy_maps.py)."""


def drawing_name(dataset: str, group: str, column: str, *, kind: str = "curves") -> str:
    """Return the name of a drawing's file: unique in a report, and independent of the other drawings.

    Hyphens within names are doubled. As names begin with a letter or a digit, an odd number of them is between two names.
    """
    return f"{kind}-{'-'.join(name.replace('-', '--') for name in (dataset, group, column))}.svg"


def drawing_patterns(datasets: Iterable[str], group: str = "*") -> list[str]:
    """Return patterns of the names of all drawings of these data sets, or the names of one group's."""
    kinds = {"curves": (*TITLES,), "map": (CLASSES, DOMAINS)}
    return [
        drawing_name(dataset, group, column, kind=kind)
        for dataset in datasets
        for kind, columns in kinds.items()
        for column in columns
    ]
