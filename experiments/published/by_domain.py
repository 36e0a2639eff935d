"""Table of how near the baseline comes to its published accuracies, domain by domain, on several data sets.

Amounts, sizes and changes of images move all methods alike, so the baseline's domains tell which of them a paper meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.published.accuracies import PublishedTable
from experiments.published.beside_ours import ours_of
from experiments.published.names import baseline_of, name_of
from fedplcc.comparison.outcomes import MEAN
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Line, Paragraph, Part, Table, Value
from fedplcc.comparison.report.tables import NOTHING, points_text


@dataclass(frozen=True, slots=True)
class DomainDifferences:
    """The baseline's accuracies on a data set minus its published ones; points.

    Attributes:
        domains: By column of the published table.
        means: The same of the columns of means.
    """

    domains: Mapping[str, float]
    means: Mapping[str, float]

    @property
    def largest(self) -> float:
        """The largest difference of a domain, without its sign."""
        return max(map(abs, self.domains.values()))

    @property
    def nearness(self) -> tuple[float, float]:
        """What data sets are ordered by: the largest difference of a domain, then that of the mean."""
        return self.largest, max(map(abs, self.means.values()), default=0.0)


def domain_table(findings: Findings, readings: Sequence[str], table: PublishedTable) -> Iterator[Part]:
    """Yield the baseline's differences on several data sets, the nearest first; nothing where the table has no domains."""
    comparison, baseline = findings.comparison, baseline_of(findings.comparison, table)
    if baseline is None or len(table.domains) < 2:
        return
    found = {
        name: near for name in readings if (near := domain_differences(findings, name, baseline, table)) is not None
    }
    if not found:
        return
    lines = []
    for name, near in sorted(found.items(), key=lambda item: item[1].nearness):
        points = {**near.domains, **near.means}
        texts = [points_text(points[column]) if column in points else NOTHING for column in table.columns]
        texts.append(f"{near.largest:.1f}")
        lines.append(Line(comparison.label_of_dataset(name), tuple(map(Value, texts))))
    yield Table(
        caption=f"{comparison.label_of_row(baseline)}: points between ours and the published accuracies ({table.title})",
        heads=("", *table.labels, "largest of a domain"),
        lines=tuple(lines),
    )
    missing = [comparison.label_of_dataset(name) for name in readings if name not in found]
    if missing:
        yield Paragraph(f"Not trained yet: {'; '.join(missing)}.")


def domain_differences(
    findings: Findings, dataset: str, baseline: str, table: PublishedTable
) -> DomainDifferences | None:
    """Return how near a row comes to a published table on a data set; None where no cell of it is trained.

    The accuracies are those of the table's view, means over the seeds that there are.
    """
    name, ours = name_of(findings.comparison, baseline, table), ours_of(findings.cells(dataset, baseline), table)
    published = None if name is None else table.of(name)
    if published is None or not ours:
        return None
    kinds = dict(zip(table.columns, table.kinds, strict=True))
    domains, means = dict[str, float](), dict[str, float]()
    for column, found in ours.items():
        of_kind = means if kinds[column][1] == MEAN else domains
        of_kind[column] = 100 * found.mean - published[column]
    return DomainDifferences(domains, means) if domains else None
