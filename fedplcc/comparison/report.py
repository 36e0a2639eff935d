"""What is told of a comparison, part by part. Pure but for drawing and for reading pictures that lie in cells' folders.

Everything above the last heading, `measured.MEASURED`, is computed: equal cells give the same bytes. Seconds and bytes stand
below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedplcc.comparison.accuracy_tables import standing, tables_of_views
from fedplcc.comparison.document import Bullets, Heading, Paragraph, Part
from fedplcc.comparison.drawings import cell_pictures, curve_drawings
from fedplcc.comparison.findings import Findings, seeds_by_reason
from fedplcc.comparison.measured import what_was_measured
from fedplcc.comparison.outcomes import over_seeds
from fedplcc.comparison.provenance import what_was_run
from fedplcc.comparison.published_beside import beside_published
from fedplcc.comparison.reading import Absence
from shared.types import GLOBAL_MODEL, LOCAL_MODEL


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
    parts += what_was_run(findings)
    parts += what_was_measured(findings)
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
        yield Heading(3, findings.heading(dataset, comparison.title_of_group(group)))
        if group in comparison.groups:
            yield from (Paragraph(note) for note in comparison.groups[group].notes)
        having = [row for row in rows if findings.cells(dataset, row)]
        yield from standing(findings, dataset, having)
        yield from tables_of_views(findings, dataset, having, domains, GLOBAL_MODEL)
        without = [row for row in having if not over_seeds(findings.cells(dataset, row), "last")]
        if without:
            names = "; ".join(map(comparison.label_of_row, without))
            yield Paragraph(f"No global model, so only in the tables of local models: {names}.")
        yield from _absent(findings, dataset, rows)
        yield from tables_of_views(findings, dataset, having, domains, LOCAL_MODEL)
        yield from beside_published(findings, dataset, group, having)
        yield from curve_drawings(findings, dataset, group, having)
    yield from cell_pictures(findings, dataset)


def _absent(findings: Findings, dataset: str, rows: Sequence[str], *, names_untouched: bool = True) -> Iterator[Part]:
    """What is not in the tables of these rows: not trained, or why not."""
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


def _domains(findings: Findings, dataset: str) -> dict[str, str]:
    """Domains of a data set with their labels: as the first published table has them, then others by name."""
    present = {domain for each in findings.results if each.cell.dataset == dataset for domain in each.domains}
    labels: dict[str, str] = {}
    for table in findings.comparison.published_for(dataset):
        for domain, label in table.domains.items():
            if domain in present:
                labels.setdefault(domain, label)
    return labels | {domain: domain for domain in sorted(present - labels.keys())}
