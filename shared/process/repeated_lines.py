"""Lines that a caller could make a service write without end: one a minute for each caller, subject and reason.

The others of the minute are at level debug, and a line says afterwards how many there were. Memory and log are bounded
whatever strangers do: of one caller at most `MOST_OF_A_CALLER` kinds of lines are told apart, and of all `MOST_KINDS`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from structlog.stdlib import BoundLogger

BETWEEN_S = 60.0
"""Time within which a line is not repeated."""
MOST_OF_A_CALLER = 16
"""Kinds of lines of one caller that are told apart."""
MOST_KINDS = 4096
"""Kinds of lines that are told apart."""
CRASHES = "crashes"
"""Caller of the lines about bugs, whoever met them: their tracebacks are the same."""
OTHERS = "others"
"""Subject, or caller, of those beyond."""


class Kind(NamedTuple):
    """Lines that say the same."""

    caller: str
    subject: str
    """What was called."""
    reason: str


@dataclass(slots=True)
class _Counted:
    """Lines of one kind within a minute."""

    ends_at: float
    left_out: int = 0


class RepeatedLines:
    """What was written in the last minute; used by one thread."""

    def __init__(self, log: BoundLogger, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing.

        Args:
            log: Where it is said how many lines were left out.
            clock: The steady clock, in seconds.
        """
        self._log, self._clock = log, clock
        self._counted: dict[Kind, _Counted] = {}
        self._num_kinds: Counter[str] = Counter()

    def level(self, level: int, caller: str, subject: str, reason: str) -> int:
        """Return the level of a line: the given one for the first of its kind, debug for the others of the minute."""
        self.say_what_was_left_out()
        if level <= logging.DEBUG:
            return level
        kind = self._kind(Kind(caller, subject, reason))
        counted = self._counted.get(kind)
        if counted is not None:
            counted.left_out += 1
            return logging.DEBUG
        self._counted[kind] = _Counted(self._clock() + BETWEEN_S)
        self._num_kinds[kind.caller] += 1
        return level

    def say_what_was_left_out(self) -> None:
        """Write a line for each kind of which more lines than one came, once its minute has ended."""
        while self._counted:
            kind, counted = next(iter(self._counted.items()))  # the oldest
            if self._clock() < counted.ends_at:
                return
            del self._counted[kind]
            self._num_kinds[kind.caller] -= 1
            if not self._num_kinds[kind.caller]:
                del self._num_kinds[kind.caller]
            if counted.left_out:
                self._log.warning("lines_left_out", count=counted.left_out, **kind._asdict())

    def _kind(self, kind: Kind) -> Kind:
        if kind in self._counted:
            return kind
        if len(self._counted) >= MOST_KINDS:
            return Kind(OTHERS, OTHERS, OTHERS)
        return Kind(kind.caller, OTHERS, OTHERS) if self._num_kinds[kind.caller] >= MOST_OF_A_CALLER else kind
