"""The aggregator's Prometheus metrics, one module per idea. Every known label combination is there from the start.

What each means is in deploy/metrics.md, which a test compares with what is here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry

from aggregator.metrics.calls import CallMetrics
from aggregator.metrics.clients import MAX_CLIENTS, ClientMetrics
from aggregator.metrics.disk import StorageMetrics
from aggregator.metrics.families import Families
from aggregator.metrics.outcomes import Outcomes
from aggregator.metrics.rounds import RoundMetrics
from aggregator.metrics.runs import RunMetrics
from aggregator.metrics.transfers import TransferMetrics

__all__ = ["AggregatorMetrics"]


class AggregatorMetrics:
    """What the aggregator counts and measures."""

    def __init__(self, registry: CollectorRegistry, *, max_clients: int = MAX_CLIENTS) -> None:
        """Make the metrics.

        Args:
            registry: Where they are scraped.
            max_clients: Clients that have series of their own; 0 for none.
        """
        families = Families(registry)
        self.rounds = RoundMetrics(families)
        self.runs = RunMetrics(families, self.rounds)
        self.clients = ClientMetrics(families, max_clients)
        self.outcomes = Outcomes(families)
        self.transfers = TransferMetrics(families)
        self.storage = StorageMetrics(families)
        self.calls = CallMetrics(families)
        self._recoveries = families.counter(
            "recoveries_total", "Starts at which open runs were found and taken up again."
        )

    def attend(self, *, now: Callable[[], float], monotonic_clock: Callable[[], float], folder: Path) -> None:
        """Take what ages and room are measured against.

        Args:
            now: The clock of runs and rounds.
            monotonic_clock: That of the sessions.
            folder: The state directory.
        """
        self.runs.use_clock(now)
        self.clients.use_clock(monotonic_clock)
        self.storage.disk.follow(folder)

    def recovered(self) -> None:
        """Count a start at which there were open runs."""
        self._recoveries.inc()
