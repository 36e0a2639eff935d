"""Memory that is used again instead of being given back and asked for anew, for processes that move megabytes in pieces."""

from __future__ import annotations

import ctypes

KEPT_BYTES = 16 << 20
"""Free memory at the end of each of the C library's heaps that stays with the process."""
LARGE_BYTES = 4 << 20
"""An allocation of this size is the kernel's at once and goes back to it; a chunk of a transfer is smaller."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""


def keep_freed_memory() -> None:
    """Let the C library keep a little of what is freed, for processes that transfer.

    With its defaults every message of half a megabyte is made in fresh pages, whose first touch costs ten times the copying.
    Other C libraries, without `mallopt`, keep their ways.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
