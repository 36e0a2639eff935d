"""Failed writes to disk and database: the reason why a run waits.

On a full disk each write of uploads, results and history fails on its own, and its writer tries again. This module keeps the
last failure of each kind until a write of that kind succeeds, or until nobody has tried for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable
from shared.process.log import get_logger
from shared.reasons import StoreFails

log = get_logger(__name__)

FORGET_AFTER_S = 60.0
"""Seconds after which a failure without another attempt expires; trainers and the aggregation try every few seconds."""


class WriteTrouble:
    """Kinds of writes that fail; any thread may call it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start without failures; the clock is monotonic."""
        self._clock = clock
        self._trouble: dict[str, tuple[float, str]] = {}

    @contextmanager
    def writing(self, what: str, *, is_proof: bool = True) -> Iterator[None]:
        """Record whether a block of this kind of write fails.

        Args:
            what: The kind.
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

    def reason(self) -> StoreFails | None:
        """Return the reason why no run can continue now; None if nothing fails."""
        last = max(self._trouble.values(), default=None)
        if last is None or self._clock() - last[0] > FORGET_AFTER_S:
            return None
        return StoreFails(last[1])
