"""Our accuracies beside those that were published for the same set-up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedplcc.comparison.document import Bullets, Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.file import Comparison
from fedplcc.comparison.findings import Findings
from fedplcc.comparison.outcomes import MEAN, SUMMARIES, VIEWS, Spread, over_seeds
from fedplcc.comparison.published import PublishedTable
from fedplcc.comparison.reading import CellResult
from fedplcc.comparison.wording import NOTHING, accuracy_told, counted, points_told


def beside_published(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Our numbers beside those that were published for the same set-up, and what differs."""
    comparison = findings.comparison
    shown: list[tuple[PublishedTable, dict[str, str]]] = []
    for table in comparison.published_for(dataset):
        if group == _group_of(comparison, dataset, table):
            named = {row: name for row in rows if (name := comparison.published_as(row, table)) is not None}
            named = {row: name for row, name in named.items() if _ours(findings.cells(dataset, row), table)}
            shown += [(table, named)] if named else []
    if not shown:
        return
    yield Heading(4, "Beside the published numbers")
    differs = dict.fromkeys(
        (*comparison.datasets[dataset].differs, *(text for table, _ in shown for text in table.differs))
    )
    if differs:
        yield Paragraph("What differs from the published set-up:")
        yield Bullets(tuple(differs))
    for table, named in shown:
        yield _beside(findings, dataset, named, table)
        yield Paragraph(f"Published in: {table.source}. {' '.join(table.notes)}".strip())


def _ours(cells: Sequence[CellResult], table: PublishedTable) -> dict[str, Spread]:
    """A row's accuracies by the table's columns, as far as it has them; a mean over other domains is none of them."""
    found = {model: over_seeds(cells, table.view, model) for model, _ in table.kinds}
    ours: dict[str, Spread] = {}
    for column, (model, name) in zip(table.columns, table.kinds, strict=True):
        is_alike = name != MEAN or not table.domains or table.domains.keys() == found[model].keys() - {*SUMMARIES}
        if name in found[model] and is_alike:
            ours[column] = found[model][name]
    return ours


def _group_of(comparison: Comparison, dataset: str, table: PublishedTable) -> str:
    """The group that a published table is like: the one with most of its rows."""
    groups = comparison.groups_of(dataset)
    return max(groups, key=lambda group: sum(comparison.published_as(row, table) is not None for row in groups[group]))


def _beside(findings: Findings, dataset: str, named: Mapping[str, str], table: PublishedTable) -> Table:
    comparison = findings.comparison
    columns = table.columns
    lines = []
    for row, name in named.items():
        label = comparison.label_of_row(row)
        published = dict(zip(columns, table.accuracy[name], strict=True))
        ours = _ours(findings.cells(dataset, row), table)
        differences = {column: 100 * ours[column].mean - published[column] for column in columns if column in ours}
        lines += [
            Line(
                f"{label}, here ({counted(_most(ours), 'seed')})",
                tuple(accuracy_told(ours.get(column), None) for column in columns),
            ),
            Line(f"{label}, published", tuple(Value(f"{published[column]:.2f}") for column in columns), is_aside=True),
            Line(
                f"{label}, difference",
                tuple(
                    Value(points_told(differences[column]) if column in differences else NOTHING) for column in columns
                ),
                is_aside=True,
            ),
        ]
    view = VIEWS[table.view]
    return Table(
        caption=f"{table.title}: ours ({view[:1].lower() + view[1:]}) and the published numbers",
        heads=("", *table.labels),
        lines=tuple(lines),
    )


def _most(spreads: Mapping[str, Spread]) -> int:
    """The number of seeds that a row's values are of."""
    return max(found.count for found in spreads.values())
