"""Readings of a trainer, gathered from their sources for heartbeats and /metrics.

Gathering takes microseconds and never fails. Names and bounds are those of shared/readings.py. A reading that cannot be
measured, or is impossible, is left out and logged once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from fedplcc.shared.process.log import get_logger
from fedplcc.shared.readings import PROCESS_RESIDENT_BYTES, READINGS

Source = Callable[[], Mapping[str, float]]
"""Returns present readings by name; must be quick, because every heartbeat and every scrape calls it."""

log = get_logger("fedplcc.trainer.readings.gathering")


class Readings:
    """Readings of several sources; any thread may call it."""

    def __init__(self, **sources: Source) -> None:
        """Prepare to gather from these sources; their names are for the log."""
        self._sources = sources
        self._missing: set[str] = set()

    def __call__(self) -> dict[str, float]:
        """Return the present readings, all within their bounds."""
        readings: dict[str, float] = {}
        for name, source in self._sources.items():
            try:
                readings.update(source())
            except Exception as error:  # whatever it is: no reading may stop a heartbeat
                self._leave_out(name, f"{type(error).__name__}: {error}")
        for name in [name for name, value in readings.items() if not _is_possible(name, value)]:
            self._leave_out(name, f"{readings.pop(name)} is impossible")
        return readings

    def _leave_out(self, name: str, reason: str) -> None:
        if name not in self._missing:
            self._missing.add(name)
            log.warning("reading_missing", reading=name, reason=reason)


def none() -> dict[str, float]:
    """Return no readings, for a trainer whose owner sends none."""
    return {}


def process_readings() -> dict[str, float]:
    """Return the memory of this process; nothing where there is no /proc."""
    try:
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return {}
    return {PROCESS_RESIDENT_BYTES.name: float(resident_pages * os.sysconf("SC_PAGE_SIZE"))}


def _is_possible(name: str, value: float) -> bool:
    reading = READINGS.get(name)
    return reading is not None and reading.is_possible(value)
