"""The dashboards of deploy/grafana as tests read them: their queries, and the metrics and labels in those."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from tests.support import ROOT

FOLDER = ROOT / "deploy" / "grafana" / "dashboards"
OF_SCRAPE = frozenset({"job", "instance", "client"})
"""Labels that Prometheus adds, by its configuration."""
OF_PROMETHEUS: Mapping[str, frozenset[str]] = {
    "up": frozenset(),
    "scrape_duration_seconds": frozenset(),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
}
"""Series that Prometheus makes by itself, and their labels."""

_NAME = re.compile(r"\b(?:(?:fedplcc|grpc|process)_\w+|up|scrape_duration_seconds|ALERTS)\b")
_MATCHERS = re.compile(r"\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def metrics_in(expression: str) -> frozenset[str]:
    """Names of the series that an expression reads."""
    return frozenset(_NAME.findall(_GROUPING.sub("", _MATCHERS.sub("", expression))))


def labels_in(expression: str, legend: str = "") -> frozenset[str]:
    """Labels that it, or the text made of what it gives, names, but for those that every scrape has."""
    names = {name for matchers in _MATCHERS.findall(expression) for name in _MATCHER.findall(matchers)}
    for grouping in _GROUPING.findall(expression):
        names.update(name.strip() for name in grouping.split(",") if name.strip())
    return frozenset(names | set(_LEGEND.findall(legend))) - OF_SCRAPE


@dataclass(frozen=True, slots=True)
class Query:
    """Query of a panel, a variable or an annotation to Prometheus."""

    dashboard: str
    title: str
    expression: str
    legend: str = ""
    ref: str = "A"
    kind: Literal["panel", "variable", "annotation"] = "panel"
    is_instant: bool = False

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the series that it reads."""
        return metrics_in(self.expression)

    @property
    def labels(self) -> frozenset[str]:
        """Labels of those that it names."""
        return labels_in(self.expression, self.legend)

    @property
    def variables(self) -> frozenset[str]:
        """Names of the dashboard's and of Grafana's own variables in it."""
        return frozenset(first or second for first, second in _VARIABLE.findall(self.expression))

    def filled(self, values: Mapping[str, str]) -> str:
        """The expression as Grafana sends it, with these values of its variables."""
        return _VARIABLE.sub(lambda found: values[found[1] or found[2]], self.expression)


@lru_cache
def documents() -> dict[Path, dict[str, Any]]:
    """Every dashboard by its file."""
    return {path: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def queries() -> list[Query]:
    """Every query of every dashboard."""
    return [query for path, document in documents().items() for query in _queries(path.name, document)]


def of_panel(dashboard: str, panel: Mapping[str, Any]) -> list[Query]:
    """Queries of one panel."""
    return [
        Query(
            dashboard,
            panel["title"],
            target["expr"],
            target["legendFormat"],
            target["refId"],
            is_instant=target.get("instant", False),
        )
        for target in panel.get("targets", ())
    ]


def _queries(name: str, document: dict[str, Any]) -> Iterator[Query]:
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = asked_of_variable(variable)
            yield Query(name, variable["name"], metric, f"{{{{{label}}}}}", kind="variable")
    for each in document["annotations"]["list"]:
        text = f"{each['titleFormat']} {each['textFormat']}"
        yield Query(name, each["name"], each["expr"], text, kind="annotation")
    for panel in document["panels"]:
        yield from of_panel(name, panel)


def asked_of_variable(variable: Mapping[str, Any]) -> tuple[str, str]:
    """Metric and label whose values a variable offers."""
    found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
    assert found is not None, variable["query"]
    return found[1], found[2]
