"""Structured logging to stderr: text for people on a terminal, JSON elsewhere.

An event is a short constant name with fields: `log.info("round_closed", run_id=..., round=3, duration_s=1.9)`. Fields common
to the lines of a thread or task are bound once with `bind`. Weights, payloads, examples and tokens are never logged:
tracebacks come without the values of variables, and `guarded` cuts or masks suspicious fields.

Levels: debug for repetitions (polls, heartbeats, attempts after the first), info for requested work that was done, warning
for refusals and failures that work survives, error for failures that need a person. deploy/logs.md lists every event.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import takewhile
from typing import Any, Literal, TextIO, TypeVar

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

from fedplcc.shared.process import traces

Level = Literal["debug", "info", "warning", "error"]
_Entry = TypeVar("_Entry")

OUR_LOGGERS = ("rpc", "aggregator", "gateway", "trainer", "fedplcc", "shared")
"""Roots of our loggers' names; all other loggers belong to libraries."""

MAX_TEXT = 2000
"""Most characters of a value; a cut value ends with its full length."""
MAX_TRACEBACK = 20_000
"""Most characters of a traceback."""
MAX_ENTRIES = 64
"""Most entries of a list or table; of a longer one, which is data, only the size is logged."""
MAX_NAME = 128
"""Most characters of a field's name and of a table's key."""
MAX_LINE = 16_000
"""Most characters of all values and names of a line, beside its traceback; what comes later is left out."""
MASK = "***"
"""Replacement of a secret."""

_FIRST = ("timestamp", "level", "event", "logger", "exception")
"""What a line has whatever else is left out; a traceback comes last all the same."""
_MARGIN = 256
"""Characters that are looked at beyond a cut, so that a secret which begins before it is known as one."""
_DEPTH = 3
"""Tables and lists that are shown within each other."""
_MAX_BITS = 128
"""Most bits of a number: to write a longer one takes time that grows with the square of its length."""
_SECRET_NAME = re.compile(r"(?i)token|password|passphrase|secret|private_key|api_key|authorization|cookie")
_USER_AND_PASSWORD = r"(?<=://)[^:/@\s]*+:[^/@\s]*+"  # nosec B105 # a pattern
_SECRET_TEXT = re.compile(
    rf"-----BEGIN [A-Z0-9 ]++-----.*?(?:-----END [A-Z0-9 ]++-----|\Z)|{_USER_AND_PASSWORD}(?=@)", re.DOTALL
)
"""A key or certificate as PEM, and name and password within a URL. Each character is looked at a few times at most."""
_CUT_SECRET = re.compile(rf"{_USER_AND_PASSWORD}\Z")
"""What may be a name and a password at the end of a text that goes on."""
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which a terminal would obey; a peer may have put them into a text."""


def guarded(_logger: WrappedLogger | None, _method: str, event: EventDict) -> EventDict:
    """Return the event without forbidden content, its timestamp, level and name first.

    Secrets are masked by name and by form, bytes and arrays are reduced to their sizes, control characters are escaped.
    Texts are cut before anything looks through them, and a line has a bounded length: whatever a peer sends, its line
    takes a bounded time and room. This is the last line of defence: callers choose what they log.
    """
    line = _Line()
    facts = {name: line.value(name, event[name], depth=_DEPTH) for name in _FIRST if name in event}
    exception = facts.pop("exception", None)
    for name, value in event.items():
        if name not in _FIRST:
            if line.is_full:
                facts["is_cut"] = True
                break
            facts[line.name(name)] = line.value(name, value, depth=_DEPTH)
    return facts if exception is None else {**facts, "exception": exception}


class _Line:
    """The room of one line, which its values share."""

    def __init__(self) -> None:
        self._left = MAX_LINE

    @property
    def is_full(self) -> bool:
        """Whether nothing more has room."""
        return self._left <= 0

    def name(self, name: object) -> str:
        """Return a field's name or a table's key as it is logged."""
        text = str(name)
        if len(text) <= MAX_NAME and text.isidentifier():  # as all are that our code gives
            self._left -= len(text)
            return text
        return self._text(text, MAX_NAME)

    def value(self, name: str, value: Any, *, depth: int) -> Any:
        """Return a value as it is logged under a name; `depth` is how many tables may be within each other."""
        self._left -= 8
        if value is None or isinstance(value, (bool, int, float)):
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                return f"<number of {value.bit_length()} bits>"
            return value
        if len(name) > MAX_NAME or _SECRET_NAME.search(name):
            return self._text(MASK, MAX_TEXT)
        if isinstance(value, str):
            if name == "exception" and depth == _DEPTH:
                return _shown(value, MAX_TRACEBACK)
            return self._text(value, MAX_TEXT)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(f"<{len(value)} bytes>", MAX_TEXT)
        if hasattr(value, "shape"):
            return self._text(f"<array of shape {tuple(value.shape)}>", MAX_TEXT)
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            if len(value) > MAX_ENTRIES or not depth:
                return self._text(f"<{len(value)} entries>", MAX_TEXT)
            if isinstance(value, Mapping):
                return {
                    self.name(key): self.value(str(key), value[key], depth=depth - 1) for key in self._while_room(value)
                }
            return [self.value(name, entry, depth=depth - 1) for entry in self._while_room(value)]
        return self.value(name, str(value), depth=depth)

    def _while_room(self, entries: Iterable[_Entry]) -> Iterator[_Entry]:
        return takewhile(lambda _entry: not self.is_full, entries)

    def _text(self, text: str, most: int) -> str:
        shown = _shown(text, min(most, max(self._left, MAX_NAME)))
        self._left -= len(shown)
        return shown


def _shown(text: str, most: int) -> str:
    """Return a text of at most about `most` characters without secrets and control characters."""
    if len(text) <= most and text.isprintable() and "://" not in text and "-----BEGIN" not in text:
        return text  # as most are
    looked_at = text[: most + _MARGIN]
    shown = _SECRET_TEXT.sub(MASK, looked_at)
    if len(looked_at) < len(text):
        shown = _CUT_SECRET.sub(MASK, shown)
    shown = _COMMANDS.sub(_escaped, shown)
    is_whole = len(looked_at) == len(text) and len(shown) <= most
    return shown if is_whole else f"{shown[:most]}... ({len(text)} characters)"


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def _traced(_logger: WrappedLogger | None, _method: str, event: EventDict) -> EventDict:
    """Return the event with the id of its round's trace, where there are traces."""
    run_id, number = event.get("run_id"), event.get("round")
    if traces.is_on() and isinstance(run_id, str):
        event["trace_id"] = traces.trace_id(run_id[:MAX_NAME], number if isinstance(number, int) else 0)
    return event


