"""The dashboards of deploy/grafana as tests read them: their queries, and the metrics and labels in those."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness import ROOT

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
OF_SCRAPE = frozenset({"job", "instance", "client"})
"""Labels that Prometheus adds, by its configuration."""

_NAME = re.compile(r"\b(?:fedplcc|grpc|process)_\w+")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Query:
    """What a panel or a variable asks Prometheus."""

    dashboard: str
    title: str
    expression: str
    legend: str = ""

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the series that it reads."""
        matched = _GROUPING.sub("", _MATCHERS.sub("", self.expression))
        return frozenset(_NAME.findall(matched))

    @property
    def labels(self) -> frozenset[str]:
        """Labels of those that it names."""
        names = {name for matchers in _MATCHERS.findall(self.expression) for name in _MATCHER.findall(matchers)}
        for grouping in _GROUPING.findall(self.expression):
            names.update(name.strip() for name in grouping.split(","))
        return frozenset(names | set(_LEGEND.findall(self.legend))) - OF_SCRAPE


def documents() -> dict[Path, dict[str, Any]]:
    """Every dashboard by its file."""
    return {path: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def queries() -> list[Query]:
    """Every query of every dashboard."""
    return [query for path, document in documents().items() for query in _queries(path.name, document)]


def _queries(name: str, document: dict[str, Any]) -> Iterator[Query]:
    for variable in document["templating"]["list"]:
        metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        yield Query(name, variable["name"], metric, f"{{{{{label}}}}}")
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield Query(name, panel["title"], target["expr"], target["legendFormat"])
