"""Log lines that sites let out, the newest few of each client. In memory only: they are gone when the aggregator ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fedplcc.shared.process.log import get_logger
from fedplcc.shared.site_logs import lets_out, told_line
from fedplcc.shared.types import ClientLog, Heartbeat, LogLevel, LogLine
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets

MOST_LINES = 200
"""Most lines that are kept of a client."""
LEAST_LINES = 20
"""Lines that are kept of each client, however many there are."""
LINES_OF_ALL = 20_000
"""Most lines that are kept of all clients, each of which has the same share."""
LINES_PER_S, BURST = 2.0, 100.0
"""Lines of a client that are taken in a second, and at once. A round has about four."""

log = get_logger("fedplcc.aggregator.presence.site_logs")


@dataclass(slots=True)
class _Kept:
    """What is kept of a client."""

    level: LogLevel
    lines: dict[float, tuple[int, LogLine]] = field(default_factory=dict)
    """Number and line by the line's time, the oldest first."""
    left_out: int = 0
    left_out_there: int = 0
    """Those that the trainer left out, by its own count."""


class SiteLogs:
    """Lines by client. Any thread may call a method; none of them waits."""

    def __init__(self, clock: Callable[[], float], wall_clock: Callable[[], float] = time.time) -> None:
        """Begin without a line.

        Args:
            clock: A steady clock, in seconds.
            wall_clock: Seconds since the epoch: numbers of lines go on after a restart.
        """
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._wall_clock, self._number = wall_clock, 0
        self._allowed = TokenBuckets(LINES_PER_S, BURST, clock)

    def heard(self, heartbeat: Heartbeat) -> None:
        """Keep the lines of a heartbeat, as far as they have the form and the level that they may have.

        A site that lets nothing out any more takes back what it let out before.
        """
        if heartbeat.log_level is None:
            return
        with self._lock:
            kept = self._kept.get(heartbeat.client_id)
            if kept is None or kept.level is not heartbeat.log_level:
                lines = {} if kept is None else kept.lines
                kept = _Kept(
                    heartbeat.log_level, {each: of for each, of in lines.items() if self._stays(of, heartbeat)}
                )
                self._kept[heartbeat.client_id] = kept
                self._trim()
            kept.left_out_there = max(kept.left_out_there, heartbeat.log_lines_left_out)
            for line in heartbeat.log_lines:
                self._take(heartbeat.client_id, kept, line)

    def of(self, client_id: str, *, after: int, level: LogLevel) -> ClientLog:
        """Return the lines of a client after a number, of a level or a graver one."""
        with self._lock:
            kept = self._kept.get(client_id)
            if kept is None:
                return ClientLog()
            lines = tuple(each for each in kept.lines.values() if each[0] > after and lets_out(level, each[1].level))
            return ClientLog(level=kept.level, lines=lines, left_out=kept.left_out + kept.left_out_there)

    def forget(self, client_id: str) -> None:
        """Forget a client's lines."""
        with self._lock:
            self._kept.pop(client_id, None)

    @staticmethod
    def _stays(kept: tuple[int, LogLine], heartbeat: Heartbeat) -> bool:
        return lets_out(heartbeat.log_level, kept[1].level)

    def _take(self, client_id: str, kept: _Kept, line: LogLine) -> None:
        if line.time in kept.lines:
            return  # it came before
        told = told_line(line, kept.level)
        if told is None or self._allowed.take(client_id):
            if not kept.left_out:
                why = "not a line that may leave a site" if told is None else f"more than {LINES_PER_S:g} a second"
                log.warning("reading_left_out", client_id=client_id, reading="log_lines", reason=why)
            kept.left_out += 1
            return
        self._number = max(self._number + 1, int(self._wall_clock() * 1e6))
        kept.lines[told.time] = (self._number, told)
        if len(kept.lines) > self._share:
            del kept.lines[next(iter(kept.lines))]

    @property
    def _share(self) -> int:
        return max(LEAST_LINES, min(MOST_LINES, LINES_OF_ALL // len(self._kept)))

    def _trim(self) -> None:
        """Bring every client down to its share, which is less for each that comes."""
        for kept in self._kept.values():
            while len(kept.lines) > self._share:
                del kept.lines[next(iter(kept.lines))]
