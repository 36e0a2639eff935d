"""Table of what joining is worth: each row's global model, the clients' own, those of their images alone, and the gain."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fedplcc.comparison.outcomes import MEAN, SUMMARIES, WORST, Spread, outcome, spread
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Line, Part, Table, Value
from fedplcc.comparison.report.tables import accuracy_value, gain_text, score_in_words
from fedplcc.shared.types import ALONE_MODEL, GLOBAL_MODEL, LOCAL_MODEL, POOLED_MODEL

MODELS = {
    GLOBAL_MODEL: "one model for all",
    LOCAL_MODEL: "each client's own",
    ALONE_MODEL: "each client alone",
    POOLED_MODEL: "all images together",
}
"""Models of the lines, in order."""


def joining_table(findings: Findings, dataset: str, rows: Sequence[str], domains: Mapping[str, str]) -> Iterator[Part]:
    """Yield the last round of the rows whose clients also have models of their images alone."""
    comparison, lines = findings.comparison, []
    columns = [*domains, *SUMMARIES]
    for row in rows:
        cells = findings.cells(dataset, row)
        gain = gain_over_seeds(cells)
        if not gain:
            continue
        label = comparison.label_of_row(row)
        for model, what in MODELS.items():
            found = _spreads(_scores(cell, model) for cell in cells)
            if model == POOLED_MODEL and not found:
                continue
            values = [accuracy_value(found.get(column), None) for column in columns]
            lines.append(Line(f"{label}: {what}", (*values, Value(str(len(cells)))), is_aside=model != LOCAL_MODEL))
        texts = [gain_text(gain.get(column)) for column in columns]
        lines.append(Line(f"{label}: joining is worth", tuple(map(Value, (*texts, str(len(cells)))))))
    if lines:
        yield Table(
            caption="What joining is worth: points of each client's own model over that of its images alone (worst: the "
            f"lowest gain), last round{score_in_words(findings, dataset, rows, LOCAL_MODEL)}, "
            f"{comparison.label_of_dataset(dataset)}",
            heads=("", *domains.values(), *SUMMARIES, "seeds"),
            lines=tuple(lines),
        )


def gain_over_seeds(cells: Sequence[CellResult]) -> dict[str, Spread]:
    """Return by how much clients' own models are above those of their images alone: by domain, mean, lowest; fractions."""
    return _spreads(
        {domain: own[domain] - alone for domain, alone in _scores(cell, ALONE_MODEL).items() if domain in own}
        for cell in cells
        if (own := _scores(cell, LOCAL_MODEL))
    )


def _scores(cell: CellResult, model: str) -> dict[str, float]:
    """Return the last round's scores of the domains that also have a model of their images alone; others did not join."""
    shown, alone = (outcome(cell.rounds, "last", each) for each in (model, ALONE_MODEL))
    if shown is None or alone is None:
        return {}
    return {
        domain: value
        for domain, value in shown.accuracy.items()
        if domain not in SUMMARIES and value is not None and alone.accuracy.get(domain) is not None
    }


def _spreads(scores: Iterable[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread over cells of the scores by domain, their mean, and the lowest."""
    found: dict[str, list[float]] = {}
    for by_domain in filter(None, scores):
        columns = {**by_domain, MEAN: statistics.fmean(by_domain.values()), WORST: min(by_domain.values())}
        for column, value in columns.items():
            found.setdefault(column, []).append(value)
    return {column: each for column, values in found.items() if (each := spread(values)) is not None}
