"""Creation of metrics with the project's prefix, in one registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedplcc.shared.process.metrics import PREFIX


class Families:
    """Factory of one registry's metrics; names are given without the prefix."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Create a counter; its name ends in `_total`."""
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Create a gauge."""
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """Create a histogram with these bucket bounds."""
        return Histogram(f"{PREFIX}_{name}", text, labels, registry=self.registry, buckets=buckets)


class AtScrape(Collector):
    """Metrics computed at each scrape; `collect` yields every family, also without a value."""

    def describe(self) -> Iterable[Metric]:
        """Yield the families, so that the registry finds them by name and refuses a second one of a name."""
        return self.collect()