_HANDLER = "fedplcc"
_COMMON: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    _traced,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)

# All events go through the standard library's logging: before `set_up` only warnings appear, on stderr. Stdout is for
# results and never gets a log line.
structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        *_COMMON,
        structlog.stdlib.PositionalArgumentsFormatter(),
        ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=BoundLogger,
)


def set_up(
    level: Level = "info", *, json: bool | None = None, stream: TextIO | None = None, silent: Collection[str] = ()
) -> None:
    """Write our logs and those of libraries to one stream. A second call replaces the first.

    Args:
        level: Lowest level written; libraries write from warning on.
        json: One JSON object a line, or text for people; by default text on a terminal and JSON elsewhere.
        stream: Target; stderr if not given.
        silent: Loggers that write nothing, because the same facts are shown in another way.
    """
    out = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    last: Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
    )
    handler = logging.StreamHandler(out)
    handler.set_name(_HANDLER)
    handler.addFilter(lambda record: record.name not in silent)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*_COMMON, structlog.stdlib.ExtraAdder()],
            processors=[
                ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                guarded,
                last,
            ],
        )
    )
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())


def stay_quiet() -> None:
    """Write nothing unless the program that uses this package has set up logging itself."""
    for name in OUR_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, logging.NullHandler) for each in logger.handlers):
            logger.addHandler(logging.NullHandler())
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.ERROR)


def get_logger(name: str) -> BoundLogger:
    """Return a module's logger; it may be created before `set_up`."""
    logger: BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def bind(**facts: object) -> AbstractContextManager[object]:
    """Return a context manager in which every event of this thread or task carries these facts."""
    return structlog.contextvars.bound_contextvars(**facts)


def bind_task(**facts: object) -> None:
    """Add facts to every further event of this task or thread and of the tasks that it starts."""
    structlog.contextvars.bind_contextvars(**facts)


def bound() -> Mapping[str, object]:
    """Return the facts bound in this thread or task."""
    return structlog.contextvars.get_contextvars()
