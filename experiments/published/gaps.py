"""Table of what explains a difference from a published mean: the protocol, the reported round, or nothing known. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.published.accuracies import PublishedTable
from experiments.published.beside_ours import ours_of, tables_beside
from experiments.published.names import name_of, protocol_of
from fedplcc.comparison.outcomes import MEAN
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import NOTHING, points_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A published mean minus ours, in points, and its three parts, which add up to it.

    Attributes:
        whole: Published minus ours, in the view of the published table.
        protocol: What our row gains in the published protocol; None where it was not trained in it.
        reported_round: What it gains by the best round of each seed instead, chosen on test images: at most that much can
            come from the round that a paper reports.
    """

    whole: float
    protocol: float | None
    reported_round: float

    @property
    def unexplained(self) -> float:
        """What is left of the whole."""
        return self.whole - (self.protocol or 0.0) - self.reported_round


def gap(findings: Findings, dataset: str, row: str, table: PublishedTable, column: str) -> Gap | None:
    """Return the parts of a row's difference from a published column; None where we have no such value.

    There is none either where the best rounds are of other domains than the table's, since a client was away.
    """
    comparison = findings.comparison
    published, name = protocol_of(comparison, dataset), name_of(comparison, row, table)
    here = ours_of(findings.cells(dataset, row), table).get(column)
    if here is None or name is None:
        return None
    there = None if published is None else ours_of(findings.cells(published, row), table).get(column)
    nearest = dataset if published is None or there is None else published
    best = ours_of(findings.cells(nearest, row), table, "best").get(column)
    if best is None:
        return None
    value = table.accuracy[name][table.columns.index(column)]
    return Gap(
        whole=value - 100 * here.mean,
        protocol=None if there is None else 100 * (there.mean - here.mean),
        reported_round=100 * (best.mean - (here if there is None else there).mean),
    )


def gap_tables(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield a table for each mean of each published table that stands in a group."""
    comparison, parts = findings.comparison, list[Part]()
    for table, named in tables_beside(findings, dataset, group, rows):
        for column, label, (_, kind) in zip(table.columns, table.labels, table.kinds, strict=True):
            found = {row: each for row in named if (each := gap(findings, dataset, row, table, column)) is not None}
            if kind != MEAN or not found:
                continue
            parts.append(
                Table(
                    caption=f"{table.title}: published {label} minus ours, in points, and what explains it",
                    heads=("", "published - ours", "protocol", "reported round", "unexplained"),
                    lines=tuple(
                        Line(
                            comparison.label_of_row(row),
                            (
                                Value(points_text(each.whole)),
                                Value(NOTHING if each.protocol is None else points_text(each.protocol)),
                                Value(points_text(each.reported_round)),
                                Value(points_text(each.unexplained)),
                            ),
                        )
                        for row, each in found.items()
                    ),
                )
            )
    if not parts:
        return
    yield Heading(4, "What explains the differences")
    yield from parts
    published = protocol_of(comparison, dataset)
    protocol = (
        "No other protocol of this data set is in the comparison."
        if published is None
        else f"Protocol: what a row gains on {comparison.label_of_dataset(published)}, over the seeds that it has there."
    )
    yield Paragraph(
        f"{protocol} Reported round: what it gains if each seed takes its best round on the test images, an upper bound of "
        "what the choice of a round can explain."
    )
