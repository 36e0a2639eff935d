"""What is told of a comparison, part by part. Pure but for drawing and for reading pictures that lie in cells' folders.

Everything above the last heading, MEASURED, is computed: equal cells give the same bytes. Seconds and bytes stand below it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedplcc.comparison.curves import accuracy_drawing
from fedplcc.comparison.document import Bullets, Code, Drawing, Heading, Line, Paragraph, Part, Picture, Table, Value
from fedplcc.comparison.file import Comparison, assignments
from fedplcc.comparison.outcomes import (
    LENGTHS,
    MEAN,
    SUMMARIES,
    VIEWS,
    WORST,
    Spread,
    View,
    curve,
    gains,
    outcome,
    over_seeds,
    ranks,
    spread,
    total_of,
)
from fedplcc.comparison.plan import command_of
from fedplcc.comparison.published import PublishedTable
from fedplcc.comparison.reading import Absence, CellResult, MissingCell
from shared.types import GLOBAL_MODEL, LOCAL_MODEL

MEASURED = "Measured on this machine"
"""The last heading: what is below it differs from run to run."""
HASH_CHARACTERS = 12
NOTHING = "-"
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """A comparison, and what its cells came to.

    Attributes:
        comparison: What the file says.
        file: Where it lies, as it was named.
        results: Cells that are whole.
        missing: Those that are not.
    """

    comparison: Comparison
    file: Path
    results: Sequence[CellResult]
    missing: Sequence[MissingCell]
    _by_row: dict[tuple[str, str], list[CellResult]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for result in self.results:
            self._by_row.setdefault((result.cell.dataset, result.cell.row), []).append(result)

    def cells(self, dataset: str, row: str) -> list[CellResult]:
        """Whole cells of a row on a data set, by seed."""
        return self._by_row.get((dataset, row), [])


def report(findings: Findings) -> list[Part]:
    """All of the report."""
    comparison = findings.comparison
    parts: list[Part] = [Heading(1, comparison.compare.title or comparison.compare.name)]
    parts += [Paragraph(note) for note in comparison.compare.notes]
    parts.append(Paragraph(_state(findings)))
    parts.append(
        Paragraph(
            "Accuracy in percent on the domains' test sets: mean ± sample standard deviation over seeds; mean is the "
            "unweighted mean of the domains, worst the lowest of them; the best value of a column is bold."
        )
    )
    for dataset in comparison.datasets:
        parts += _of_dataset(findings, dataset)
    parts += _what_was_run(findings)
    parts += _measured(findings)
    return parts


def _state(findings: Findings) -> str:
    total = len(findings.results) + len(findings.missing)
    told = f"{len(findings.results)} of {total} cells (data set, row, seed) are trained"
    if not findings.missing:
        return told + "."
    num_failed = sum(each.absence is Absence.FAILED for each in findings.missing)
    failed = f", {num_failed} failed" if num_failed else ""
    return f"{told}{failed}; those that are missing are listed under the heading What was run."


def _of_dataset(findings: Findings, dataset: str) -> Iterator[Part]:
    comparison = findings.comparison
    label = comparison.label_of_dataset(dataset)
    yield Heading(2, label)
    domains = _domains(findings, dataset)
    if not domains:
        yield Paragraph("No cell of this data set is trained yet.")
        yield from _absent(findings, dataset, comparison.rows_of(dataset), names_untouched=False)
        return
    for group, rows in comparison.groups_of(dataset).items():
        yield Heading(3, _with_label(comparison, dataset, comparison.title_of_group(group)))
        if group in comparison.groups:
            yield from (Paragraph(note) for note in comparison.groups[group].notes)
        having = [row for row in rows if findings.cells(dataset, row)]
        yield from _standing(findings, dataset, having)
        yield from _tables(findings, dataset, having, domains, GLOBAL_MODEL)
        without = [row for row in having if not over_seeds(findings.cells(dataset, row), "last")]
        if without:
            names = "; ".join(map(comparison.label_of_row, without))
            yield Paragraph(f"No global model, so only in the tables of local models: {names}.")
        yield from _absent(findings, dataset, rows)
        yield from _tables(findings, dataset, having, domains, LOCAL_MODEL)
        yield from _published(findings, dataset, group, having)
        yield from _curves(findings, dataset, group, having)
    yield from _pictures(findings, dataset)


def _absent(findings: Findings, dataset: str, rows: Sequence[str], *, names_untouched: bool = True) -> Iterator[Part]:
    """What is not in the tables of these rows: not trained, or why not."""
    comparison = findings.comparison
    missing = [each for each in findings.missing if each.cell.dataset == dataset and each.cell.row in rows]
    touched = {each.cell.row for each in missing if each.absence is not Absence.NOT_TRAINED}
    untouched = [row for row in rows if row not in touched and not findings.cells(dataset, row)]
    if untouched and names_untouched:
        yield Paragraph(f"Not trained yet: {'; '.join(map(comparison.label_of_row, untouched))}.")
    seeds: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        if each.absence is not Absence.NOT_TRAINED:
            seeds.setdefault((each.cell.row, _why(each)), []).append(str(each.cell.seed))
    if seeds:
        yield Paragraph("Not in these tables:")
        yield Bullets(
            tuple(
                f"{comparison.label_of_row(row)}, seed{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: {why}"
                for (row, why), numbers in seeds.items()
            )
        )


def _why(missing: MissingCell) -> str:
    return f"failed: {missing.reason}" if missing.absence is Absence.FAILED else missing.reason


def _with_label(comparison: Comparison, dataset: str, title: str) -> str:
    """The title of a part of a data set, with the data set's name where it would not be clear."""
    is_alone = len(comparison.datasets) == 1 and len(comparison.groups_of(dataset)) == 1
    return title if is_alone else f"{comparison.label_of_dataset(dataset)}: {title}"


