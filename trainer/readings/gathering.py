"""What a trainer tells of itself with its heartbeats and shows on /metrics, gathered from whoever measures it.

Being asked costs microseconds and never fails: the names and bounds are those of shared/readings.py, and what cannot be
measured, or comes out impossible, is left out and said once in the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from shared.process.log import get_logger
from shared.readings import PROCESS_RESIDENT_BYTES, READINGS

Source = Callable[[], Mapping[str, float]]
"""Gives the readings of the moment by name; quick, as it is asked for every heartbeat and every scrape."""

log = get_logger("trainer.readings.gathering")


class Readings:
    """The readings of some sources together; any thread may ask."""

    def __init__(self, **sources: Source) -> None:
        """Gather from these sources; their names are for the log."""
        self._sources = sources
        self._missing: set[str] = set()

    def __call__(self) -> dict[str, float]:
        """The readings of the moment, all of them possible."""
        readings: dict[str, float] = {}
        for name, source in self._sources.items():
            try:
                readings.update(source())
            except Exception as error:  # whatever it is: a reading is worth no heartbeat
                self._leave_out(name, f"{type(error).__name__}: {error}")
        for name in [name for name, value in readings.items() if not _is_possible(name, value)]:
            self._leave_out(name, f"{readings.pop(name)} is impossible")
        return readings

    def _leave_out(self, name: str, reason: str) -> None:
        if name not in self._missing:
            self._missing.add(name)
            log.warning("reading_missing", reading=name, reason=reason)


def none() -> dict[str, float]:
    """No readings: of a trainer that keeps them to itself."""
    return {}


def process_readings() -> dict[str, float]:
    """What this process takes of its host; nothing where /proc does not say."""
    try:
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return {}
    return {PROCESS_RESIDENT_BYTES.name: float(resident_pages * os.sysconf("SC_PAGE_SIZE"))}


def _is_possible(name: str, value: float) -> bool:
    reading = READINGS.get(name)
    return reading is not None and reading.is_possible(value)
