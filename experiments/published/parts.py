"""The parts that published numbers add to a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.published.beside_ours import published_comparison
from experiments.published.distances import distance_tables
from experiments.published.gaps import gap_tables
from experiments.published.names import tables_of
from experiments.published.signs import sign_tables
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.document import Part
from fedplcc.comparison.report.parts import Additions


def _of_group(findings: Findings, dataset: str, group: str, rows: Sequence[str]) -> Iterator[Part]:
    yield from published_comparison(findings, dataset, group, rows)
    yield from gap_tables(findings, dataset, group, rows)
    yield from sign_tables(findings, dataset, group, rows)


def _domain_labels(findings: Findings, dataset: str) -> Mapping[str, str]:
    """Labels of domains in the order of the published tables; the first table that has one names it."""
    labels: dict[str, str] = {}
    for table in tables_of(findings.comparison, dataset):
        for domain, label in table.domains.items():
            labels.setdefault(domain, label)
    return labels


PUBLISHED = Additions(of_group=_of_group, of_all=distance_tables, domain_labels=_domain_labels)