def _standing(findings: Findings, dataset: str, rows: Sequence[str]) -> Iterator[Part]:
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
        texts = [str(found[MEAN].count), *(_value(found.get(column), None).text for column in SUMMARIES)]
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
    differences = [_signed(spread([*by_seed.values()])) for by_seed in by_column.values()]
    values = by_column[MEAN].values()
    return [*differences, f"{sum(value > 0 for value in values)} of {len(values)}" if values else NOTHING]


def _tables(
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
        values = [_value(found.get(column), best[column]) for column in columns]
        for column in () if against is None else SUMMARIES:
            others = [] if against is None or row == against else findings.cells(dataset, against)
            values.append(Value(_signed(spread([*gains(cells, others, view, column).values()]))))
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


def _published(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
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
    """A row's accuracies by the table's columns, as far as it has them."""
    models = {model for model, _ in table.kinds}
    found = {model: over_seeds(cells, table.view, model) for model in models}
    kinds = zip(table.columns, table.kinds, strict=True)
    return {column: found[model][name] for column, (model, name) in kinds if name in found[model]}


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
                f"{label}, here ({_count(_most(ours), 'seed')})",
                tuple(_value(ours.get(column), None) for column in columns),
            ),
            Line(f"{label}, published", tuple(Value(f"{published[column]:.2f}") for column in columns), is_aside=True),
            Line(
                f"{label}, difference",
                tuple(
                    Value(_difference(differences[column]) if column in differences else NOTHING) for column in columns
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


def _curves(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    comparison = findings.comparison
    titles = {MEAN: "Mean over domains", WORST: "Worst domain"}
    place = {row: number for number, row in enumerate(comparison.rows_of(dataset))}
    for column, title in titles.items():
        curves, looks = {}, {}
        for row in rows:
            cells, name = findings.cells(dataset, row), comparison.label_of_row(row)
            found = curve(cells, column)
            if not found:
                found, name = curve(cells, column, LOCAL_MODEL), f"{name} (local models)"
            if found:
                curves[name], looks[name] = found, place[row]
        if not curves:
            continue
        label = comparison.label_of_dataset(dataset)
        of_what = _with_label(comparison, dataset, comparison.title_of_group(group))
        try:
            svg = accuracy_drawing(curves, title=f"{of_what}, {title.lower()}", looks=looks)
        except ImportError:
            yield Paragraph("The accuracy curves are not drawn: matplotlib is not installed (pip install matplotlib).")
            return
        ends = "; ".join(f"{row} {100 * list(found.values())[-1].mean:.1f}" for row, found in curves.items())
        yield Drawing(
            name=drawing_name(dataset, group, column),
            caption=f"{title} over the rounds; the band is one standard deviation over seeds on either side, and a line "
            "without one is of a single seed.",
            alternative=f"{title} of the accuracy on {label} over the rounds. In the last round, in percent: {ends}.",
            svg=svg,
        )


def drawing_name(dataset: str, group: str, column: str) -> str:
    """The name of a drawing's file: no other drawing of a report has it, and it does not depend on what else there is.

    Hyphens within names are doubled. As names begin with a letter or a digit, an odd number of them is between two names.
    """
    return f"curves-{'-'.join(name.replace('-', '--') for name in (dataset, group, column))}.svg"


def _pictures(findings: Findings, dataset: str) -> Iterator[Part]:
    """Pictures of the cells that have any: those in the folder `pictures` of each."""
    comparison = findings.comparison
    cells = [cell for row in comparison.rows_of(dataset) for cell in findings.cells(dataset, row) if cell.pictures]
    if cells:
        yield Heading(3, _with_label(comparison, dataset, "Pictures"))
    for cell in cells:
        for picture in cell.pictures:
            which = f"{comparison.label_of_row(cell.cell.row)}, seed {cell.cell.seed}"
            yield Picture(
                path=f"{cell.cell.name}/{picture.path.parent.name}/{picture.path.name}",
                caption=f"{which}: {picture.caption}",
                alternative=f"{which}: {picture.alternative}",
                content=picture.path.read_bytes(),
            )


def _what_was_run(findings: Findings) -> Iterator[Part]:
    comparison = findings.comparison
    yield Heading(2, "What was run")
    yield Paragraph("All of it, and this report; it goes on where it stopped:")
    yield Code(f"{shlex.join(['fedplcc', 'compare', '--config', str(findings.file)])} --out FOLDER")
    yield Paragraph("One cell by itself:")
    commands = [
        command_of(comparison, findings.file, dataset, row)
        for dataset in comparison.datasets
        for row in comparison.rows_of(dataset)
    ]
    yield Code("\n".join(commands))
    yield from _whole_cells(findings)
    if findings.missing:
        yield Table(
            caption="Missing cells",
            heads=("row", "seeds", "why"),
            lines=tuple(_missing_lines(findings.missing)),
            is_numeric=False,
        )
    environments = _environments(findings)
    if environments:
        yield Paragraph("Computed with:" if len(environments) == 1 else "Computed on several types of machine:")
        yield Bullets(tuple(f"{name} ({_count(number, 'cell')})" for name, number in environments.items()))
    if len(environments) > 1:
        yield Paragraph("On another type of machine last bits differ, and accuracies with them.")


def _whole_cells(findings: Findings) -> Iterator[Part]:
    comparison = findings.comparison
    lines = []
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            for result in findings.cells(dataset, row):
                values = (
                    comparison.rows[row].method,
                    " ".join(assignments(comparison.settings_of(dataset, row))) or NOTHING,
                    str(len(result.rounds)),
                    str(result.manifest["config_hash"])[:HASH_CHARACTERS],
                    result.hashes["model"][:HASH_CHARACTERS],
                )
                lines.append(Line(result.cell.name, tuple(map(Value, values))))
    if lines:
        yield Table(
            caption="Cells: on one type of machine the same configuration gives the same model",
            heads=("cell", "method", "settings", "rounds", "configuration", "model"),
            lines=tuple(lines),
            is_numeric=False,
        )
        yield Paragraph("Whole hashes (SHA-256) are in cells.csv; every evaluation is in evaluations.csv.")


def _missing_lines(missing: Sequence[MissingCell]) -> Iterator[Line]:
    """A line for the seeds of a row that are missing for the same reason."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        seeds.setdefault((f"{each.cell.dataset}/{each.cell.row}", _why(each)), []).append(str(each.cell.seed))
    for (row, reason), numbers in seeds.items():
        yield Line(row, (Value(", ".join(numbers)), Value(reason)))


def _environments(findings: Findings) -> dict[str, int]:
    """Machine types and versions, each with the number of cells that were computed with it."""
    found: dict[str, int] = {}
    for result in findings.results:
        aggregator = result.manifest.get("aggregator", {})
        clients = [client.get("environment", {}) for client in result.manifest.get("clients", {}).values()]
        names = {
            f"torch {each.get('packages', {}).get('torch', NOTHING)}, {each.get('cpu', '')}, device {each.get('device', '')}"
            for each in clients
        }
        versions = f"fedplcc {aggregator.get('fedplcc', NOTHING)}, Python {aggregator.get('python', NOTHING)}"
        name = ", ".join((versions, *sorted(names)))
        found[name] = found.get(name, 0) + 1
    return found


def _measured(findings: Findings) -> Iterator[Part]:
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
            values = (*totals, _measure(each, 2), str(len(cells)))
            lines.append(Line(comparison.label_of_row(row), tuple(map(Value, values))))
        if lines:
            yield Table(
                caption=f"Bytes and seconds, {comparison.label_of_dataset(dataset)}",
                heads=("", "sent (MB)", "received (MB)", "seconds", "seconds a round", "seeds"),
                lines=tuple(lines),
            )


def _spread_of(cells: Sequence[CellResult], name: str, unit: int) -> str:
    values = [value / unit for cell in cells if (value := total_of(cell, name)) is not None]
    return _measure(spread(values), 1)


def _measure(found: Spread | None, digits: int) -> str:
    if found is None:
        return NOTHING
    return f"{found.mean:.{digits}f}" + ("" if found.std is None else f" ± {found.std:.{digits}f}")


def _domains(findings: Findings, dataset: str) -> dict[str, str]:
    """Domains of a data set with their labels: as the first published table has them, then others by name."""
    present = {domain for each in findings.results if each.cell.dataset == dataset for domain in each.domains}
    labels: dict[str, str] = {}
    for table in findings.comparison.published_for(dataset):
        for domain, label in table.domains.items():
            if domain in present:
                labels.setdefault(domain, label)
    return labels | {domain: domain for domain in sorted(present - labels.keys())}


def _rounds(cells: Sequence[CellResult], model: str) -> str:
    """The best round of each seed."""
    found = [outcome(cell.rounds, "best", model) for cell in cells]
    return ", ".join(str(each.rounds[0]) for each in found if each is not None)


def _best(values: Sequence[float]) -> float | None:
    """The highest of several; of a single one nothing can be said."""
    return max(values) if len(values) > 1 else None


def _value(found: Spread | None, best: float | None) -> Value:
    if found is None:
        return Value(NOTHING)
    text = f"{100 * found.mean:.1f}" + ("" if found.std is None else f" ± {100 * found.std:.1f}")
    return Value(text, is_best=best is not None and found.mean == best)


def _signed(found: Spread | None) -> str:
    if found is None:
        return NOTHING
    return _difference(100 * found.mean) + ("" if found.std is None else f" ± {100 * found.std:.1f}")


def _difference(points: float) -> str:
    return f"{round(points, 1) + 0.0:+.1f}"  # the sum makes -0.0 plain


def _most(spreads: Mapping[str, Spread]) -> int:
    """The number of seeds that a row's values are of."""
    return max(found.count for found in spreads.values())


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
