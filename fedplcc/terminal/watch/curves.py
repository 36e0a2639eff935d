"""Curves made of characters, as wide as there is room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

LEVELS = "▁▂▃▄▅▆▇█"
"""Heights of a curve, lowest first."""
GAP = "·"
"""Stands where a curve has no value."""
MAX_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve to be printed with rich."""

    values: Sequence[float | None]
    bounds: tuple[float, float] | None = None
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The curve in one line of at most `MAX_WIDTH` columns."""
        yield Text(curve(self.values, min(options.max_width, MAX_WIDTH), self.bounds), self.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """A column for each value is wanted, one is enough."""
        return Measurement(1, min(max(len(self.values), 1), MAX_WIDTH, options.max_width))


def curve(values: Sequence[float | None], width: int, bounds: tuple[float, float] | None = None) -> str:
    """A curve of at most `width` characters.

    Where there are more values than columns, each column shows the last value of its share, so that the curve ends with the
    last value. A constant curve is drawn in the middle.

    Args:
        values: In order; None where there is none.
        width: Columns.
        bounds: Values at the bottom and at the top, equal for curves that are compared; the lowest and the highest value if
            None.
    """
    if width <= 0 or not values:
        return ""
    count = len(values)
    if count > width:
        values = [_last(values[k * count // width : (k + 1) * count // width]) for k in range(width)]
    known = [value for value in values if value is not None]
    if not known:
        return GAP * len(values)
    low, high = bounds or (min(known), max(known))

    def level(value: float) -> int:
        height = (value - low) / (high - low) if high > low else 0.5
        return round(min(max(height, 0.0), 1.0) * (len(LEVELS) - 1))

    return "".join(GAP if value is None else LEVELS[level(value)] for value in values)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
