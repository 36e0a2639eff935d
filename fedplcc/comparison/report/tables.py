"""Tables of a report: ranks, accuracies by domain, and bytes and seconds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedplcc.comparison.outcomes import (
    CHOSEN,
    LENGTHS,
    MEAN,
    SUMMARIES,
    VIEWS,
    Spread,
    View,
    gains,
    outcome,
    over_seeds,
    ranks,
    spread,
    total_of,
)
from fedplcc.comparison.reading import CellResult, Findings
from fedplcc.comparison.report.document import Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.round_values import OWN, OWN_OF_WHOLE, WHOLE
from fedplcc.shared.scoring.intervals import DIGITS
from fedplcc.shared.types import GLOBAL_MODEL, LOCAL_MODEL, VALIDATION_SET

NOTHING = "-"
"""Text of a missing value."""


def accuracy_value(found: Spread | None, best: float | None) -> Value:
    """Return an accuracy in percent with its deviation, marked if it is the best of its column."""
    if found is None:
        return Value(NOTHING)
    text = f"{100 * found.mean:.1f}" + ("" if found.std is None else f" ± {100 * found.std:.1f}")
    return Value(text, is_best=best is not None and round(found.mean - best, DIGITS) == 0)


def gain_text(found: Spread | None) -> str:
    """Return a difference of accuracies in points, with sign and deviation."""
    if found is None:
        return NOTHING
    return points_text(100 * round(found.mean, DIGITS)) + ("" if found.std is None else f" ± {100 * found.std:.1f}")


def points_text(points: float) -> str:
    """Return points with their sign and one decimal."""
    return f"{round(points, 1) + 0.0:+.1f}"  # the sum makes -0.0 plain


def measure_text(found: Spread | None, digits: int) -> str:
    """Return the mean of a measured quantity, with its deviation."""
    if found is None:
        return NOTHING
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural except for 1."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def ranking(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield the rows' ranks in the last round, and their differences from the baselines on the seeds that both have."""
    comparison = findings.comparison
    spreads = {row: over_seeds(findings.cells(dataset, row), "last") for row in rows}
    spreads = {row: found for row, found in spreads.items() if MEAN in found}
    if len(spreads) < 2:
        return
    rank = ranks({row: round(found[MEAN].mean, DIGITS) for row, found in spreads.items()})
    baselines = [row for row in comparison.compare.baseline if row in spreads]
    heads = ["", "rank", "seeds", *SUMMARIES]
    for baseline in baselines:
        label = comparison.label_of_row(baseline)
        heads += [*(f"{column} vs {label}" for column in SUMMARIES), f"higher mean than {label}"]
    lines = []
    for row, found in spreads.items():
        own = findings.cells(dataset, row)
        texts = [str(found[MEAN].count), *(accuracy_value(found.get(column), None).text for column in SUMMARIES)]
        for baseline in baselines:
            texts += _versus(own, [] if row == baseline else findings.cells(dataset, baseline))
        place = Value(str(rank[row]), is_best=rank[row] == 1)
        lines.append(Line(comparison.label_of_row(row), (place, *map(Value, texts))))
    yield Table(
        caption=f"Rank by the mean of the last round, global model{score_in_words(findings, dataset, rows, GLOBAL_MODEL)}, "
        f"{comparison.label_of_dataset(dataset)}",
        heads=tuple(heads),
        lines=tuple(lines),
    )
    counts = {found[MEAN].count for found in spreads.values()}
    if len(counts) > 1:
        yield Paragraph(
            f"The rows are of {min(counts)} to {max(counts)} seeds, so ranks and best values are provisional; differences "
            "are of the seeds that both rows have."
        )
    fewest, most = _lengths(findings, dataset, [*spreads])
    if fewest != most:
        yield Paragraph(f"The runs have {fewest} to {most} rounds, so the last round is not the same one in each.")


def _versus(cells: Sequence[CellResult], baseline: Sequence[CellResult]) -> list[str]:
    """Return the differences of mean and worst domain, and on how many common seeds the mean is higher."""
    by_column = {column: gains(cells, baseline, "last", column) for column in SUMMARIES}
    differences = [gain_text(spread([*by_seed.values()])) for by_seed in by_column.values()]
    values = by_column[MEAN].values()
    return [
        *differences,
        f"{sum(round(value, DIGITS) > 0 for value in values)} of {len(values)}" if values else NOTHING,
    ]


def tables_of_views(
    findings: Findings, dataset: str, rows: Sequence[str], domains: Mapping[str, str], model: str
) -> Iterator[Part]:
    """Yield a table for each view of the rows that have such a model."""
    having = [row for row in rows if over_seeds(findings.cells(dataset, row), "last", model)]
    for view in VIEWS if having else ():
        if any(over_seeds(findings.cells(dataset, row), view, model) for row in having):
            yield _table_of_view(findings, dataset, having, domains, view, model)


