"""Heat maps as SVG text: panels of percentages, with labels of lines and columns. Pure: equal values give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

INK, PAPER = "#1b1f24", "#ffffff"
"""Colours of text and background on a white page; a page of its own colours replaces them."""
COLOURS = ((0x5B, 0x3A, 0x8E), (0x3D, 0x6F, 0xA5), (0x3F, 0x9B, 0x9B), (0x86, 0xC1, 0x6B), (0xF2, 0xE4, 0x6B))
"""From 0 to 100 %: brighter is more, also for people who do not tell hues apart; both ends stand out from any page."""
CELL_WIDTH, CELL_HEIGHT = 30, 20
FONT_SIZE = 11
CHARACTER_WIDTH = 7.0
"""Width of a letter at that size, in the wider of the fonts that viewers take."""
GAP = 14
MOST_WIDTH = 940
"""Widest line of panels, unless one alone is wider."""
MAX_LABEL = 48
"""Most letters of a label."""
MISSING = "-"
LEGEND_WIDTH = 204


@dataclass(frozen=True, slots=True)
class Panel:
    """One table of a heat map.

    Attributes:
        values: Fractions by line, then column; None where there is none.
    """

    title: str
    values: Sequence[Sequence[float | None]]


def heat_map(panels: Sequence[Panel], *, lines: Sequence[str], columns: Sequence[str]) -> str:
    """Return panels with the same lines and columns, side by side, as the text of an SVG file."""
    lines, columns = [[_short(name) for name in names] for names in (lines, columns)]
    left = round(max(map(len, lines), default=0) * CHARACTER_WIDTH) + 10
    titles = max((len(_short(panel.title)) for panel in panels), default=0) * CHARACTER_WIDTH
    width = max(len(columns) * CELL_WIDTH, round(titles)) + GAP
    across = max(1, min(len(panels), (MOST_WIDTH - left) // width))
    below = round(max(map(len, columns), default=0) * CHARACTER_WIDTH * 0.75) + 14
    height = 24 + len(lines) * CELL_HEIGHT + below
    rows = -(-len(panels) // across)
    size = left + max(across * width + below // 2, LEGEND_WIDTH), rows * height + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}">',
        f'<rect width="{size[0]}" height="{size[1]}" style="fill: {PAPER}"/>',
        f'<g font-family="sans-serif" font-size="{FONT_SIZE}" fill="{INK}">',
    ]
    for number, panel in enumerate(panels):
        x, y = left + number % across * width, number // across * height + 24
        parts += _panel(panel, x, y, columns)
        if number % across == 0:
            parts += _line_labels(lines, left - 6, y)
    parts += _legend(left, rows * height + 4)
    return "\n".join((*parts, "</g></svg>\n"))


def _panel(panel: Panel, x: int, y: int, columns: Sequence[str]) -> Iterator[str]:
    yield f'<text x="{x}" y="{y - 8}" font-weight="bold">{escape(_short(panel.title))}</text>'
    yield '<g text-anchor="middle">'
    for line, values in enumerate(panel.values):
        top = y + line * CELL_HEIGHT
        for column, value in enumerate(values):
            start, middle = x + column * CELL_WIDTH, top + CELL_HEIGHT - 6
            text = f'<text x="{start + CELL_WIDTH // 2}" y="{middle}"'
            if value is None:
                yield f"{text}>{MISSING}</text>"
                continue
            colour = _colour(value)
            size = f'width="{CELL_WIDTH - 1}" height="{CELL_HEIGHT - 1}"'
            yield f'<rect x="{start}" y="{top}" {size} fill="#{_hex(colour)}"/>'
            yield f'{text} fill="{_text_on(colour)}">{100 * value:.0f}</text>'
    yield "</g>"
    bottom = y + len(panel.values) * CELL_HEIGHT + 12
    for column, name in enumerate(columns):
        middle = x + column * CELL_WIDTH + CELL_WIDTH // 2 - 4
        yield f'<text transform="translate({middle} {bottom}) rotate(45)">{escape(name)}</text>'


def _line_labels(lines: Sequence[str], x: int, y: int) -> Iterator[str]:
    for number, name in enumerate(lines):
        yield f'<text x="{x}" y="{y + (number + 1) * CELL_HEIGHT - 6}" text-anchor="end">{escape(name)}</text>'


def _legend(x: int, y: int) -> Iterator[str]:
    """Yield the colours of 0, 10, ... 100 %."""
    yield f'<text x="{x}" y="{y + 12}">0 %</text>'
    for step in range(11):
        yield f'<rect x="{x + 26 + 12 * step}" y="{y + 2}" width="12" height="12" fill="#{_hex(_colour(step / 10))}"/>'
    yield f'<text x="{x + 26 + 12 * 11 + 5}" y="{y + 12}">100 %</text>'


def _colour(value: float) -> tuple[int, int, int]:
    """Return the colour of a fraction."""
    place = min(max(value, 0.0), 1.0) * (len(COLOURS) - 1)
    start = min(int(place), len(COLOURS) - 2)
    low, high = COLOURS[start], COLOURS[start + 1]
    red, green, blue = (round(a + (place - start) * (b - a)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _hex(colour: tuple[int, int, int]) -> str:
    return "".join(f"{part:02x}" for part in colour)


def luminance(colour: tuple[int, int, int]) -> float:
    """Return the relative luminance of a colour, from 0 to 1 (WCAG 2.2)."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (each / 255 for each in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _text_on(colour: tuple[int, int, int]) -> str:
    """Return black or white, whichever stands out more."""
    light = luminance(colour)
    return "#000" if (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) else "#fff"


def _short(name: str) -> str:
    return name if len(name) <= MAX_LABEL else f"{name[: MAX_LABEL - 1]}…"
