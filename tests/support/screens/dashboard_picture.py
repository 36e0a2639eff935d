"""Draws a dashboard from what Prometheus answered to its panels: a picture of live data where no Grafana can be installed.

Panels lie where gridPos puts them and have the dashboard's titles, units, colours, thresholds and annotations. What is drawn
is what was answered; nothing is smoothed or left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.support.hosts.prometheus_server import Series
from tests.support.screens.dashboards import Query

COLUMNS, CELL_PX, GAP_PX, DPI = 24, (76, 38), 8, 100
"""As Grafana lays panels out on a screen 1,920 pixels wide."""
HEADER_PX, TITLE_PX = 56, 30
PAGE, PANEL, EDGE, TEXT, FAINT, GRID = "#111217", "#181b1f", "#2a2d33", "#d5d6dd", "#8e8f97", "#2c2f36"
NAMED = {
    "green": "#73bf69",
    "yellow": "#fade2a",
    "red": "#f2495c",
    "blue": "#5794f2",
    "text": "#d5d6dd",
}
SERIES = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#8ab8ff", "#e0b400", "#37872d", "#fa6400", "#a352cc")
UP_TO = (("", 1), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12))

Answers = Mapping[int, Sequence[tuple[Query, Sequence[Series]]]]
"""What each panel got, by its id."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series of a panel, with the name that the panel gives it."""

    name: str
    series: Series

    @property
    def last(self) -> float:
        """Its newest value."""
        return self.series.last


def draw(
    document: Mapping[str, Any],
    answers: Answers,
    marks: Sequence[tuple[str, Sequence[Series]]],
    *,
    begin: float,
    end: float,
    file: Path,
) -> None:
    """Write a dashboard as a PNG.

    Args:
        document: The dashboard.
        answers: What its panels' queries gave.
        marks: Colour and answer of each annotation.
        begin: Where time axes begin; seconds since the epoch.
        end: Where they end.
        file: The picture.
    """
    panels = [panel for panel in document["panels"] if panel["type"] != "row"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * CELL_PX[0] + GAP_PX, rows * CELL_PX[1] + HEADER_PX + GAP_PX
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAGE)
    span = f"{_clock(begin)} to {_clock(end)} UTC"
    figure.text(14 / width, 1 - 30 / height, document["title"], color=TEXT, fontsize=14, weight="bold", va="center")
    figure.text(1 - 14 / width, 1 - 30 / height, span, color=FAINT, fontsize=10, va="center", ha="right")
    for panel in panels:
        place = panel["gridPos"]
        box = (
            (place["x"] * CELL_PX[0] + GAP_PX) / width,
            1 - (HEADER_PX + (place["y"] + place["h"]) * CELL_PX[1]) / height,
            (place["w"] * CELL_PX[0] - GAP_PX) / width,
            (place["h"] * CELL_PX[1] - GAP_PX) / height,
        )
        lines = [
            Line(query.named(one.labels), one)
            for query, found in answers[panel["id"]]
            for one in sorted(found, key=lambda one: sorted(one.labels.items()))
        ]
        _Panel(figure, panel, box, lines, begin, end).draw(marks)
    figure.savefig(file, facecolor=PAGE)


