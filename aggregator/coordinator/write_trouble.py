"""Failed writes, for people who ask why a run waits.

A full disk refuses uploads, results and history, each on its own, and every writer tries again until it works. Here the
last failure is remembered until the same kind of writing works again, or has not been tried for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shared.errors import StoreUnavailable
from shared.process.log import get_logger
from shared.reasons import StoreFails

log = get_logger(__name__)

FORGET_AFTER_S = 60.0
"""Seconds that a failure counts without another attempt; trainers and the aggregation try every few seconds."""


class WriteTrouble:
    """Failed kinds of writing; any thread may ask."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin without trouble; the clock is a monotonic one."""
        self._clock = clock
        self._trouble: dict[str, tuple[float, str]] = {}

    @contextmanager
    def writing(self, what: str, *, is_proof: bool = True) -> Iterator[None]:
        """Watch a block that writes something of this kind.

        Args:
            what: The kind.
            is_proof: Whether success shows that this works again; to open a file shows nothing, a full disk allows it.
        """
        try:
            yield
        except StoreUnavailable as error:
            if what not in self._trouble:
                log.error(
                    "storage_fails", what=what, detail=error.detail, hint="make room; what waits goes on by itself"
                )
            self._trouble[what] = self._clock(), error.detail
            raise
        if is_proof and self._trouble.pop(what, None) is not None:
            log.info("storage_works_again", what=what)

    def reason(self) -> StoreFails | None:
        """Why a run cannot go on now; None if nothing fails."""
        last = max(self._trouble.values(), default=None)
        if last is None or self._clock() - last[0] > FORGET_AFTER_S:
            return None
        return StoreFails(last[1])
