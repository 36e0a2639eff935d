"""The disk: what is stored, what was collected, and how much room is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from aggregator.metrics.families import AtScrape, Families
from shared.process.metrics import PREFIX


class Disk(AtScrape):
    """The file system of the state directory, asked when it is scraped; without values where it does not answer."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def follow(self, folder: Path) -> None:
        """Show the file system that this folder is on."""
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """The values now."""
        free = GaugeMetricFamily(f"{PREFIX}_data_free_bytes", "Room left on the file system of the state directory.")
        size = GaugeMetricFamily(f"{PREFIX}_data_size_bytes", "Size of the file system of the state directory.")
        try:
            found = os.statvfs(self._folder) if self._folder is not None else None
        except OSError:
            found = None
        if found is not None:
            free.add_metric((), found.f_bavail * found.f_frsize)  # what is kept for root is no room
            size.add_metric((), found.f_blocks * found.f_frsize)
        yield from (free, size)


class StorageMetrics:
    """What is stored, and the room for it."""

    def __init__(self, families: Families) -> None:
        self._blob_bytes = families.gauge(
            "blob_bytes", "Stored models and prototypes after the last collection of garbage."
        )
        self._blobs_collected = families.counter(
            "blobs_collected_total", "Blobs that were removed because nothing needed them."
        )
        self._bytes_collected = families.counter("collected_bytes_total", "Bytes that collections of garbage freed.")
        self.disk = Disk()
        families.registry.register(self.disk)

    def kept(self, num_bytes: int) -> None:
        """Show how much is stored that is needed."""
        self._blob_bytes.set(num_bytes)

    def collected(self, num_blobs: int, num_bytes: int) -> None:
        """Count what a collection of garbage removed."""
        self._blobs_collected.inc(num_blobs)
        self._bytes_collected.inc(num_bytes)
