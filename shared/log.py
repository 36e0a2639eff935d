"""Structured logging, set up once: JSON off a terminal, for people on one, always to stderr.

An event is a short constant name with fields: `log.info("round_closed", run_id=..., round=3, duration_s=1.9)`. What holds
for everything that follows in a thread or task is bound once with `bind`. Never weights, payloads, examples or tokens;
so tracebacks come without the values of variables.
"""

from __future__ import annotations

import logging
import sys
from contextlib import AbstractContextManager
from typing import Literal, TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import Processor

Level = Literal["debug", "info", "warning", "error"]

OUR_LOGGERS = ("rpc", "aggregator", "gateway", "trainer", "fedplcc", "shared")
"""Roots of the names of our loggers; all others are libraries'."""

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


def set_up(level: Level = "info", *, json: bool | None = None, stream: TextIO | None = None) -> None:
    """Write our logs and those of the libraries to one place. Calling it again replaces what was set up.

    Args:
        level: The least level that is written; libraries write from warning on.
        json: One JSON object a line, or text for people; what fits the stream if not given.
        stream: Where to; stderr if not given.
    """
    out = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    handler = logging.StreamHandler(out)
    handler.set_name(_HANDLER)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*_COMMON, structlog.stdlib.ExtraAdder()],
            processors=[ProcessorFormatter.remove_processors_meta, *last],
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
