"""Failed writes to disk and database: the reason why a run waits.

On a full disk each write of uploads, results and history fails on its own, and its writer tries again. This module keeps the
last failure of each kind until a write of that kind succeeds, or until nobody has tried for a while. An announcement that
the disk has no room for is a trouble of its run alone: members choose what they announce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import StoreFails

log = get_logger(__name__)

FORGET_AFTER_S = 60.0
"""Seconds after which a failure without another attempt expires; trainers and the aggregation try every few seconds."""


class WriteTrouble:
    """Kinds of writes that fail; any thread may call it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without failures; the clock is monotonic."""
        self._clock = clock
        self._trouble: dict[str, tuple[float, str]] = {}
        self._no_room: dict[str, tuple[float, str]] = {}
        """The last announcement of each run that found no room."""

    @contextmanager
    def writing(self, what: str, *, is_proof: bool = True) -> Iterator[None]:
        """Record whether a block of this kind of write fails.

        Args:
            is_proof: Whether success ends the failure. Opening a file does not: it succeeds on a full disk.
        """
        try:
            yield
        except StoreUnavailable as error:
            if what not in self._trouble:
                log.error("storage_fails", what=what, detail=error.detail, hint="what waits goes on by itself")
            self._trouble[what] = self._clock(), error.detail
            raise
        if is_proof and self._trouble.pop(what, None) is not None:
            log.info("storage_works_again", what=what)

    @contextmanager
    def announcing(self, run_id: str) -> Iterator[None]:
        """Record whether a block finds no room for what a client of this run announces; no other run waits for that."""
        try:
            yield
        except StoreUnavailable as error:
            known = {name: each for name, each in self._no_room.copy().items() if self._is_recent(each)}
            if run_id not in known:
                log.warning("no_room_for_upload", run_id=run_id, detail=error.detail)
            self._no_room = known | {run_id: (self._clock(), error.detail)}
            raise
        self._no_room.pop(run_id, None)

    def reason(self, run_id: str = "") -> StoreFails | None:
        """Return the reason why a run, or without an id any run, cannot continue now; None if nothing fails."""
        found = [*self._trouble.values(), *filter(None, [self._no_room.get(run_id)])]
        last = max(found, default=None)
        return StoreFails(last[1]) if last is not None and self._is_recent(last) else None

    def _is_recent(self, failure: tuple[float, str]) -> bool:
        return self._clock() - failure[0] <= FORGET_AFTER_S
