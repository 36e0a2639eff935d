"""Table of what the stages of runs taught and made the model forget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedplcc.comparison.outcomes import spread
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Line, Part, Table, Value
from fedplcc.comparison.report.tables import measure_text
from fedplcc.comparison.round_values import STAGE_MEASURES

DIGITS = 3


def stage_table(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield the measures after the last round of the rows whose runs have stages, as in shared/stage_measures.py."""
    comparison, lines = findings.comparison, []
    for row in rows:
        last = [cell.rounds[-1].computed for cell in findings.cells(dataset, row)]
        spreads = [
            spread([computed[f"stages.{name}"] for computed in last if f"stages.{name}" in computed])
            for name in STAGE_MEASURES
        ]
        if any(spreads):
            texts = [*(measure_text(found, DIGITS) for found in spreads), str(len(last))]
            lines.append(Line(comparison.label_of_row(row), tuple(map(Value, texts))))
    if lines:
        yield Table(
            caption="After the last stage: average accuracy A, forgetting F and backward transfer BWT of the stages, and "
            f"accuracy by how many samples classes have, fractions, {comparison.label_of_dataset(dataset)}",
            heads=("", *STAGE_MEASURES.values(), "seeds"),
            lines=tuple(lines),
        )
