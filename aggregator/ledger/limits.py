"""Limits of the coordinator for trainers and runs."""

from __future__ import annotations

from dataclasses import dataclass

from fedplcc.aggregator.computation.fold import BLOCK_ELEMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for trainers and runs."""

    heartbeat_interval_s: float = 2.0
    lease_heartbeats: int = 5
    max_chunk_bytes: int = 1 << 20
    max_blob_bytes: int = 4 << 30
    max_inline_bytes: int = 256 << 10
    fold_block_elements: int = BLOCK_ELEMENTS
    max_classes: int = 10_000
    max_open_runs: int = 200
    max_open_runs_per_key: int = 100
    pending_days: float = 7.0

    @property
    def lease_s(self) -> float:
        """Seconds that a client id stays reserved after the last sign of life."""
        return self.heartbeat_interval_s * self.lease_heartbeats

    @property
    def stop_s(self) -> float:
        """Most seconds that a stopping run waits for its clients, which hear of the stop with their next heartbeat."""
        return 2 * self.lease_s
