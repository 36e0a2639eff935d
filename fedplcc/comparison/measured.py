"""Bytes and seconds, apart from everything that is computed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedplcc.comparison.document import Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.findings import Findings
from fedplcc.comparison.outcomes import spread, total_of
from fedplcc.comparison.reading import CellResult
from fedplcc.comparison.wording import measure_told

MEASURED = "Measured on this machine"
"""The last heading: what is below it differs from run to run."""
MEGABYTE = 1_000_000


def what_was_measured(findings: Findings) -> Iterator[Part]:
    """The last part of the report."""
    comparison = findings.comparison
    yield Heading(2, MEASURED)
    yield Paragraph(
        "Whole runs, mean ± sample standard deviation over seeds. Seconds are of the machine that trained the cell, and of "
        "what else it did meanwhile. Bytes are what all clients sent and received together, every model to train from and "
        "to evaluate included; an interrupted run may have moved some twice."
    )
    for dataset in comparison.datasets:
        lines = []
        for row in comparison.rows_of(dataset):
            cells = findings.cells(dataset, row)
            if not cells:
                continue
            totals = [
                _spread_of(cells, name, unit)
                for name, unit in (("bytes.sent", MEGABYTE), ("bytes.received", MEGABYTE), ("seconds.total", 1))
            ]
            each = spread(
                [value / len(cell.rounds) for cell in cells if (value := total_of(cell, "seconds.total")) is not None]
            )
            values = (*totals, measure_told(each, 2), str(len(cells)))
            lines.append(Line(comparison.label_of_row(row), tuple(map(Value, values))))
        if lines:
            yield Table(
                caption=f"Bytes and seconds, {comparison.label_of_dataset(dataset)}",
                heads=("", "sent (MB)", "received (MB)", "seconds", "seconds a round", "seeds"),
                lines=tuple(lines),
            )


def _spread_of(cells: Sequence[CellResult], name: str, unit: int) -> str:
    values = [value / unit for cell in cells if (value := total_of(cell, name)) is not None]
    return measure_told(spread(values), 1)
