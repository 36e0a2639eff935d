"""A report as a list of parts, and those parts as Markdown and as an HTML page that say the same. Pure.

The page needs no other file and suits light and dark screens, telephones and screen readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the title of the report."""

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
    """A line of a table."""

    head: str
    values: tuple[Value, ...]
    is_aside: bool = False
    """Whether it is shown for comparison, in italics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        heads: The heads of the columns; the first is that of the lines' heads.
        is_numeric: Whether its values are numbers.
    """

    caption: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    is_numeric: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A drawing that is made with the report.

    Attributes:
        alternative: Its text for people who do not see it.
        svg: The text of the file, drawn for a white page.
        is_wide: Whether it has a line of the page for itself, in its own size: a narrow page scrolls it.
    """

    name: str
    caption: str
    alternative: str
    svg: str
    is_wide: bool = False


Part = Heading | Paragraph | Bullets | Code | Table | Drawing
Report = Sequence[Part]


_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")


def markdown(report: Report) -> str:
    """Return the report as Markdown; its drawings are files beside it."""
    return "\n\n".join(_in_markdown(part) for part in report) + "\n"


def _in_markdown(part: Part) -> str:
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
            return _table_in_markdown(part)
        case Drawing():
            return f"![{_plain(part.alternative)}]({part.name})\n\n*{_plain(part.caption)}*"


def _table_in_markdown(table: Table) -> str:
    rule = "---:" if table.is_numeric else "---"
    rows = [
        table.heads,
        ("---", *(rule for _ in table.heads[1:])),
    ]
    head, rule_line = (" | ".join(row) for row in (map(_plain, rows[0]), rows[1]))
    lines = [f"| {head} |", f"| {rule_line} |", *(_line_in_markdown(line) for line in table.lines)]
    return "\n".join((f"**{_plain(table.caption)}**", "", *lines))


def _line_in_markdown(line: Line) -> str:
    head = _plain(line.head)
    values = [f"**{_plain(value.text)}**" if value.is_best else _plain(value.text) for value in line.values]
    return f"| {' | '.join((f'*{head}*' if line.is_aside else head, *values))} |"


def _plain(text: str) -> str:
    """Return text with Markdown's special characters escaped, except in addresses."""
    words = re.split(r"(https?://\S+)", " ".join(text.split()))
    return "".join(word if number % 2 else _SPECIAL.sub(r"\\\1", word) for number, word in enumerate(words))


CONTENTS_LEVEL = 3
"""Headings up to this level stand in the table of contents."""
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --page: #fff; --band: #f6f8fa;
  --link: #0550ae }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #3d444d; --page: #0d1117;
  --band: #161b22; --link: #79b8ff } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem; color: var(--ink); background: var(--page);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1, h2, h3, h4 { line-height: 1.25; margin: 2rem 0 .5rem; overflow-wrap: anywhere }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .25rem }
