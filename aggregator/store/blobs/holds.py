"""Which blobs a collection of garbage must leave alone: those that somebody is just putting away, before a row names them.

A blob is on the disk before a row names it. Between the two nothing says that it is wanted, the less so where the same bytes
lay there before as garbage. So whoever puts blobs away does it within `holding`, until the rows are written:

    with holds.holding():
        holds.take(name)    # waits while a collection removes the blob of this name; from here on none does
        ...                 # is it on the disk? else put it there
        ...                 # a transaction names it

and a collection, which decides what is needed from rows that it has read, takes for needed whatever was held since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Holds:
    """Names of blobs that are being put away or taken away. Methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held: list[set[str]] = []
        self._mine = threading.local()
        self._leaving: set[str] = set()
        self._held_since: set[str] | None = None

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Hold what this thread takes within the block until its end, by which rows must name what is wanted."""
        if getattr(self._mine, "names", None) is not None:
            yield  # within another block, which lasts longer
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
        """Hold a blob; waits while it is being removed, which is a matter of milliseconds."""
        names: set[str] | None = getattr(self._mine, "names", None)
        with self._changed:
            self._changed.wait_for(lambda: name not in self._leaving)
            if names is not None:
                names.add(name)
            elif self._held_since is not None:
                self._held_since.add(name)

    @contextmanager
    def reading(self, name: str) -> Iterator[bool]:
        """Keep a blob for a reader until the block ends, on whatever threads; gives whether it is not leaving already."""
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
        """The time of one collection, from before it reads the first row; there is one at a time."""
        with self._changed:
            self._held_since = set()
        try:
            yield
        finally:
            with self._changed:
                self._held_since = None

    def claim(self, names: Iterable[str]) -> list[str]:
        """Of these the ones that nobody holds or held since the collection began; they wait for `release`."""
        with self._changed:
            assert self._held_since is not None, "only a collection claims"
            held = self._held_since.union(*self._held)
            claimed = [name for name in names if name not in held]
            self._leaving.update(claimed)
            return claimed

    def release(self, names: Iterable[str]) -> None:
        """Say that claimed blobs are gone, or stay after all."""
        with self._changed:
            self._leaving.difference_update(names)
            self._changed.notify_all()
