"""Write the tables of deploy/metrics.md from what the three processes register, or with --check say if they are current.

python -m docs.site.metrics [--check]

The text around the tables is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.shared.process.metrics import new_registry
from fedplcc.trainer.readings.metrics import TrainerMetrics

DOCUMENT = Path(__file__).parents[2] / "deploy" / "metrics.md"
MAX_VALUES = 24
"""A label with more values than this is named without them."""
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def registries() -> dict[str, CollectorRegistry]:
    """Metrics that each process registers when it starts, by process."""
    aggregator, trainer = new_registry("aggregator"), new_registry("trainer")
    AggregatorMetrics(aggregator)
    TrainerMetrics(trainer)
    return {"aggregator": aggregator, "gateway": GatewayMetrics().registry, "trainer": trainer}


def rewritten(text: str) -> str:
    """The document with its tables as they should be."""
    found = registries()
    return _TABLE.sub(lambda match: match[1] + table(found[match[2]]) + match[3], text)


def table(registry: CollectorRegistry) -> str:
    """One row for each metric of a registry, by name; what the library tells of any process depends on the system."""
    rows = {family.name: _row(family, labels) for family, labels in families(registry)}
    ours = [rows[name] for name in sorted(rows) if not name.startswith("process_")]
    return "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n" + "".join(ours)


def families(registry: CollectorRegistry) -> Iterator[tuple[Metric, tuple[str, ...]]]:
    """Every metric with its labels, which the library keeps to itself until there is a sample."""
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels: Any = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            yield family, tuple(labels)


def _row(family: Metric, labels: tuple[str, ...]) -> str:
    name = family.name + ("_total" if family.type == "counter" else "")
    told = ", ".join(_label(family, label) for label in labels)
    return f"| `{name}` | {family.type} | {told} | {family.documentation} |\n"


def _label(family: Metric, label: str) -> str:
    values = sorted({sample.labels[label] for sample in family.samples if label in sample.labels} - {""})
    # What a version or a service is called now is no part of what the label means.
    if label in ("version", "service") or not 0 < len(values) <= MAX_VALUES:
        return f"`{label}`"
    return f"`{label}`: {' '.join(values)}"


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(prog="python -m docs.site.metrics", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the tables are not current")
    text = DOCUMENT.read_text(encoding="utf-8")
    current = rewritten(text)
    if not parser.parse_args().check:
        DOCUMENT.write_text(current, encoding="utf-8")
    elif text != current:
        sys.exit("deploy/metrics.md is not current; run `python -m docs.site.metrics`")


if __name__ == "__main__":
    main()
