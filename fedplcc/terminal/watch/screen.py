"""Where a view is shown: how wide and high it is, what it can show, and how text is made to fit. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from fedplcc.terminal.printable import printable
from fedplcc.terminal.watch.glyphs import ASCII, UNICODE, Glyphs

MARGIN, GAP = " ", "  "
WIDE, MIDDLE = 72, 56
"""Columns from which on there is room for everything, and for more than what matters most."""
MAX_NAME_WIDTH, NARROW_NAME_WIDTH = 18, 10
"""Most columns of a domain's or a client's name."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a view is shown."""

    width: int
    height: int
    glyphs: Glyphs = UNICODE

    @property
    def is_wide(self) -> bool:
        """Whether there is room for everything."""
        return self.width >= WIDE

    @property
    def is_middle(self) -> bool:
        """Whether there is room for more than what matters most."""
        return self.width >= MIDDLE

    @property
    def name_width(self) -> int:
        """Most columns of a name."""
        return MAX_NAME_WIDTH if self.is_wide else NARROW_NAME_WIDTH

    def clean(self, text: str) -> str:
        """What others wrote, as this terminal can show it on one line."""
        safe = printable(text)
        return safe.encode("ascii", "replace").decode() if self.glyphs is ASCII else safe

    def cut(self, text: str, width: int) -> str:
        """The text in at most `width` columns; where it was cut it says so."""
        if cell_len(text) <= width:
            return text
        return set_cell_size(text, max(width - 1, 0)) + self.glyphs.ellipsis if width > 0 else ""

    def cell(self, text: str, width: int) -> str:
        """The text in exactly `width` columns, from the left."""
        cut = self.cut(text, width)
        return cut + " " * (width - cell_len(cut))

    def fitted(self, line: Text) -> Text:
        """The line, cut where it is too wide."""
        if line.cell_len <= self.width:
            return line
        kept = line.copy()
        kept.truncate(max(self.width - 1, 0))
        return kept.append(self.glyphs.ellipsis if self.width > 0 else "")

    def wrapped(self, sentence: str, style: str, *, most: int, indent: str = MARGIN) -> list[Text]:
        """A sentence of others on at most `most` lines, whole words where that is possible."""
        lines: list[Text] = []
        rest, width = self.clean(sentence), self.width - len(indent) - len(MARGIN)
        while rest and len(lines) < most:
            piece = rest if len(lines) == most - 1 else _piece(rest, width)
            rest = rest[len(piece) :].lstrip()
            lines.append(Text(indent + self.cut(piece.rstrip(), width), style))
        return lines


def _piece(text: str, width: int) -> str:
    """The part of a text that fits into a line, whole words where that is possible."""
    if cell_len(text) <= width:
        return text
    fitting = len(set_cell_size(text, width).rstrip())
    space = text.rfind(" ", 0, fitting + 1)
    return text[: space if space > 0 else max(fitting, 1)]
