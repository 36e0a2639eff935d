"""Settings of the C library's allocator for processes that move megabytes in pieces: freed memory is used again."""

from __future__ import annotations

import ctypes

KEPT_BYTES = 16 << 20
"""Freed memory at the end of each heap of the C library that the process keeps."""
LARGE_BYTES = 4 << 20
"""Allocations from this size on are mapped by the kernel and returned to it; a chunk of a transfer is smaller."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""From malloc.h of the GNU C library."""


def keep_freed_memory() -> None:
    """Let the C library keep a little freed memory, for processes that transfer.

    With its defaults every message of half a megabyte gets fresh pages, and touching them first costs ten times the copying.
    C libraries without `mallopt` are left alone.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
