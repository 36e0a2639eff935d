"""Drawing of a map of features and prototypes.

Colour is the class and shape the domain; a local prototype has a dark outline, a global one is a star. The map also shows
the names of the classes, for people who cannot use the colours.

Shape legend: N points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedplcc.pictures.feature_map import FeatureMap, Panel, coloured_classes, label_spots
from fedplcc.pictures.points import Kind
from fedplcc.pictures.style import (
    CLASS_COLOURS,
    INK,
    MARKERS,
    OTHER_COLOUR,
    house_style,
    picture_bytes,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_INCHES = 4.7
ROW_INCHES = 0.2
"""Height of a legend's line."""
IMAGE_AREA, LOCAL_AREA = 11.0, 30.0
"""Areas of images and local prototypes, in square points."""
GLOBAL_AREAS = (70.0, 330.0)
"""Areas of a star with no share of its class and with all of it, in square points."""
MAX_NAME_ON_MAP = 14
"""Longest name of a class on the map; a longer one is cut."""
EDGE = 0.12
"""Share of a panel's width that is near an edge."""
POINTS_PER_INCH = 72
NAME_LIFT = 6
"""Points between a class's densest spot and its name."""


def draw_map(feature_map: FeatureMap, suffix: str) -> bytes:
    """Draw a map.

    Args:
        suffix: Kind of file, see `style.SUFFIXES`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with house_style():
        return picture_bytes(
            map_figure(feature_map),
            suffix,
            title="Features and prototypes: " + " beside ".join(panel.title for panel in feature_map.panels),
        )


def map_figure(feature_map: FeatureMap) -> Figure:
    """Return a map as a figure.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = _colours(feature_map)
    marks = _markers(len(feature_map.domains))
    legends = _legends(feature_map, colours, marks)
    rows = sum(len(labels) + 1.7 for _, _, labels in legends)
    longest = max(len(label) for _, _, labels in legends for label in labels)
    width, height = 0.55 + 0.075 * longest, max(PANEL_INCHES + 0.55, rows * ROW_INCHES)
    num_panels = len(feature_map.panels)
    with house_style():
        figure = Figure(figsize=(num_panels * PANEL_INCHES + width, height), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(1, num_panels + 1, width_ratios=[PANEL_INCHES] * num_panels + [width], wspace=0.02)
        for column, panel in enumerate(feature_map.panels):
            _draw_panel(figure.add_subplot(grid[column]), panel, feature_map.classes, colours, marks)
        _draw_legends(figure.add_subplot(grid[num_panels]), legends, height)
    return figure


def _draw_panel(axes: Axes, panel: Panel, classes: Sequence[str], colours: Sequence[str], marks: Sequence[str]) -> None:
    colour_N = np.array(colours)[panel.points.class_ids_N]
    for domain_id, marker in enumerate(marks):
        _draw_domain(axes, panel, domain_id, marker, colour_N)
    _draw_stars(axes, panel, colour_N)
    _name_classes(axes, panel, classes, colours)
    axes.set_title(panel.title, loc="left", fontweight="bold")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.04)


def _draw_domain(axes: Axes, panel: Panel, domain_id: int, marker: str, colour_N: npt.NDArray[np.str_]) -> None:
    """Draw a domain's images, and the local prototypes of its clients over them."""
    x_N, y_N = panel.xy_N2.T
    is_domain_N = panel.points.domain_ids_N == domain_id
    looks: dict[Kind, dict[str, Any]] = {
        Kind.IMAGE: {"s": IMAGE_AREA, "linewidths": 0, "alpha": 0.75, "zorder": 2},
        Kind.LOCAL: {"s": LOCAL_AREA, "linewidths": 0.8, "edgecolors": INK, "zorder": 3},
    }
    for kind, look in looks.items():
        rows = np.flatnonzero(is_domain_N & panel.points.of(kind))
        axes.scatter(x_N[rows], y_N[rows], c=colour_N[rows], marker=marker, **look)


def _draw_stars(axes: Axes, panel: Panel, colour_N: npt.NDArray[np.str_]) -> None:
    """Draw the global prototypes, each as large as its share of its class."""
    x_N, y_N = panel.xy_N2.T
    stars = np.flatnonzero(panel.points.of(Kind.GLOBAL))
    if not len(stars):
        return
    smallest, largest = GLOBAL_AREAS
    areas = smallest + (largest - smallest) * panel.points.shares_N[stars]
    # A white rim under the dark one separates a star from its background.
    axes.scatter(x_N[stars], y_N[stars], s=areas * 1.7, c="white", marker="*", linewidths=0, zorder=4)
    axes.scatter(
        x_N[stars], y_N[stars], s=areas, c=colour_N[stars], marker="*", linewidths=1.1, edgecolors=INK, zorder=5
    )


