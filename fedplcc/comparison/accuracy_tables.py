"""The report's tables of accuracies: who is ahead, and every view by domain. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedplcc.comparison.document import Line, Paragraph, Part, Table, Value
from fedplcc.comparison.findings import Findings
from fedplcc.comparison.outcomes import LENGTHS, MEAN, SUMMARIES, VIEWS, View, gains, outcome, over_seeds, ranks, spread
from fedplcc.comparison.reading import CellResult
from fedplcc.comparison.wording import NOTHING, accuracy_told, gain_told
from shared.types import GLOBAL_MODEL


def standing(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
    """Who is ahead in the last round, and by how much of the baselines on the seeds that both have."""
    comparison = findings.comparison
    spreads = {row: over_seeds(findings.cells(dataset, row), "last") for row in rows}
    spreads = {row: found for row, found in spreads.items() if MEAN in found}
    if len(spreads) < 2:
        return
    rank = ranks({row: found[MEAN].mean for row, found in spreads.items()})
    baselines = [row for row in comparison.compare.baseline if row in spreads]
    heads = ["", "rank", "seeds", *SUMMARIES]
    for baseline in baselines:
        label = comparison.label_of_row(baseline)
        heads += [*(f"{column} vs {label}" for column in SUMMARIES), f"higher mean than {label}"]
    lines = []
    for row, found in spreads.items():
        own = findings.cells(dataset, row)
        texts = [str(found[MEAN].count), *(accuracy_told(found.get(column), None).text for column in SUMMARIES)]
        for baseline in baselines:
            texts += _versus(own, [] if row == baseline else findings.cells(dataset, baseline))
        place = Value(str(rank[row]), is_best=rank[row] == 1)
        lines.append(Line(comparison.label_of_row(row), (place, *map(Value, texts))))
    yield Table(
        caption=f"Rank by the mean of the last round, global model, {comparison.label_of_dataset(dataset)}",
        heads=tuple(heads),
        lines=tuple(lines),
    )
    counts = {found[MEAN].count for found in spreads.values()}
    if len(counts) > 1:
        yield Paragraph(
            f"The rows are of {min(counts)} to {max(counts)} seeds, so ranks and best values are provisional; differences "
            "are of the seeds that both rows have."
        )


def _versus(cells: Sequence[CellResult], baseline: Sequence[CellResult]) -> list[str]:
    """Differences of mean and worst domain in the last round, and in how many of the common seeds the mean is higher."""
    by_column = {column: gains(cells, baseline, "last", column) for column in SUMMARIES}
    differences = [gain_told(spread([*by_seed.values()])) for by_seed in by_column.values()]
    values = by_column[MEAN].values()
    return [*differences, f"{sum(value > 0 for value in values)} of {len(values)}" if values else NOTHING]


def tables_of_views(
    findings: Findings, dataset: str, rows: Sequence[str], domains: Mapping[str, str], model: str
) -> Iterator[Part]:
    """A table for each view of the rows that have such a model, if there are any."""
    having = [row for row in rows if over_seeds(findings.cells(dataset, row), "last", model)]
    for view in VIEWS if having else ():
        yield _table(findings, dataset, having, domains, view, model)


def _table(
    findings: Findings, dataset: str, rows: Sequence[str], domains: Mapping[str, str], view: View, model: str
) -> Table:
    """Rows by domain in one view; for the global model also how far above the baseline, and of how many seeds."""
    comparison = findings.comparison
    columns = [*domains, *SUMMARIES]
    spreads = {row: over_seeds(findings.cells(dataset, row), view, model) for row in rows}
    best = {column: _best([found[column].mean for found in spreads.values() if column in found]) for column in columns}
    baselines = [row for row in comparison.compare.baseline if row in rows]
    against = baselines[0] if baselines and model == GLOBAL_MODEL and len(rows) > 1 else None
    heads = ["", *domains.values(), *SUMMARIES]
    if against is not None:
        heads += [f"{column} vs {comparison.label_of_row(against)}" for column in SUMMARIES]
    heads.append("round" if view == "best" else "seeds")
    lines = []
    for row in rows:
        found, cells = spreads[row], findings.cells(dataset, row)
        values = [accuracy_told(found.get(column), best[column]) for column in columns]
        for column in () if against is None else SUMMARIES:
            others = [] if against is None or row == against else findings.cells(dataset, against)
            values.append(Value(gain_told(spread([*gains(cells, others, view, column).values()]))))
        values.append(Value(_rounds(cells, model) if view == "best" else str(len(cells))))
        lines.append(Line(comparison.label_of_row(row), tuple(values)))
    which = "global model" if model == GLOBAL_MODEL else "local models, each on its own domain"
    title = _title_of(view, max(len(cell.rounds) for row in rows for cell in findings.cells(dataset, row)))
    caption = f"{title}, {which}, {comparison.label_of_dataset(dataset)}"
    return Table(caption=caption, heads=tuple(heads), lines=tuple(lines))


def _title_of(view: View, num_rounds: int) -> str:
    """The title of a view, which of shorter runs takes all there is."""
    if LENGTHS.get(view, 1) <= num_rounds:
        return VIEWS[view]
    return f"{VIEWS[view]} (of all, as there are only {num_rounds})"


def _rounds(cells: Sequence[CellResult], model: str) -> str:
    """The best round of each seed."""
    found = [outcome(cell.rounds, "best", model) for cell in cells]
    return ", ".join(str(each.rounds[0]) for each in found if each is not None)


def _best(values: Sequence[float]) -> float | None:
    """The highest of several; of a single one nothing can be said."""
    return max(values) if len(values) > 1 else None
