"""The report of a comparison, part by part. Pure but for drawing.

Everything above the last heading, `tables.MEASURED`, is computed: equal cells give equal bytes. Measured seconds and bytes
stand below it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedplcc.comparison.file import assignments
from fedplcc.comparison.outcomes import over_seeds
from fedplcc.comparison.plan import command_of
from fedplcc.comparison.reading import Absence, Findings, MissingCell, seeds_by_reason
from fedplcc.comparison.report.accuracy_maps import map_by_class, map_by_domain
from fedplcc.comparison.report.candidates import candidate_tables
from fedplcc.comparison.report.document import Bullets, Code, Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.drawings import curve_drawings
from fedplcc.comparison.report.joining_table import joining_table
from fedplcc.comparison.report.stage_tables import stage_table
from fedplcc.comparison.report.tables import (
    NOTHING,
    counted,
    measurements,
    ranking,
    sources_of_statistics,
    tables_of_views,
)
from fedplcc.comparison.report.uncertainty import uncertainty_notes, uncertainty_tables
from fedplcc.comparison.round_values import (
    ATTACKED_MODELS,
    BALANCED_MODELS,
    DETAILED_MODELS,
    PLAIN_MODELS,
    STREAM_MODELS,
)
from fedplcc.comparison.sweep.tables import choice_tables
from fedplcc.shared.types import GLOBAL_MODEL, LOCAL_MODEL

HASH_CHARACTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """Parts that another program adds to a report."""

    of_group: Callable[[Findings, str, str, Sequence[str]], Iterable[Part]] = lambda *_: ()
    """Parts below a group's tables, of the findings, a data set, a group and its rows."""
    domain_labels: Callable[[Findings, str], Mapping[str, str]] = lambda *_: {}
    """Labels of a data set's domains, in their order; the others follow by name."""


NO_ADDITIONS = Additions()


def report(findings: Findings, additions: Additions = NO_ADDITIONS) -> list[Part]:
    """Return all parts of the report."""
    comparison = findings.comparison
    parts: list[Part] = [Heading(1, comparison.compare.title or comparison.compare.name)]
    parts += [Paragraph(note) for note in comparison.compare.notes]
    parts.append(Paragraph(_state(findings)))
    if not all(map(comparison.chooses_among, comparison.rows)):
        parts.append(
            Paragraph(
                "Accuracy in percent on the domains' test sets: mean ± sample standard deviation over seeds; mean is the "
                "unweighted mean of the domains, worst the lowest of them; the best value of a column is bold. "
                "The best round is the one with the highest mean on the test sets themselves: an upper bound, not a result."
            )
        )
    parts += uncertainty_notes(findings)
    for dataset in comparison.datasets:
        parts += _of_dataset(findings, dataset, additions)
    parts += provenance(findings)
    parts += measurements(findings)
    return parts


def _state(findings: Findings) -> str:
    total = len(findings.whole) + len(findings.missing)
    leaves_out = any(each.leave_out == "each" for each in findings.comparison.datasets.values())
    kinds = "data set, row, seed" + (", domain that is left out" if leaves_out else "")
    text = f"{len(findings.whole)} of {total} cells ({kinds}) are trained"
    if not findings.missing:
        return text + "."
    num_failed = sum(each.absence is Absence.FAILED for each in findings.missing)
    failed = f", {num_failed} failed" if num_failed else ""
    return f"{text}{failed}; those that are missing are listed under the heading What was run."


