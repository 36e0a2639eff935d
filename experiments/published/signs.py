"""Signs of differences from a baseline: whether a row is above or below it here, where published numbers say it is. Pure.

Levels depend on the set-up; who is above whom should not. So the tables may be of other set-ups too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence

from experiments.published.accuracies import PublishedTable
from experiments.published.beside_ours import group_of
from experiments.published.names import name_of, sign_tables_of, tables_of
from fedplcc.comparison.outcomes import MEAN, VIEWS, outcome, spread
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import counted, gain_text, points_text


def sign_tables(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield, for each published table and baseline, the differences of the means, published and ours."""
    comparison, parts = findings.comparison, list[Part]()
    for table in (*tables_of(comparison, dataset), *sign_tables_of(comparison, dataset)):
        if group != group_of(comparison, dataset, table):
            continue
        for baseline in comparison.compare.baseline:
            if baseline in rows and name_of(comparison, baseline, table) is not None:
                parts += _tables(findings, dataset, baseline, rows, table)
    if parts:
        yield Heading(4, "Signs of the published differences")
        yield from parts


def _tables(
    findings: Findings, dataset: str, baseline: str, rows: Sequence[str], table: PublishedTable
) -> Iterator[Part]:
    """Yield a table for each model whose mean the published one has, and a sentence."""
    comparison = findings.comparison
    base = comparison.label_of_row(baseline)
    for place, (model, name) in enumerate(table.kinds):
        if name != MEAN:
            continue
        published = {
            row: table.accuracy[known][place] for row in rows if (known := name_of(comparison, row, table)) is not None
        }
        of_base = _means(findings.cells(dataset, baseline), table, model)
        lines, num_alike = list[Line](), 0
        for row in (each for each in published if each != baseline):
            of_row = _means(findings.cells(dataset, row), table, model)
            ours = [of_row[seed] - of_base[seed] for seed in sorted(of_row.keys() & of_base.keys())]
            if not ours:
                continue
            theirs = published[row] - published[baseline]
            num_alike += _sign(theirs) == _sign(statistics.fmean(ours))
            num_seeds = sum(_sign(theirs) == _sign(value) for value in ours)
            texts = (points_text(theirs), gain_text(spread(ours)), f"{num_seeds} of {len(ours)}")
            lines.append(Line(comparison.label_of_row(row), tuple(map(Value, texts))))
        if lines:
            view = VIEWS[table.view]
            yield Table(
                caption=f"{table.title}: {table.labels[place]} minus that of {base} in points, published and here "
                f"({view[:1].lower() + view[1:]})",
                heads=("", "published", "here", "seeds with the published sign"),
                lines=tuple(lines),
            )
            yield Paragraph(
                f"The mean difference from {base} has the published sign in {num_alike} of {counted(len(lines), 'row')}. "
                f"Published in: {table.source}."
            )


def _means(cells: Sequence[CellResult], table: PublishedTable, model: str) -> Mapping[int, float]:
    """Return the mean over the published table's domains by seed, as a fraction; without seeds that lack one of them."""
    found: dict[int, float] = {}
    for cell in cells:
        seen = outcome(cell.rounds, table.view, model)
        if seen is None:
            continue
        values = [seen.accuracy.get(name) for name in table.domains or (MEAN,)]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            found[cell.cell.seed] = statistics.fmean(known)
    return found


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
