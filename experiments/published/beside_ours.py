"""Tables of a report that set our accuracies beside the published ones of the same set-up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.published.accuracies import PublishedTable
from experiments.published.names import differences_of, name_of, tables_of
from fedplcc.comparison.file import Comparison
from fedplcc.comparison.outcomes import MEAN, SUMMARIES, VIEWS, Spread, over_seeds
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Bullets, Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import NOTHING, accuracy_value, counted, points_text


def published_comparison(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield our accuracies and those published for the same set-up, and the differences between the set-ups."""
    comparison, shown = findings.comparison, _tables_beside(findings, dataset, group, rows)
    if not shown:
        return
    yield Heading(4, "Beside the published numbers")
    differs = dict.fromkeys(
        (*differences_of(comparison, dataset), *(text for table, _ in shown for text in table.differs))
    )
    if differs:
        yield Paragraph("What differs from the published set-up:")
        yield Bullets(tuple(differs))
    for table, named in shown:
        yield _published_table(findings, dataset, named, table)
        yield Paragraph(f"Published in: {table.source}. {' '.join(table.notes)}".strip())


def _tables_beside(
    findings: Findings, dataset: str, group: str, rows: Sequence[str]
) -> list[tuple[PublishedTable, dict[str, str]]]:
    """Return the published tables that stand in a group, each with the published names of the rows that have its values."""
    comparison, found = findings.comparison, list[tuple[PublishedTable, dict[str, str]]]()
    for table in tables_of(comparison, dataset):
        if group == group_of(comparison, dataset, table):
            named = {row: name for row in rows if (name := name_of(comparison, row, table)) is not None}
            named = {row: name for row, name in named.items() if ours_of(findings.cells(dataset, row), table)}
            found += [(table, named)] if named else []
    return found


def ours_of(cells: Sequence[CellResult], table: PublishedTable) -> dict[str, Spread]:
    """Return a row's accuracies by the table's columns, as fractions, in the table's view.

    A mean over other domains than the table's is left out.
    """
    found = {model: over_seeds(cells, table.view, model) for model, _ in table.kinds}
    ours: dict[str, Spread] = {}
    for column, (model, name) in zip(table.columns, table.kinds, strict=True):
        is_alike = name != MEAN or not table.domains or table.domains.keys() == found[model].keys() - {*SUMMARIES}
        if name in found[model] and is_alike:
            ours[column] = found[model][name]
    return ours


def group_of(comparison: Comparison, dataset: str, table: PublishedTable) -> str:
    """Return the group with the most rows of a published table."""
    groups = comparison.groups_of(dataset)
    return max(groups, key=lambda group: sum(name_of(comparison, row, table) is not None for row in groups[group]))


def _published_table(findings: Findings, dataset: str, named: Mapping[str, str], table: PublishedTable) -> Table:
    comparison = findings.comparison
    columns = table.columns
    lines = []
    for row, name in named.items():
        label = comparison.label_of_row(row)
        published = dict(zip(columns, table.accuracy[name], strict=True))
        ours = ours_of(findings.cells(dataset, row), table)
        differences = {column: 100 * ours[column].mean - published[column] for column in columns if column in ours}
        lines += [
            Line(
                f"{label}, here ({counted(_most(ours), 'seed')})",
                tuple(accuracy_value(ours.get(column), None) for column in columns),
            ),
            Line(f"{label}, published", tuple(Value(f"{published[column]:.2f}") for column in columns), is_aside=True),
            Line(
                f"{label}, difference",
                tuple(
                    Value(points_text(differences[column]) if column in differences else NOTHING) for column in columns
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
    """Return the number of seeds behind a row's values."""
    return max(found.count for found in spreads.values())