def _of_dataset(findings: Findings, dataset: str, additions: Additions) -> Iterator[Part]:
    comparison = findings.comparison
    label = comparison.label_of_dataset(dataset)
    yield Heading(2, label)
    yield from choice_tables(findings, dataset)
    if comparison.datasets[dataset].leave_out == "each":
        yield Paragraph(
            "Each domain was left out once: its clients evaluated only. A domain's values are of the model that was trained "
            "without it, on its test images; mean and worst are of these. Bytes and seconds are sums over the domains that "
            "were left out."
        )
    domains = _domains(findings, dataset, additions.domain_labels(findings, dataset))
    if not domains:
        yield Paragraph("No cell of this data set is trained yet.")
        yield from _absent(findings, dataset, comparison.rows_of(dataset), names_untouched=False)
        return
    if any(_is_scored(findings, dataset, model) for model in BALANCED_MODELS):
        yield Paragraph(
            "The score of these runs is balanced accuracy, the mean of the recalls of the classes, because test images of "
            "classes are uneven or evaluation.score says so. It stands in all tables and pictures that name no other."
        )
    scored = [each.scored_domains for each in findings.results if each.cell.dataset == dataset]
    every = {domain for of_run in scored for known in of_run for domain in known}
    if partial := [of_run for of_run in scored if any(known != every for known in of_run)]:
        yield Paragraph(
            f"In {len(partial)} runs not every round has a score of every domain, as clients were away or not drawn: mean "
            "and worst are of the domains that have one, and so may be of other domains in another round or seed."
        )
    for group, rows in comparison.groups_of(dataset).items():
        yield Heading(3, findings.heading(dataset, comparison.title_of_group(group)))
        if group in comparison.groups:
            yield from (Paragraph(note) for note in comparison.groups[group].notes)
        having = [row for row in rows if findings.cells(dataset, row)]
        if group in comparison.groups and comparison.groups[group].choose is not None:
            yield from candidate_tables(findings, dataset, group, domains)
            yield from _absent(findings, dataset, rows)
            continue
        yield from ranking(findings, dataset, having)
        yield from uncertainty_tables(findings, dataset, having)
        yield from tables_of_views(findings, dataset, having, domains, GLOBAL_MODEL)
        without = [row for row in having if not over_seeds(findings.cells(dataset, row), "last")]
        if without:
            names = "; ".join(map(comparison.label_of_row, without))
            yield Paragraph(f"No global model, so only in the tables of local models: {names}.")
        yield from _absent(findings, dataset, rows)
        yield from sources_of_statistics(findings, dataset, having)
        yield from tables_of_views(findings, dataset, having, domains, LOCAL_MODEL)
        yield from joining_table(findings, dataset, having, domains)
        is_asked_for = comparison.datasets[dataset].balanced
        balanced = [model for model in BALANCED_MODELS if is_asked_for and not _is_scored(findings, dataset, model)]
        for model in (*balanced, *PLAIN_MODELS, *DETAILED_MODELS, *ATTACKED_MODELS, *STREAM_MODELS):
            yield from tables_of_views(findings, dataset, having, domains, model)
        yield from stage_table(findings, dataset, having)
        yield from additions.of_group(findings, dataset, group, having)
        yield from map_by_domain(findings, dataset, group, having, domains)
        yield from curve_drawings(findings, dataset, group, having)
        yield from map_by_class(findings, dataset, group, having, domains)


def _is_scored(findings: Findings, dataset: str, balanced: str) -> bool:
    """Whether balanced accuracy, by its name in `BALANCED_MODELS`, is the score of runs on a data set."""
    model = balanced.partition("/")[0]
    return any(result.is_balanced(model) for result in findings.results if result.cell.dataset == dataset)


def _absent(findings: Findings, dataset: str, rows: Sequence[str], *, names_untouched: bool = True) -> Iterator[Part]:
    """Yield the rows and seeds that are missing in these rows' tables, with the reasons."""
    comparison = findings.comparison
    missing = [each for each in findings.missing if each.cell.dataset == dataset and each.cell.row in rows]
    touched = {each.cell.row for each in missing if each.absence is not Absence.NOT_TRAINED}
    untouched = [row for row in rows if row not in touched and not findings.cells(dataset, row)]
    if untouched and names_untouched:
        yield Paragraph(f"Not trained yet: {'; '.join(map(comparison.label_of_row, untouched))}.")
    seeds = seeds_by_reason(each for each in missing if each.absence is not Absence.NOT_TRAINED)
    if seeds:
        if any(findings.cells(dataset, row) for row in rows):
            yield Paragraph("Not in these tables:")
        yield Bullets(
            tuple(
                f"{comparison.label_of_row(row)}, seed{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: {why}"
                for (_, row, why), numbers in seeds.items()
            )
        )


def _domains(findings: Findings, dataset: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the domains of a data set with their labels: first those that have one, then by name."""
    present = {domain for each in findings.results if each.cell.dataset == dataset for domain in each.domains}
    labelled = {domain: label for domain, label in labels.items() if domain in present}
    return labelled | {domain: domain for domain in sorted(present - labelled.keys())}


def provenance(findings: Findings) -> Iterator[Part]:
    """Yield the part that others need to repeat the comparison: commands, hashes, missing cells, machines."""
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
        yield Bullets(tuple(f"{name} ({counted(number, 'cell')})" for name, number in environments.items()))
    if len(environments) > 1:
        yield Paragraph("On another type of machine last bits differ, and accuracies with them.")


def _whole_cells(findings: Findings) -> Iterator[Part]:
    comparison = findings.comparison
    lines = []
    for dataset in comparison.datasets:
        for row in comparison.rows_of(dataset):
            of_row = [each for each in findings.whole if (each.cell.dataset, each.cell.row) == (dataset, row)]
            for result in of_row:
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
    """Yield one line for all seeds of a row that are missing for the same reason."""
    for (dataset, row, reason), numbers in seeds_by_reason(missing).items():
        yield Line(f"{dataset}/{row}", (Value(", ".join(numbers)), Value(reason)))


def _environments(findings: Findings) -> dict[str, int]:
    """Return machine types and versions, each with its number of cells."""
    found: dict[str, int] = {}
    for result in findings.whole:
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
