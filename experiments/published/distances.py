"""Tables of how near several data sets, readings of one set-up, come to one published table.

What moves all methods alike, the data or the number of rounds, is in the baseline's differences (by_domain.py). What is
left of the other methods' means once the baseline's is taken off is the reading's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.published.accuracies import PublishedTable, published_tables
from experiments.published.by_domain import domain_table
from experiments.published.names import baseline_of, keys_of, name_of
from fedplcc.comparison.outcomes import MEAN, over_seeds
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Heading, Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import points_text
from fedplcc.shared.types import GLOBAL_MODEL


@dataclass(frozen=True, slots=True)
class Distance:
    """How near a data set comes to a published table; points.

    Attributes:
        of_baseline: Our mean minus the published one, of the baseline.
        remaining: The same of each other published method, with the baseline's taken off, by row.
        num_methods: Methods of the table that a row of the comparison stands for, the baseline left out.
    """

    of_baseline: float
    remaining: Mapping[str, float]
    num_methods: int

    @property
    def largest(self) -> tuple[str, float]:
        """The row that is farthest from its published number, and its difference."""
        return max(self.remaining.items(), key=lambda item: abs(item[1]))


def distance_tables(findings: Findings) -> Iterator[Part]:
    """Yield, for each published table that several data sets name, how near they come to it, the nearest first."""
    comparison = findings.comparison
    named = dict.fromkeys(key for dataset in comparison.datasets for key in keys_of(comparison, dataset))
    for key in named:
        table = published_tables()[key]
        readings = [name for name in comparison.datasets if key in keys_of(comparison, name)]
        if len(readings) > 1:
            parts = [*domain_table(findings, readings, table), *_remaining(findings, readings, table)]
            yield from (Heading(2, f"How near to {table.title}"), *parts) if parts else ()


def _remaining(findings: Findings, readings: Sequence[str], table: PublishedTable) -> Iterator[Part]:
    comparison = findings.comparison
    found = {name: near for name in readings if (near := distance(findings, name, table)) is not None}
    if not found:
        return
    lines = []
    for name, near in sorted(found.items(), key=lambda item: abs(item[1].largest[1])):
        row, largest = near.largest
        texts = (
            points_text(near.of_baseline),
            f"{abs(largest):.1f}",
            f"{comparison.label_of_row(row)} {points_text(largest)}",
            f"{len(near.remaining)} of {near.num_methods}",
        )
        lines.append(Line(comparison.label_of_dataset(name), tuple(map(Value, texts))))
    yield Table(
        caption=f"Points between ours and the published means ({table.title}), the baseline's own difference taken off",
        heads=("", "baseline", "largest", "where", "published rows"),
        lines=tuple(lines),
    )
    yield Paragraph(
        "Where several rows stand for one published number, the nearest counts. A data set without the baseline takes "
        "it of one whose configuration differs in the method's own settings alone."
    )


def distance(findings: Findings, dataset: str, table: PublishedTable) -> Distance | None:
    """Return how near a data set comes to a published table; None before the baseline and another row are trained.

    The means are those of the table's view, over the seeds that there are.
    """
    comparison = findings.comparison
    place = next((place for place, kind in enumerate(table.kinds) if kind == (GLOBAL_MODEL, MEAN)), None)
    baseline = baseline_of(comparison, table)
    if place is None or baseline is None:
        return None
    base, by_method = None, dict[str, dict[str, float]]()
    for row in comparison.rows:
        name = name_of(comparison, row, table)
        if name is None or (row != baseline and row not in comparison.rows_of(dataset)):
            continue
        ours = _mean(findings, _place_of(findings, dataset, row) if row == baseline else dataset, row, table)
        difference = None if ours is None else ours - table.accuracy[name][place]
        if row == baseline:
            base = difference
        else:
            of_method = by_method.setdefault(name, {})
            of_method.update({} if difference is None else {row: difference})
    if base is None or not any(by_method.values()):
        return None
    nearest = [
        min(((row, value - base) for row, value in rows.items()), key=lambda item: abs(item[1]))
        for rows in by_method.values()
        if rows
    ]
    return Distance(base, dict(nearest), len(by_method))


def _mean(findings: Findings, dataset: str | None, row: str, table: PublishedTable) -> float | None:
    """Return a row's mean over domains and seeds in percent; None where no cell of it is trained."""
    found = {} if dataset is None else over_seeds(findings.cells(dataset, row), table.view)
    return 100 * found[MEAN].mean if MEAN in found else None


def _place_of(findings: Findings, dataset: str, baseline: str) -> str | None:
    """Return the data set whose baseline is that of a data set: itself, or one that differs in `[method]` alone."""
    if findings.cells(dataset, baseline):
        return dataset
    own = _without_method(findings, dataset)
    others = (name for name in findings.comparison.datasets if findings.cells(name, baseline))
    return next((name for name in others if own and _without_method(findings, name) & own), None)


def _without_method(findings: Findings, dataset: str) -> set[str]:
    """Return the configurations of a data set's cells without seed, method and its settings, as JSON."""
    found = set()
    for result in findings.results:
        if result.cell.dataset == dataset:
            config = json.loads(result.cell.federation.config.canonical_json)
            run = {key: value for key, value in config["run"].items() if key not in ("seed", "method")}
            clients = {name: str(client) for name, client in result.cell.federation.clients.items()}
            rest = {key: value for key, value in config.items() if key not in ("run", "method")}
            found.add(json.dumps([run, clients, rest], sort_keys=True))
    return found
