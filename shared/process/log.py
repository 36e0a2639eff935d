"""Structured logging, set up once: JSON off a terminal, for people on one, always to stderr.

An event is a short constant name with fields: `log.info("round_closed", run_id=..., round=3, duration_s=1.9)`. What holds
for everything that follows in a thread or task is bound once with `bind`. Never weights, payloads, examples or tokens;
so tracebacks come without the values of variables, and what slips into a field is cut or masked (`guarded`).

Levels: debug is what repeats (polls, heartbeats, attempts after the first), info what was asked for and done, warning what
was refused or failed while the work goes on, error what needs a person. deploy/logs.md lists every event.
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
"""Roots of the names of our loggers; all others are libraries'."""

MAX_TEXT = 2000
"""Most characters of a value; what is cut says how long it was."""
MAX_TRACEBACK = 20_000
"""Most characters of a traceback."""
MAX_ENTRIES = 64
"""Most entries of a list or table; one that is longer is data, of which only the size is said."""
MASK = "***"
"""Stands for what is secret."""

_FIRST = ("timestamp", "level", "event")
_SECRET_NAME = re.compile(r"(?i)token|password|passphrase|secret|private_key|api_key|authorization|cookie")
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]+-----.*?(?:-----END [A-Z ]+-----|\Z)|(?<=://)[^/@\s]+:[^/@\s]*(?=@)", re.DOTALL
)
"""A key or certificate as PEM, and name and password within a URL."""
_COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a terminal takes for a command, within text that a peer may have made up."""


def guarded(_logger: WrappedLogger | None, _method: str, event: EventDict) -> EventDict:
    """The event without what no log may hold: secrets are masked by name and by form, of bytes and arrays only sizes stay,
    and what would command a terminal is escaped.

    The last line of defence. What is logged is chosen where it is logged. When, how bad and what come first, for those who
    read the lines as they are.
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

# Everything goes through the standard library's logging from the start: without `set_up` only warnings are seen, on stderr,
# and nothing ever lands on stdout, which belongs to results.
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
    """Write our logs and those of the libraries to one place. Calling it again replaces what was set up.

    Args:
        level: The least level that is written; libraries write from warning on.
        json: One JSON object a line, or text for people; what fits the stream if not given.
        stream: Where to; stderr if not given.
        silent: Loggers that write nothing, because a person is shown the same in another way.
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


def get_logger(name: str) -> BoundLogger:
    """The logger of a module; may be made before `set_up`."""
    logger: BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def bind(**facts: object) -> AbstractContextManager[object]:
    """Within the block, in this thread or task, every event carries these facts."""
    return structlog.contextvars.bound_contextvars(**facts)


def bind_task(**facts: object) -> None:
    """From here on, in this task or thread and in what it starts, every event carries these facts; for its whole life."""
    structlog.contextvars.bind_contextvars(**facts)


def bound() -> Mapping[str, object]:
    """What is bound here."""
    return structlog.contextvars.get_contextvars()
