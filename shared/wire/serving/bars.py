"""Times for which callers may not connect: longer each time, until they have behaved for an hour."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FIRST_S, MOST_S = 10.0, 640.0
"""The first time, doubled with each further one, and the longest."""
REMEMBERED_S = 3600.0
"""Time after the end of a bar in which the next one is longer."""
MOST_BARRED = 256
"""Callers that are remembered; beyond it the one that was barred longest ago is forgotten."""


@dataclass(frozen=True, slots=True)
class _Bar:
    """The last bar of a caller."""

    ends_at: float
    seconds: float


class Bars:
    """Callers that may not connect for some time; used by one thread."""

    def __init__(self, steady: Callable[[], float]) -> None:
        """Begin with nobody; `steady` is the steady clock, in seconds."""
        self._steady = steady
        self._bars: OrderedDict[str, _Bar] = OrderedDict()

    def begin(self, who: str) -> float:
        """Bar a caller; returns for how many seconds."""
        now, before = self._steady(), self._bars.pop(who, None)
        is_again = before is not None and now - before.ends_at < REMEMBERED_S
        seconds = min(2 * before.seconds, MOST_S) if before is not None and is_again else FIRST_S
        self._bars[who] = _Bar(now + seconds, seconds)
        if len(self._bars) > MOST_BARRED:
            self._bars.popitem(last=False)
        return seconds

    def wait_s(self, who: str) -> float:
        """Return the seconds until a caller may connect; 0 if it may."""
        found = self._bars.get(who)
        return 0.0 if found is None else max(0.0, found.ends_at - self._steady())

    def current(self) -> tuple[str, ...]:
        """Return who may not connect now."""
        return tuple(who for who in self._bars if self.wait_s(who))
