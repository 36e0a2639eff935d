"""What was run and with what: commands, hashes, what is missing, machines. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from fedplcc.comparison.document import Bullets, Code, Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.file import assignments
from fedplcc.comparison.findings import Findings, seeds_by_reason
from fedplcc.comparison.plan import command_of
from fedplcc.comparison.reading import MissingCell
from fedplcc.comparison.wording import NOTHING, counted

HASH_CHARACTERS = 12


def what_was_run(findings: Findings) -> Iterator[Part]:
    """The part of the report with which somebody else can do it again."""
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
    for (dataset, row, reason), numbers in seeds_by_reason(missing).items():
        yield Line(f"{dataset}/{row}", (Value(", ".join(numbers)), Value(reason)))


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
