"""Curves and bars made of characters, for terminals that show Unicode and for those that do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters of a view; each stands in one column."""

    levels: str
    """Heights of a curve, lowest first."""
    gap: str
    """Where a curve has no value."""
    full: str
    """The part of a bar that is done."""
    half: str
    """Half a column of it; empty where there is none."""
    rest: str
    """The part that is to come."""
    mark: str
    """Points at the row that wants attention."""
    ellipsis: str
    """Ends what was cut."""
    arrow: str
    """From one number to another."""
    dot: str
    """Between facts of one line."""


UNICODE = Glyphs(levels="▁▂▃▄▅▆▇█", gap="·", full="━", half="╸", rest="─", mark="◀", ellipsis="…", arrow="→", dot="·")
ASCII = Glyphs(levels="_.-=+*#", gap=" ", full="#", half="", rest="-", mark="<", ellipsis="~", arrow="->", dot="|")


_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""What Python itself may have written into LC_CTYPE."""


def glyphs_for(encoding: str, environment: Mapping[str, str]) -> Glyphs:
    """The characters that a terminal shows.

    Python writes UTF-8 also where the locale is C, and then says so in LC_CTYPE; whoever set that locale, or another
    encoding, has a terminal for it. The console of a Linux machine has no font for curves.

    Args:
        encoding: Of what is written to it.
        environment: Variables of the process.
    """
    named = (environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((locale for locale in named if locale and locale not in _COERCED), "C.UTF-8")
    codeset = locale.partition(".")[2].partition("@")[0] if locale not in ("C", "POSIX") else "ASCII"
    encodings = (encoding, codeset or "UTF-8")
    is_unicode = all(name.lower().replace("-", "").replace("_", "") == "utf8" for name in encodings)
    return UNICODE if is_unicode and environment.get("TERM") != "linux" else ASCII


def sparkline(
    values: Sequence[float | None],
    width: int,
    glyphs: Glyphs = UNICODE,
    bounds: tuple[float, float] | None = None,
) -> str:
    """A curve of at most `width` characters.

    Where there are more values than columns each column shows the last value of its share, so that the curve ends with the
    last one. A curve without height is drawn in the middle.

    Args:
        values: In order; None where there is none.
        width: Columns.
        glyphs: What to draw with.
        bounds: The values at the bottom and at the top, the same for curves that are to be compared; its own lowest and
            highest if None.
    """
    if width <= 0 or not values:
        return ""
    shown = values
    if len(values) > width:
        shown = [_last(values[_cut(k, width, len(values)) : _cut(k + 1, width, len(values))]) for k in range(width)]
    known = [value for value in shown if value is not None]
    if not known:
        return glyphs.gap * len(shown)
    low, high = bounds or (min(known), max(known))
    top = len(glyphs.levels) - 1

    def level(value: float) -> int:
        height = (value - low) / (high - low) if high > low else 0.5
        return round(min(max(height, 0.0), 1.0) * top)

    return "".join(glyphs.gap if value is None else glyphs.levels[level(value)] for value in shown)


def bar(fraction: float, width: int, glyphs: Glyphs = UNICODE) -> tuple[str, str]:
    """A bar of `width` columns as two texts: what is done and what is to come.

    It is full only when everything is done, and not empty any more when a column's half is done.
    """
    fraction = min(max(fraction, 0.0), 1.0)
    halves = int(2 * width * fraction)
    if fraction < 1:
        halves = min(halves, 2 * width - 1)
    done = glyphs.full * (halves // 2) + (glyphs.half if halves % 2 else "")
    return done, glyphs.rest * (width - len(done))


def _cut(column: int, width: int, count: int) -> int:
    return column * count // width


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
