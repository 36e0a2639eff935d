"""Holds: blobs that garbage collection must not remove although no row names them yet.

A blob is on the disk before a row names it. In between it looks like garbage, and may have been garbage before. A thread
that stores blobs therefore holds them until their rows are written:

    with holds.holding():
        holds.take(name)    # waits while the blob is being removed; from here on it stays
        ...                 # store it, unless it is on the disk
        ...                 # a transaction names it

Garbage collection decides from rows that it has read, and also spares every blob that was held since it began.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Holds:
    """Names of blobs that are being stored, read or removed. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: list[set[str]] = []
        self._mine = threading.local()
        self._leaving: set[str] = set()
        self._held_since: set[str] | None = None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold the blobs that this thread takes within the block until its end, when rows must name them."""
        if getattr(self._mine, "names", None) is not None:
            yield  # an outer block of this thread holds them
            return
        names: set[str] = set()
        with self._changed:
            self._held.append(names)
        self._mine.names = names
        try:
            yield
        finally:
            self._mine.names = None
            with self._changed:
                self._held = [held for held in self._held if held is not names]
                if self._held_since is not None:
                    self._held_since |= names

    def take(self, name: str) -> None:
        """Hold a blob; waits for milliseconds while it is being removed."""
        names: set[str] | None = getattr(self._mine, "names", None)
        with self._changed:
            self._changed.wait_for(lambda: name not in self._leaving)
            if names is not None:
                names.add(name)
            elif self._held_since is not None:
                self._held_since.add(name)

    @contextmanager
    def reading(self, name: str) -> Iterator[bool]:
        """Hold a blob for a reader until the block ends, on any thread; yields False if it is being removed already."""
        names = {name}
        with self._changed:
            is_kept = name not in self._leaving
            self._held.append(names)
        try:
            yield is_kept
        finally:
            with self._changed:
                self._held = [held for held in self._held if held is not names]

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Mark one garbage collection, from before it reads its first row; only one runs at a time."""
        with self._changed:
            self._held_since = set()
        try:
            yield
        finally:
            with self._changed:
                self._held_since = None

    def claim(self, names: Iterable[str]) -> list[str]:
        """Return and claim the names without a hold since the collection began; `take` waits for their `release`."""
        with self._changed:
            assert self._held_since is not None, "only a collection claims"
            held = self._held_since.union(*self._held)
            claimed = [name for name in names if name not in held]
            self._leaving.update(claimed)
            return claimed

    def release(self, names: Iterable[str]) -> None:
        """End the claim on blobs, removed or not."""
        with self._changed:
            self._leaving.difference_update(names)
            self._changed.notify_all()
