"""The folder for state of tests that need not survive the machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_IN_MEMORY = Path("/dev/shm")


def memory_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder in memory, where the system has one.

    What a killed process leaves is the same on a disk. Only the fsyncs cost nothing, and thousands of them are most of the
    time of tests that restart an aggregator at every step.
    """
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None)