def sources_of_statistics(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
    """Yield which local models have the BatchNorm statistics of their sites, if some have."""
    having = [row for row in rows if over_seeds(findings.cells(dataset, row), "last", LOCAL_MODEL)]
    at_site = [row for row in having if _is_at_site(findings.cells(dataset, row)[0])]
    if not at_site:
        return
    label = findings.comparison.label_of_row
    others = [row for row in having if row not in at_site]
    yield Paragraph(
        "Local models with the BatchNorm mean and variance of their site's training images "
        '(evaluation.batch_norm = "site"); where a method has none, that is the global model with these: '
        f"{'; '.join(map(label, at_site))}."
        + (f" Local models as trained: {'; '.join(map(label, others))}." if others else "")
    )


def _is_at_site(cell: CellResult) -> bool:
    evaluation = cell.manifest.get("config", {}).get("evaluation", {})
    return bool(evaluation.get("batch_norm") == "site")


def _table_of_view(
    findings: Findings, dataset: str, rows: Sequence[str], domains: Mapping[str, str], view: View, model: str
) -> Table:
    """Return one view by row and domain, and the differences from the first baseline that has the model."""
    comparison = findings.comparison
    columns = [*domains, *SUMMARIES]
    spreads = {row: over_seeds(findings.cells(dataset, row), view, model) for row in rows}
    best = {column: _best([found[column].mean for found in spreads.values() if column in found]) for column in columns}
    baselines = [row for row in comparison.compare.baseline if row in rows]
    against = baselines[0] if baselines and len(rows) > 1 else None
    heads = ["", *domains.values(), *SUMMARIES]
    if against is not None:
        heads += [f"{column} vs {comparison.label_of_row(against)}" for column in SUMMARIES]
    heads.append("round" if view in CHOSEN else "seeds")
    lines = []
    for row in rows:
        found, cells = spreads[row], findings.cells(dataset, row)
        values = [accuracy_value(found.get(column), best[column]) for column in columns]
        for column in () if against is None else SUMMARIES:
            others = [] if against is None or row == against else findings.cells(dataset, against)
            values.append(Value(gain_text(spread([*gains(cells, others, view, column, model).values()]))))
        values.append(Value(_rounds(cells, view, model) if view in CHOSEN else str(len(cells))))
        lines.append(Line(comparison.label_of_row(row), tuple(values)))
    which = in_words(model) + score_in_words(findings, dataset, rows, model)
    title = _title_of(view, *_lengths(findings, dataset, rows))
    caption = f"{title}, {which}, {comparison.label_of_dataset(dataset)}"
    return Table(caption=caption, heads=tuple(heads), lines=tuple(lines))


def in_words(model: str) -> str:
    """Return what a table of accuracies of a model is of."""
    whose, _, how = model.partition("/")
    which = "global model" if whose == GLOBAL_MODEL else "local models, each on its own domain"
    return which + (_ON_SETS.get(how, f", under {how.upper()}") if how else "")


def score_in_words(findings: Findings, dataset: str, rows: Sequence[str], model: str) -> str:
    """Return what follows a model's name in a caption where the score of these rows is not accuracy."""
    found = {cell.is_balanced(model) for row in rows for cell in findings.cells(dataset, row)}
    if True not in found:
        return ""
    return _ON_SETS["balanced"] + ("" if found == {True} else " where it is the run's score")


_ON_SETS = {
    "accuracy": ", accuracy",
    "macro_f1": ", macro F1",
    "auc": ", area under the ROC curve",
    "balanced": ", balanced accuracy",
    VALIDATION_SET: ", validation images",
    OWN: ", among each client's own classes",
    WHOLE: ", on the whole test set that is dealt",
    OWN_OF_WHOLE: ", on the whole test set that is dealt, among each client's own classes",
}


def _lengths(findings: Findings, dataset: str, rows: Sequence[str]) -> tuple[int, int]:
    """Return the smallest and the largest number of rounds of the rows' runs."""
    found = [len(cell.rounds) for row in rows for cell in findings.cells(dataset, row)]
    return min(found), max(found)


def _title_of(view: View, fewest: int, most: int) -> str:
    """Return the title of a view; it says so if some runs have fewer rounds than the view."""
    if LENGTHS.get(view, 1) <= fewest:
        return VIEWS[view]
    if fewest == most:
        return f"{VIEWS[view]} (of all, as there are only {most})"
    return f"{VIEWS[view]} (of all where a run has fewer; runs have {fewest} to {most})"


def _rounds(cells: Sequence[CellResult], view: View, model: str) -> str:
    """Return the chosen round of each seed."""
    found = [outcome(cell.rounds, view, model) for cell in cells]
    return ", ".join(str(each.rounds[0]) for each in found if each is not None) or NOTHING


def _best(values: Sequence[float]) -> float | None:
    """Return the highest of several values; a single value is not marked as the best."""
    return max(values) if len(values) > 1 else None


MEASURED = "Measured on this machine"
"""The last heading: measurements below it differ from run to run."""
MEGABYTE = 1_000_000


def measurements(findings: Findings) -> Iterator[Part]:
    """Yield the last part of the report: bytes and seconds."""
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
            values = (*totals, measure_text(each, 2), str(len(cells)))
            lines.append(Line(comparison.label_of_row(row), tuple(map(Value, values))))
        if lines:
            yield Table(
                caption=f"Bytes and seconds, {comparison.label_of_dataset(dataset)}",
                heads=("", "sent (MB)", "received (MB)", "seconds", "seconds a round", "seeds"),
                lines=tuple(lines),
            )


def _spread_of(cells: Sequence[CellResult], name: str, unit: int) -> str:
    values = [value / unit for cell in cells if (value := total_of(cell, name)) is not None]
    return measure_text(spread(values), 1)