class _Panel:
    """One panel: its frame, and in it what its type shows."""

    def __init__(
        self,
        figure: Figure,
        panel: Mapping[str, Any],
        box: tuple[float, float, float, float],
        lines: Sequence[Line],
        begin: float,
        end: float,
    ) -> None:
        self.panel, self.box, self.lines, self.begin, self.end = panel, box, lines, begin, end
        self.figure = figure
        self.defaults: Mapping[str, Any] = panel["fieldConfig"]["defaults"]
        self.width_px = box[2] * figure.get_figwidth() * DPI
        self.height_px = box[3] * figure.get_figheight() * DPI

    def draw(self, marks: Sequence[tuple[str, Sequence[Series]]]) -> None:
        frame = self.figure.add_axes(self.box)
        frame.set(xlim=(0, 1), ylim=(0, 1))
        frame.axis("off")
        frame.add_patch(
            FancyBboxPatch((0, 0), 1, 1, boxstyle="square,pad=0", facecolor=PANEL, edgecolor=EDGE, linewidth=1)
        )
        title = 1 - 16 / self.height_px
        frame.text(10 / self.width_px, title, self.panel["title"], color=TEXT, fontsize=9, weight="bold", va="center")
        kind = self.panel["type"]
        if not self.lines:
            frame.text(0.5, 0.45, self.defaults.get("noValue", "no data"), color=FAINT, fontsize=10, ha="center")
        elif kind == "timeseries":
            self._over_time(marks)
        elif kind == "state-timeline":
            self._states()
        elif kind == "gauge":
            self._gauge(frame)
        elif kind == "bargauge":
            self._bars(frame)
        else:
            self._numbers(frame)

    def _axes(self, left: float, bottom: float, right: float, top: float) -> Axes:
        """Axes within the frame, with these margins in pixels."""
        x, y, w, h = self.box
        at = (
            x + left / self.width_px * w,
            y + bottom / self.height_px * h,
            (1 - (left + right) / self.width_px) * w,
            (1 - (bottom + top) / self.height_px) * h,
        )
        axes = self.figure.add_axes(at, facecolor=PANEL)
        axes.tick_params(colors=FAINT, labelsize=7.5, length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return axes

    def _time_axis(self, axes: Axes) -> None:
        axes.set_xlim(self.begin, self.end)
        axes.xaxis.set_major_locator(MaxNLocator(5, prune="both"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _place: _clock(at)))

    def _over_time(self, marks: Sequence[tuple[str, Sequence[Series]]]) -> None:
        legend = [f"{line.name}" for line in self.lines]
        columns = max(1, int(self.width_px // 170))
        rows = min(3, -(-len(legend) // columns))
        axes = self._axes(58, 34 + 15 * rows, 14, TITLE_PX)
        self._time_axis(axes)
        axes.grid(color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: worded(value, self.defaults)))
        colours = itertools.cycle(SERIES)
        if self.defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal":
            self._stacked(axes, colours)
        else:
            for line in self.lines:
                look = self._look(line.name) or {"color": next(colours), "linewidth": 1.6}
                axes.plot(*_with_gaps(line.series.points), label=line.name, **look)
        low, high = self.defaults.get("min"), self.defaults.get("max")
        axes.set_ylim(bottom=low, top=high)
        if low == 0 and high is None:
            axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9))
        for colour, found in marks:
            for at in _begins(found, self.begin):
                axes.axvline(at, color=NAMED[colour], linewidth=1, linestyle=(0, (3, 2)), alpha=0.8)
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(-0.02, -24 / max(1.0, self.height_px - TITLE_PX - 34 - 15 * rows)),
            ncols=columns,
            frameon=False,
            labelcolor=TEXT,
            fontsize=7.5,
            handlelength=1.2,
            labelspacing=0.25,
            columnspacing=1.2,
            borderpad=0,
        )

    def _stacked(self, axes: Axes, colours: Any) -> None:
        times = sorted({at for line in self.lines for at, _value in line.series.points})
        heights = [[dict(line.series.points).get(at, 0.0) for at in times] for line in self.lines]
        used = [index for index, values in enumerate(heights) if any(values)] or [0]
        is_stepped = self.defaults["custom"]["lineInterpolation"] == "stepAfter"
        axes.stackplot(
            times,
            [heights[index] for index in used],
            labels=[self.lines[index].name for index in used],
            colors=[next(colours) for _ in used],
            alpha=0.75,
            linewidth=0,
            step="post" if is_stepped else None,
        )

    def _look(self, name: str) -> dict[str, Any] | None:
        """How an override of the panel draws the series of this name."""
        for override in self.panel["fieldConfig"]["overrides"]:
            if name.startswith(override["matcher"]["options"].strip("/^")):
                values = {each["id"]: each["value"] for each in override["properties"]}
                colour = NAMED[values["color"]["fixedColor"]]
                dashes = {"linestyle": (0, (4, 3))} if "custom.lineStyle" in values else {}
                return {"color": colour, "linewidth": 0.8 * values["custom.lineWidth"], **dashes, "zorder": 3}
        return None

    def _states(self) -> None:
        axes = self._axes(14, 26, 14, TITLE_PX)
        self._time_axis(axes)
        axes.set_ylim(len(self.lines), 0)
        axes.set_yticks([])
        step = min((b - a for line in self.lines for a, b in _steps(line)), default=1.0)
        for row, line in enumerate(sorted(self.lines, key=lambda line: line.series.points[0][0])):
            for at, value in line.series.points:
                axes.add_patch(Rectangle((at, row + 0.42), step, 0.46, color=self._colour(value), linewidth=0))
            axes.text(self.begin, row + 0.28, line.name, color=TEXT, fontsize=7.5, va="center")

    def _numbers(self, frame: Axes) -> None:
        shown = self.lines[:6]
        columns = len(shown) if len(shown) <= 3 else -(-len(shown) // 2)
        rows = -(-len(shown) // columns)
        with_names = self.panel["options"]["textMode"] == "value_and_name"
        for index, line in enumerate(shown):
            x = (index % columns + 0.5) / columns
            y = 0.42 if rows == 1 else (0.58, 0.2)[index // columns]
            words = _mapped(line.last, self.defaults) or worded(line.last, self.defaults)
            size = (26 if rows == 1 else 15) if len(words) < 8 else 16
            frame.text(
                x, y, words, color=self._colour(line.last), fontsize=size, weight="bold", ha="center", va="center"
            )
            if with_names:
                below = 0.26 if rows == 1 else 0.15
                frame.text(x, y - below, line.name, color=FAINT, fontsize=8, ha="center", va="center")

    def _gauge(self, frame: Axes) -> None:
        value = self.lines[0].last
        share = min(max(value, 0.0), 1.0)
        frame.add_patch(Rectangle((0.1, 0.16), 0.8, 0.12, color=GRID))
        frame.add_patch(Rectangle((0.1, 0.16), 0.8 * share, 0.12, color=self._colour(value)))
        words, colour = worded(value, self.defaults), self._colour(value)
        frame.text(0.5, 0.5, words, color=colour, fontsize=22, weight="bold", ha="center", va="center")

    def _bars(self, frame: Axes) -> None:
        for index, line in enumerate(self.lines):
            height = 0.68 / len(self.lines)
            y = 0.7 - (index + 1) * height + 0.06
            share = min(max(line.last, 0.0), 1.0)
            frame.add_patch(Rectangle((0.34, y), 0.44, height * 0.55, color=GRID))
            frame.add_patch(Rectangle((0.34, y), 0.44 * share, height * 0.55, color=self._colour(line.last)))
            middle = y + height * 0.27
            frame.text(0.32, middle, line.name, color=TEXT, fontsize=8, ha="right", va="center")
            frame.text(0.8, middle, worded(line.last, self.defaults), color=TEXT, fontsize=8, va="center")

    def _colour(self, value: float) -> str:
        mapped = [each["options"].get(f"{value:g}") for each in self.defaults.get("mappings", ())]
        if mapped and mapped[0]:
            return NAMED[mapped[0]["color"]]
        colour = "text"
        for step in self.defaults.get("thresholds", {}).get("steps", ()):
            if step["value"] is None or value >= step["value"]:
                colour = step["color"]
        return NAMED[colour]


def worded(value: float, defaults: Mapping[str, Any]) -> str:
    """A number as the panel's unit writes it."""
    unit, decimals = defaults["unit"], defaults.get("decimals")
    if unit == "percentunit":
        return f"{100 * value:.{1 if decimals is None else decimals}f}%".replace(".0%", "%")
    if unit == "s":
        return f"{1000 * value:.0f} ms" if 0 < abs(value) < 1 else f"{value:.3g} s"
    if unit in ("bytes", "Bps", "reqps"):
        letter, scale = next((pair for pair in reversed(UP_TO) if abs(value) >= pair[1]), UP_TO[0])
        return f"{value / scale:.3g} {letter}{ {'bytes': 'B', 'Bps': 'B/s', 'reqps': 'req/s'}[unit] }"
    if unit == "cpm":
        return f"{value:.0f}/min"
    return f"{value:.{decimals}f}" if decimals is not None else f"{value:g}"


def _mapped(value: float, defaults: Mapping[str, Any]) -> str | None:
    for each in defaults.get("mappings", ()):
        found = each["options"].get(f"{value:g}")
        if found:
            return str(found["text"])
    return None


def _steps(line: Line) -> list[tuple[float, float]]:
    times = [at for at, _value in line.series.points]
    return list(itertools.pairwise(times))


def _with_gaps(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Times and values, with no number where there was no point for longer than usual: no line leads across."""
    step = min((b - a for (a, _), (b, _) in itertools.pairwise(points)), default=1.0)
    times, values = [points[0][0]], [points[0][1]]
    for (before, _), (at, value) in itertools.pairwise(points):
        if at - before > 2.5 * step:
            times.append(before + step)
            values.append(float("nan"))
        times.append(at)
        values.append(value)
    return times, values


def _begins(found: Sequence[Series], begin: float) -> list[float]:
    """When each stretch of an annotation's answer begins, but for what was there before the picture."""
    begins = []
    for series in found:
        times = [at for at, _value in series.points]
        step = min((b - a for a, b in itertools.pairwise(times)), default=1.0)
        begins += [times[0]] + [b for a, b in itertools.pairwise(times) if b - a > 2.5 * step]
    return [at for at in begins if at > begin]


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
