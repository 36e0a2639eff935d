"""A report as parts that know nothing of how they are written: Markdown and the HTML page say the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the report's own."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A command, or several lines of them."""

    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a table."""

    text: str
    is_best: bool = False
    """Whether it is the best of its column."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a table: what it is of, and its values."""

    head: str
    values: tuple[Value, ...]
    is_aside: bool = False
    """Whether it is there to compare the others with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Lines under columns.

    Attributes:
        caption: What it shows.
        heads: The columns' heads; the first is that of the lines' heads.
        lines: The lines.
        is_numeric: Whether its values are numbers.
    """

    caption: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    is_numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A drawing of this report's own, as SVG.

    Attributes:
        name: Its file's name.
        caption: What it shows.
        alternative: What it says, for those who do not see it.
        svg: The text of the file, drawn for a white page.
    """

    name: str
    caption: str
    alternative: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture that lies in a cell's folder.

    Attributes:
        path: Where it is, from the report's folder.
        caption: What it shows.
        alternative: What it says, for those who do not see it.
        content: The file's bytes.
    """

    path: str
    caption: str
    alternative: str
    content: bytes


Part = Heading | Paragraph | Bullets | Code | Table | Drawing | Picture
Report = Sequence[Part]
