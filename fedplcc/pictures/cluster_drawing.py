"""Drawing of cluster sizes: histograms of local and global ones, and bars of each client's and each class's clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedplcc.pictures.cluster_sizes import NOTHING, PERCENT, SAMPLES, ClusterSizes, Sizes, summary, variation
from fedplcc.pictures.points import DoubleArray
from fedplcc.pictures.style import CLASS_COLOURS, FAINT, INK, OTHER_COLOUR, house_style, picture_bytes, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator

MOST_BARS = 24
"""Most owners with a bar; of more, those with the most samples."""
MOST_BINS, FEWEST_BINS = 30, 8
NEUTRAL = "#9fb0c3"
"""Colour of clusters of all classes together."""


def draw_clusters(sizes: ClusterSizes, suffix: str) -> bytes:
    """Draw the sizes of a model's clusters.

    Args:
        sizes: The sizes.
        suffix: Kind of file, see `style.SUFFIXES`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    sides = {"Local prototypes": sizes.local, "Global prototypes": sizes.global_}
    bars = max(min(len(side.owners), MOST_BARS) for side in sides.values())
    bar_inches = 0.6 + 0.26 * bars
    with house_style():
        layout = ConstrainedLayoutEngine(wspace=0.06, hspace=0.06)
        figure = Figure(figsize=(10.6, 3.1 + bar_inches), layout=layout)
        FigureCanvasAgg(figure)
        figure.suptitle(sizes.title, x=0.01, ha="left", fontsize=11, fontweight="bold")
        axes = figure.subplots(2, 2, height_ratios=[2.3, bar_inches], squeeze=False)
        for column, (name, side) in enumerate(sides.items()):
            _draw_histogram(axes[0, column], side, name)
            _draw_bars(axes[1, column], side, "client" if column == 0 else "class")
        return picture_bytes(figure, suffix, title=f"Sizes of clusters: {sizes.title}", description=sizes.alt_text())


def bin_edges(sizes_C: DoubleArray) -> DoubleArray:
    """Return edges of bins of equal whole width, between whole numbers; fewer bins for fewer clusters."""
    num_bins = min(MOST_BINS, max(FEWEST_BINS, round(2 * len(sizes_C) ** 0.5)))
    largest = float(np.ceil(sizes_C.max()))
    width = max(1.0, float(np.ceil(largest / num_bins)))
    first = 0.5 if sizes_C.min() >= 0.5 else 0.0  # a share may be less than half a percent
    return np.arange(first, largest + width + 0.5, width)


def _draw_histogram(axes: Axes, side: Sizes, name: str) -> None:
    axes.set_title(name, loc="left", fontweight="bold", pad=18)
    axes.text(0, 1.03, summary(side), transform=axes.transAxes, color=FAINT, fontsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    if not side.are_known:
        axes.set_axis_off()
        return
    axes.hist(side.sizes_C, bins=bin_edges(side.sizes_C).tolist(), color=NEUTRAL, edgecolor="white", linewidth=0.5)
    axes.axvline(float(np.median(side.sizes_C)), color=INK, linestyle="--", linewidth=1, label="median")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, frameon=False, handlelength=1.6)
    axes.set_xlabel("Samples in the cluster" if side.unit == SAMPLES else f"Size of the cluster, {side.unit}")
    axes.set_ylabel("Number of clusters")
    axes.set_xlim(left=0)
    axes.yaxis.set_major_locator(_whole())


def _draw_bars(axes: Axes, side: Sizes, owner_noun: str) -> None:
    """Draw a bar for each owner, with a segment for each cluster."""
    axes.spines[["top", "right"]].set_visible(False)
    totals = np.bincount(side.owner_C, weights=side.sizes_C, minlength=len(side.owners))
    shown = np.sort(np.argsort(-totals, kind="stable")[:MOST_BARS]).tolist()
    for place, owner in enumerate(shown):
        sizes_C, class_ids_C = side.of(owner), side.classes_of(owner)
        colours = [CLASS_COLOURS[i] if i < len(CLASS_COLOURS) else OTHER_COLOUR for i in class_ids_C.tolist()]
        axes.barh(
            np.full(len(sizes_C), place),
            sizes_C,
            left=np.concatenate([[0.0], np.cumsum(sizes_C)[:-1]]) if len(sizes_C) else [],
            height=0.74,
            color=colours,
            edgecolor="white",
            linewidth=0.7,
        )
        note = f" {len(sizes_C)} cluster{'' if len(sizes_C) == 1 else 's'}"
        if side.are_known and len(sizes_C) > 1:
            note += f", CV {variation(sizes_C):.2f}"
        axes.text(totals[owner], place, note, va="center", fontsize=8, color=FAINT)
    axes.set_yticks(range(len(shown)), [shortened(side.owners[owner]) for owner in shown])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.margins(x=0.26, y=0.02)
    axes.set_xlim(left=0)
    axes.set_xlabel(_bars_label(side, owner_noun))
    axes.xaxis.set_major_locator(_whole())
    if len(shown) < len(side.owners):
        axes.set_title(
            f"{len(shown)} of {len(side.owners)}, those with the most", loc="left", fontsize=8.5, color=FAINT
        )


def _bars_label(side: Sizes, owner_noun: str) -> str:
    what = {
        SAMPLES: f"Samples of each {owner_noun}, a segment per cluster",
        PERCENT: f"Share of each {owner_noun} (%), a segment per cluster",
        NOTHING: f"Number of prototypes of each {owner_noun}",
    }[side.unit]
    return what + (", coloured by class" if owner_noun == "client" else "")


def _whole() -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True, min_n_ticks=1)
