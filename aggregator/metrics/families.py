"""Makes metrics: all with the project's prefix, in one registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shared.process.metrics import PREFIX


class Families:
    """The metrics of one registry; names are given without the prefix."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A number that only grows; its name ends in `_total`."""
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A number that goes up and down."""
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        """How often a number lay below each of some bounds."""
        return Histogram(f"{PREFIX}_{name}", text, labels, registry=self.registry, buckets=buckets)


class AtScrape(Collector):
    """Metrics whose values are looked up when they are scraped; `collect` names all of them also while it has no value."""

    def describe(self) -> Iterable[Metric]:
        """Which metrics these are, so that the registry refuses a second one of a name, and finds them by it."""
        return self.collect()
