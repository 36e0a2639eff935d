"""Metrics of certificates: the end of each and its life, so that an alert can tell how much of it is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedplcc.shared.process.metrics import PREFIX

LABELS = ("role", "client")


@dataclass(frozen=True, slots=True)
class CertificateSpan:
    """A certificate as metrics show it."""

    role: str
    """Role of its holder."""
    client: str
    """Name of a client; empty for other roles."""
    ends_at: float
    """End in seconds since the epoch."""
    life_s: float
    """Seconds from its issue to its end."""


def _nothing() -> Iterable[CertificateSpan]:
    return ()


class CertificateMetrics(Collector):
    """Series of certificates, read at each scrape; none before `follow`, and none where plain text is spoken."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._spans: Callable[[], Iterable[CertificateSpan]] = _nothing
        registry.register(self)

    def follow(self, spans: Callable[[], Iterable[CertificateSpan]]) -> None:
        """Set the function that returns the certificates to show; any thread calls it, at each scrape."""
        self._spans = spans

    def describe(self) -> Iterable[Metric]:
        """Yield the families without a value."""
        return self._families()

    def collect(self) -> Iterator[Metric]:
        """Yield the present values."""
        ends, lives = self._families()
        for span in self._spans():
            labels = (span.role, span.client)
            ends.add_metric(labels, span.ends_at)
            lives.add_metric(labels, span.life_s)
        yield from (ends, lives)

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        ends = GaugeMetricFamily(
            f"{PREFIX}_certificate_expiry_timestamp_seconds",
            "End of the newest certificate by role, and of each client that has series; of other holders the one that "
            "ends first.",
            labels=LABELS,
        )
        lives = GaugeMetricFamily(
            f"{PREFIX}_certificate_life_seconds",
            "Seconds from the issue of that certificate to its end.",
            labels=LABELS,
        )
        return ends, lives
