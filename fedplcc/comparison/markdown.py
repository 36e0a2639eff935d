"""A report as Markdown, as GitHub and most others read it. Pure."""

from __future__ import annotations

import re

from fedplcc.comparison.document import Bullets, Code, Drawing, Heading, Line, Paragraph, Part, Picture, Report, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")


def markdown(report: Report) -> str:
    """The report's text; its drawings are files beside it."""
    return "\n\n".join(_written(part) for part in report) + "\n"


def _written(part: Part) -> str:
    match part:
        case Heading():
            return f"{'#' * part.level} {_plain(part.text)}"
        case Paragraph():
            return _plain(part.text)
        case Bullets():
            return "\n".join(f"- {_plain(item)}" for item in part.items)
        case Code():
            return "\n".join(f"    {line}" for line in part.text.splitlines())
        case Table():
            return _table(part)
        case Drawing():
            return f"![{_plain(part.alternative)}]({part.name})\n\n*{_plain(part.caption)}*"
        case Picture():
            return f"![{_plain(part.alternative)}]({part.path})\n\n*{_plain(part.caption)}*"


def _table(table: Table) -> str:
    rule = "---:" if table.is_numeric else "---"
    rows = [
        table.heads,
        ("---", *(rule for _ in table.heads[1:])),
    ]
    head, rule_line = (" | ".join(row) for row in (map(_plain, rows[0]), rows[1]))
    lines = [f"| {head} |", f"| {rule_line} |", *(_line(line) for line in table.lines)]
    return "\n".join((f"**{_plain(table.caption)}**", "", *lines))


def _line(line: Line) -> str:
    head = _plain(line.head)
    values = [f"**{_plain(value.text)}**" if value.is_best else _plain(value.text) for value in line.values]
    return f"| {' | '.join((f'*{head}*' if line.is_aside else head, *values))} |"


def _plain(text: str) -> str:
    """Text in which nothing means anything to Markdown; addresses stay whole."""
    words = re.split(r"(https?://\S+)", " ".join(text.split()))
    return "".join(word if number % 2 else _SPECIAL.sub(r"\\\1", word) for number, word in enumerate(words))
