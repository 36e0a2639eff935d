"""The most anonymous memory that a process has: what it asked for itself, without the files that the kernel keeps for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

POLL_S = 0.004
"""Shorter than any block of work; a peak between two looks is missed."""


class PeakMemory:
    """Watches a process within a block; `extra_mib` is the peak above what it had at the beginning."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._start = self._peak = 0

    def __enter__(self) -> Self:
        self._start = self._peak = self._read()
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    @property
    def peak_mib(self) -> float:
        """MiB at the peak."""
        return self._peak / 1024

    @property
    def extra_mib(self) -> float:
        """MiB at the peak beyond those at the beginning."""
        return (self._peak - self._start) / 1024

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_S):
            self._peak = max(self._peak, self._read())

    def _read(self) -> int:
        for line in self._status.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        return 0  # the process has ended
