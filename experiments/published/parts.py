"""The parts that published numbers add to a report."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.published.beside_ours import published_comparison
from experiments.published.names import tables_of
from fedplcc.comparison.reading import Findings
from fedplcc.comparison.report.parts import Additions


def _domain_labels(findings: Findings, dataset: str) -> Mapping[str, str]:
    """Labels of domains in the order of the published tables; the first table that has one names it."""
    labels: dict[str, str] = {}
    for table in tables_of(findings.comparison, dataset):
        for domain, label in table.domains.items():
            labels.setdefault(domain, label)
    return labels


PUBLISHED = Additions(of_group=published_comparison, domain_labels=_domain_labels)
