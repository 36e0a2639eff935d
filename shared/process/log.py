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
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal, TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]

OUR_LOGGERS = ("rpc", "aggregator", "gateway", "trainer", "fedplcc", "shared")
"""Roots of our loggers' names; all other loggers belong to libraries."""

MAX_TEXT = 2000
"""Most characters of a value; a cut value ends with its full length."""
MAX_TRACEBACK = 20_000
"""Most characters of a traceback."""
MAX_ENTRIES = 64
"""Most entries of a list or table; of a longer one, which is data, only the size is logged."""
MASK = "***"
"""Replacement of a secret."""

_FIRST = ("timestamp", "level", "event")
_SECRET_NAME = re.compile(r"(?i)token|password|passphrase|secret|private_key|api_key|authorization|cookie")
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)|(?<=://)[^/@\s]+:[^/@\s]*(?=@)", re.DOTALL
)
"""A key or certificate as PEM, and name and password within a URL."""
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, which a terminal would obey; a peer may have put them into a text."""


def guarded(_logger: WrappedLogger | None, _method: str, event: EventDict) -> EventDict:
    """Return the event without forbidden content, its timestamp, level and name first.

    Secrets are masked by name and by form, bytes and arrays are reduced to their sizes, control characters are escaped.
    This is the last line of defence: callers choose what they log.
    """
    names = [*(name for name in _FIRST if name in event), *(name for name in event if name not in _FIRST)]
    return {name: _guarded(name, event[name], depth=3) for name in names}


def _guarded(name: str, value: Any, *, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if _SECRET_NAME.search(name):
        return MASK
    if isinstance(value, str):
        text = _COMMANDS.sub(_escaped, _SECRET_TEXT.sub(MASK, value))
        most = MAX_TRACEBACK if name == "exception" else MAX_TEXT
        return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"<{len(value)} bytes>"
    if hasattr(value, "shape"):
        return f"<array of shape {tuple(value.shape)}>"
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        if len(value) > MAX_ENTRIES or not depth:
            return f"<{len(value)} entries>"
        if isinstance(value, Mapping):
            return {key: _guarded(str(key), entry, depth=depth - 1) for key, entry in value.items()}
        return [_guarded(name, entry, depth=depth - 1) for entry in value]
    return _guarded(name, str(value), depth=depth)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


_HANDLER = "fedplcc"
_COMMON: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
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
