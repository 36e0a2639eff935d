"""Prometheus metrics of the aggregator. Every known label combination exists from the start.

deploy/metrics.md explains each metric; a test compares it with this package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from fedplcc.aggregator.metrics.calls import CallMetrics
from fedplcc.aggregator.metrics.clients import MAX_CLIENTS, ClientMetrics
from fedplcc.aggregator.metrics.disk import DiskMetrics
from fedplcc.aggregator.metrics.families import Families
from fedplcc.aggregator.metrics.members import MemberMetrics
from fedplcc.aggregator.metrics.outcomes import Outcomes
from fedplcc.aggregator.metrics.rounds import RoundMetrics
from fedplcc.aggregator.metrics.runs import RunMetrics
from fedplcc.aggregator.metrics.transfers import TransferMetrics

__all__ = ["AggregatorMetrics"]


class AggregatorMetrics:
    """All metrics of the aggregator."""

    def __init__(self, registry: CollectorRegistry, *, max_clients: int = MAX_CLIENTS) -> None:
        """Create the metrics.

        Args:
            max_clients: Most clients with series of their own; 0 for none.
        """
        families = Families(registry)
        self.rounds = RoundMetrics(families)
        self.runs = RunMetrics(families, self.rounds)
        self.clients = ClientMetrics(families, max_clients)
        self.outcomes = Outcomes(families)
        self.transfers = TransferMetrics(families)
        self.disk = DiskMetrics(families)
        self.calls = CallMetrics(families)
        self.members = MemberMetrics(families)
        self._recoveries = families.counter(
            "recoveries_total", "Starts at which open runs were found and taken up again."
        )

    def set_clocks(self, *, now: Callable[[], float], monotonic_clock: Callable[[], float], folder: Path) -> None:
        """Set the clocks and the folder that metrics are measured with."""
        self.runs.use_clock(now)
        self.clients.series.use_clock(monotonic_clock)
        self.disk.file_system.follow(folder)

    def recovered(self) -> None:
        """Count a start with open runs."""
        self._recoveries.inc()
