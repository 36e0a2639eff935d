"""Settings of the C library's allocator for processes that move megabytes in pieces: freed memory is used again."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

KEPT_BYTES = 16 << 20
"""Freed memory at the end of each heap of the C library that the process keeps."""
LARGE_BYTES = 4 << 20
"""Allocations from this size on are mapped by the kernel and returned to it; a chunk of a transfer is smaller."""
HEAPS = 2
"""Heaps of all threads. The C library has eight for each processor otherwise, and what one keeps free no other uses."""

KEPT_IN_A_PASS = 1 << 30
"""Both thresholds during a pass over images: a layer of 16 images of 224 pixels has 77 MB."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""From malloc.h of the GNU C library."""


def keep_freed_memory() -> None:
    """Let the C library keep a little freed memory, for processes that transfer.

    With its defaults every message of half a megabyte gets fresh pages, and touching them first costs ten times the copying.
    C libraries without `mallopt` are left alone.
    """
    _set_thresholds(KEPT_BYTES, LARGE_BYTES)


@contextmanager
def large_memory_kept() -> Iterator[None]:
    """Within the block, let the C library keep all freed memory; after it what is free goes back to the kernel.

    A convolution on many pixels otherwise gets each output's pages from the kernel, zeroed: more time than its arithmetic.
    """
    _set_thresholds(KEPT_IN_A_PASS, KEPT_IN_A_PASS)
    try:
        yield
    finally:
        keep_freed_memory()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _set_thresholds(kept_bytes: int, large_bytes: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, HEAPS)
        mallopt(_M_TRIM_THRESHOLD, kept_bytes)
        mallopt(_M_MMAP_THRESHOLD, large_bytes)
