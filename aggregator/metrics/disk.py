"""Metrics of the disk: stored bytes, removed garbage, free space."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fedplcc.aggregator.metrics.families import AtScrape, Families
from fedplcc.shared.process.metrics import PREFIX


class FileSystem(AtScrape):
    """Free space and size of the state directory's file system, read at each scrape; no values if that fails."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def follow(self, folder: Path) -> None:
        """Set the folder whose file system is shown."""
        self._folder = folder

    def collect(self) -> Iterator[Metric]:
        """Yield the present values."""
        free = GaugeMetricFamily(f"{PREFIX}_data_free_bytes", "Free space on the file system of the state directory.")
        size = GaugeMetricFamily(f"{PREFIX}_data_size_bytes", "Size of the file system of the state directory.")
        try:
            found = os.statvfs(self._folder) if self._folder is not None else None
        except OSError:
            found = None
        if found is not None:
            free.add_metric((), found.f_bavail * found.f_frsize)  # without the blocks reserved for root
            size.add_metric((), found.f_blocks * found.f_frsize)
        yield from (free, size)


class DiskMetrics:
    """Metrics of stored blobs and free space."""

    def __init__(self, families: Families) -> None:
        self._blob_bytes = families.gauge("blob_bytes", "Bytes of stored models and prototypes that something needs.")
        self._garbage_blobs = families.gauge("garbage_blobs", "Blobs that nothing needs and that are not removed yet.")
        self._garbage_bytes = families.gauge("garbage_bytes", "Bytes of the blobs that wait for their removal.")
        self._blobs_collected = families.counter("blobs_collected_total", "Blobs removed because nothing needed them.")
        self._bytes_collected = families.counter("collected_bytes_total", "Bytes freed by garbage collections.")
        self.file_system = FileSystem()
        families.registry.register(self.file_system)

    def kept(self, num_bytes: int) -> None:
        """Set the bytes of the blobs that are kept."""
        self._blob_bytes.set(num_bytes)

    def waiting(self, num_blobs: int, num_bytes: int) -> None:
        """Set the number and the bytes of the blobs that wait for their removal."""
        self._garbage_blobs.set(num_blobs)
        self._garbage_bytes.set(num_bytes)

    def collected(self, num_blobs: int, num_bytes: int) -> None:
        """Count the blobs and bytes that a garbage collection removed."""
        self._blobs_collected.inc(num_blobs)
        self._bytes_collected.inc(num_bytes)
