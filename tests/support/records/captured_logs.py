"""Log lines of a block, as the JSON that a service writes off a terminal."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fedplcc.shared.process import log
from fedplcc.shared.process.log import Level


class Lines:
    """The lines so far."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def __call__(self, event: str | None = None) -> list[dict[str, Any]]:
        """All lines, or those about an event."""
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if event in (None, line["event"])]


@contextmanager
def logged(level: Level = "debug") -> Iterator[Lines]:
    """Within the block our loggers write lines; logging is afterwards as it was."""
    names = ("", *log.OUR_LOGGERS)
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(logging.getLogger().handlers)
    lines = Lines()
    log.set_up(level, json=True, stream=lines.stream)
    try:
        yield lines
    finally:
        logging.getLogger().handlers[:] = handlers
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