p, li { max-width: 48rem; overflow-wrap: anywhere }
a { color: var(--link) }
nav ul { list-style: none; padding-left: 0 } nav .deeper { padding-left: 1.25rem }
pre { background: var(--band); border: 1px solid var(--line); border-radius: .375rem; padding: .75rem; overflow-x: auto }
.scroll { overflow-x: auto; margin: 1rem 0; max-width: 100% }
.scroll:focus-visible, pre:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
table { border-collapse: collapse; min-width: min(100%, 24rem); font-variant-numeric: tabular-nums; font-size: .925rem }
caption { text-align: left; font-weight: 600; padding: .25rem 0 .5rem }
caption span { display: inline-block; position: sticky; left: 0; max-width: min(48rem, 100vw - 2rem) }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
.numbers td, .numbers th[scope=col]:not(:first-child) { text-align: right }
.words td { white-space: normal; min-width: 8rem; overflow-wrap: anywhere }
thead th { background: var(--band); vertical-align: bottom; white-space: normal }
th:first-child { position: sticky; left: 0; background: var(--page) } thead th:first-child { background: var(--band) }
tbody th { font-weight: 400 } .aside th, .aside td { color: var(--soft); font-style: italic }
td strong { font-weight: 700 }
.drawings { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
figure { margin: 1rem 0 } figure svg { width: 100%; height: auto; max-width: 44rem }
.wide { grid-column: 1 / -1; min-width: 0 } .wide div { overflow-x: auto } .wide svg { width: auto; max-width: none }
.wide div:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
figcaption { color: var(--soft); font-size: .9rem; max-width: 48rem }
@media (max-width: 40rem) { th:first-child { max-width: 38vw; white-space: normal } th, td { padding: .3rem .45rem } }
@media print { .scroll { overflow: visible } nav { display: none } }
"""


def page(report: Report) -> str:
    """Return the report as an HTML page."""
    title = next((part.text for part in report if isinstance(part, Heading)), "")
    anchors = _anchors(report)
    body = "\n".join(_with_contents(report, anchors))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _anchors(report: Report) -> dict[int, str]:
    """Return a unique id for each heading, by its place in the report."""
    found: dict[int, str] = {}
    for place, part in enumerate(report):
        if isinstance(part, Heading):
            name = re.sub(r"[^a-z0-9]+", "-", part.text.lower()).strip("-") or "part"
            while name in found.values():
                name += f"-{place}"
            found[place] = name
    return found


def _with_contents(report: Report, anchors: dict[int, str]) -> Iterator[str]:
    """Yield the parts, the contents before the second heading, and neighbouring drawings side by side."""
    has_contents = False
    for place, part in enumerate(report):
        if isinstance(part, Heading) and part.level > 1 and not has_contents:
            yield _contents(report, anchors)
            has_contents = True
        is_drawing = isinstance(part, Drawing)
        if is_drawing and not (place and isinstance(report[place - 1], Drawing)):
            yield '<div class="drawings">'
        yield _in_html(part, place, anchors)
        if is_drawing and not (place + 1 < len(report) and isinstance(report[place + 1], Drawing)):
            yield "</div>"


def _contents(report: Report, anchors: dict[int, str]) -> str:
    entries = []
    for place, part in enumerate(report):
        if isinstance(part, Heading) and 1 < part.level <= CONTENTS_LEVEL:
            deeper = ' class="deeper"' if part.level == CONTENTS_LEVEL else ""
            entries.append(f'<li{deeper}><a href="#{anchors[place]}">{escape(part.text)}</a></li>')
    return f'<nav aria-label="Contents"><ul>{"".join(entries)}</ul></nav>'


def _in_html(part: Part, place: int, anchors: dict[int, str]) -> str:
    match part:
        case Heading():
            return f'<h{part.level} id="{anchors[place]}">{escape(part.text)}</h{part.level}>'
        case Paragraph():
            return f"<p>{_linked(part.text)}</p>"
        case Bullets():
            return f"<ul>{''.join(f'<li>{_linked(item)}</li>' for item in part.items)}</ul>"
        case Code():
            return f'<pre tabindex="0"><code>{escape(part.text)}</code></pre>'
        case Table():
            return _table_in_html(part, f"table-{place}")
        case Drawing():
            drawn = _drawing_in_html(part.svg, f"d{place}-")
            kind, scrolls = (' class="wide"', ' tabindex="0"') if part.is_wide else ("", "")
            return (
                f'<figure{kind}><div role="img"{scrolls} aria-label="{escape(part.alternative)}">{drawn}</div>'
                f"<figcaption>{_linked(part.caption)}</figcaption></figure>"
            )


def _drawing_in_html(svg: str, prefix: str) -> str:
    """Return a drawing for a page: in the page's colours, and with unique ids."""
    svg = svg.replace("#1b1f24", "currentColor").replace("fill: #ffffff", "fill: none")
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}", svg)


def _table_in_html(table: Table, name: str) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    lines = []
    for line in table.lines:
        values = "".join(
            f"<td><strong>{escape(value.text)}</strong></td>" if value.is_best else f"<td>{_linked(value.text)}</td>"
            for value in line.values
        )
        kind = ' class="aside"' if line.is_aside else ""
        lines.append(f'<tr{kind}><th scope="row">{escape(line.head)}</th>{values}</tr>')
    kind = "numbers" if table.is_numeric else "words"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}"><table class="{kind}">'
        f'<caption id="{name}"><span>{escape(table.caption)}</span></caption><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{chr(10).join(lines)}\n</tbody></table></div>"
    )


def _linked(text: str) -> str:
    """Return escaped text in which addresses are links."""
    return re.sub(
        r"https?://(?:[^\s,;)&]|&amp;)*[^\s,;)&.]", lambda found: f'<a href="{found[0]}">{found[0]}</a>', escape(text)
    )