def _name_classes(axes: Axes, panel: Panel, classes: Sequence[str], colours: Sequence[str]) -> None:
    """Write the name of each class above its densest spot, unless another name is there."""
    from matplotlib.patheffects import withStroke

    named = {class_id: spot for class_id, spot in label_spots(panel).items() if colours[class_id] != OTHER_COLOUR}
    names = {class_id: shortened(classes[class_id], MAX_NAME_ON_MAP) for class_id in named}
    size = 11 if max(map(len, names.values()), default=0) <= 3 else 9
    low_2, high_2 = panel.xy_N2.min(0), panel.xy_N2.max(0)
    inches_per_unit = PANEL_INCHES / (high_2 - low_2).max()
    taken: list[tuple[float, float, float]] = []
    for class_id, (x, y) in named.items():
        name, at = names[class_id], (x - low_2[0]) / (high_2[0] - low_2[0])
        side = "left" if at < EDGE else "right" if at > 1 - EDGE else "center"  # near an edge inwards
        width = 0.6 * size / POINTS_PER_INCH * len(name)
        middle = x * inches_per_unit + {"left": width / 2, "center": 0.0, "right": -width / 2}[side]
        height = y * inches_per_unit
        if any(abs(middle - m) < (width + w) / 2 and abs(height - h) < size / POINTS_PER_INCH for m, h, w in taken):
            continue
        taken.append((middle, height, width))
        text = axes.annotate(
            name,
            (x, y),
            xytext=(0, NAME_LIFT),
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=size,
            fontweight="bold",
            color=INK,
            zorder=6,
            in_layout=False,
        )
        text.set_path_effects([withStroke(linewidth=3, foreground="white")])


def _colours(feature_map: FeatureMap) -> list[str]:
    """Return a colour for each class."""
    colours = [OTHER_COLOUR] * len(feature_map.classes)
    own = coloured_classes(feature_map.panels, len(feature_map.classes), len(CLASS_COLOURS))
    for colour, class_id in zip(CLASS_COLOURS, own.tolist(), strict=False):
        colours[class_id] = colour
    return colours


def _markers(num_domains: int) -> list[str]:
    """Return a marker for each domain; the same for all if there are more domains than distinct markers."""
    return [MARKERS[i] if num_domains <= len(MARKERS) else MARKERS[0] for i in range(num_domains)]


_Legend = tuple[str, list[Any], list[str]]


def _legends(feature_map: FeatureMap, colours: Sequence[str], marks: Sequence[str]) -> list[_Legend]:
    """Return title, handles and labels of each legend."""
    named = [
        (name, colour) for name, colour in zip(feature_map.classes, colours, strict=True) if colour != OTHER_COLOUR
    ]
    if len(named) < len(feature_map.classes):
        named.append((f"{len(feature_map.classes) - len(named)} other classes", OTHER_COLOUR))
    legends: list[_Legend] = [
        ("Class", [_mark("o", 6, colour) for _, colour in named], [shortened(name) for name, _ in named])
    ]
    if len(set(marks)) == len(marks):
        legends.append(
            ("Domain", [_mark(mark, 5, INK) for mark in marks], [shortened(name) for name in feature_map.domains])
        )
    else:
        legends.append(("Domain", [_mark(marks[0], 5, INK)], [f"{len(marks)}, not told apart"]))
    kinds = [(_mark("o", 3.4, INK), Kind.IMAGE.label)]
    if any(panel.points.count(Kind.LOCAL) for panel in feature_map.panels):
        kinds.append((_mark("o", 5.5, "white", edge=INK), Kind.LOCAL.label))
    if any(panel.points.count(Kind.GLOBAL) for panel in feature_map.panels):
        kinds.append((_mark("*", 12, "white", edge=INK), Kind.GLOBAL.label))
    legends.append(("Point", [handle for handle, _ in kinds], [label for _, label in kinds]))
    return legends


def _mark(marker: str, size: float, colour: str, *, edge: str = "none") -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker=marker, markersize=size, markerfacecolor=colour, markeredgecolor=edge)


def _draw_legends(axes: Axes, legends: Sequence[_Legend], height: float) -> None:
    """Draw the legends below each other."""
    axes.axis("off")
    top = 1.0
    for title, handles, labels in legends:
        legend = axes.legend(
            handles,
            labels,
            title=title,
            loc="upper left",
            bbox_to_anchor=(0, top),
            borderaxespad=0,
            frameon=False,
            alignment="left",
            labelspacing=0.35,
            handletextpad=0.3,
            title_fontproperties={"weight": "bold", "size": 9},
        )
        axes.add_artist(legend)
        top -= (len(labels) + 1.7) * ROW_INCHES / height
