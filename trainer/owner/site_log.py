"""Log lines of this trainer that the owner of its site lets out: they wait in memory until a heartbeat takes them along.

A line stands in the site's own log first: what `--log-level` leaves out there does not leave either.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from fedplcc.shared.errors import InvalidArgument
from fedplcc.shared.site_logs import MAX_LINES, told_line
from fedplcc.shared.types import Heartbeat, LogLevel, LogLine
from fedplcc.trainer.owner.egress.log import NotWrittenDown

MAX_WAITING = 256
"""Most lines that wait, as while the aggregator is away; of more the oldest go, and are counted."""
OURS = "fedplcc"
"""Root of the loggers whose lines may leave: no library's."""


class SiteLog(logging.Handler):
    """Lines that may leave, in the order in which they were written. Any thread may write; one sends."""

    def __init__(
        self, least: LogLevel, *, reasons: Collection[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        """Begin without a line.

        Args:
            least: The level from which on the owner lets lines out.
            reasons: Reasons that may leave; another one, which foreign code may have given, stays here.
            clock: Seconds since the epoch.
        """
        super().__init__()
        self._least, self._reasons, self._clock = least, frozenset(reasons), clock
        self._waiting: deque[LogLine] = deque()
        self._last_us = self._left_out = 0

    def __enter__(self) -> Self:
        """Hear what is logged, if anything may leave."""
        if self._least is not LogLevel.NONE:
            logging.getLogger(OURS).addHandler(self)
        return self

    def __exit__(self, *_exception: object) -> None:
        """Hear no more."""
        logging.getLogger(OURS).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what may leave of a line; called with the handler's lock."""
        try:
            line = self._told(record.msg) if isinstance(record.msg, Mapping) else None
        except Exception:  # whatever a line is made of: it must not fail whoever writes it
            return
        if line is not None:
            self._waiting.append(line)
            self._bound()

    def _told(self, said: Mapping[str, Any]) -> LogLine | None:
        event, level, run_id, number = (said.get(name) for name in ("event", "level", "run_id", "round"))
        if type(event) is not str or level not in list(LogLevel):
            return None
        facts = ((name, text) for name, text in said.items() if isinstance(text, str))
        line = LogLine(
            time=0.0,
            level=LogLevel(level),
            event=event,
            run_id=run_id if isinstance(run_id, str) else "",
            round=number if type(number) is int else 0,
            facts=tuple((name, text) for name, text in facts if name != "reason" or text in self._reasons),
        )
        told = told_line(line, self._least)
        if told is None:
            return None
        self._last_us = max(int(self._clock() * 1e6), self._last_us + 1)
        return replace(told, time=self._last_us / 1e6)

    @property
    def has_lines(self) -> bool:
        """Whether lines wait."""
        return bool(self._waiting)

    def send(self, heartbeat: Heartbeat, send: Callable[[Heartbeat], bool]) -> bool:
        """Send a heartbeat with the lines that wait, or without them: no line may cost the client its lease.

        They wait on where this site cannot write down that they leave, and are left out where the aggregator refuses them.
        """
        lines = self._take()
        bare = replace(heartbeat, log_level=self._least)
        if not lines:
            return send(bare)
        try:
            return send(replace(bare, log_lines=lines, log_lines_left_out=self._left_out))
        except InvalidArgument:
            self._left_out += len(lines)
        except BaseException as error:
            self._put_back(lines)
            if not isinstance(error, NotWrittenDown):
                raise
        return send(bare)

    def _take(self) -> tuple[LogLine, ...]:
        with self._locked():
            return tuple(self._waiting.popleft() for _ in range(min(MAX_LINES, len(self._waiting))))

    def _put_back(self, lines: Sequence[LogLine]) -> None:
        with self._locked():
            self._waiting.extendleft(reversed(lines))
            self._bound()

    def _bound(self) -> None:
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._left_out += 1

    def _locked(self) -> Any:
        assert self.lock is not None, "every handler has one"
        return self.lock
