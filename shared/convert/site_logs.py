"""Messages of log lines that sites let out. Wrong forms are refused; what may not leave a site is left out later."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.shared.convert.reading.enums import LOG_LEVEL
from fedplcc.shared.convert.reading.fields import at_least, limited, malformed, message_like, time_of, timestamp
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2, types_pb2
from fedplcc.shared.site_logs import MAX_LINE_BYTES, MAX_LINES
from fedplcc.shared.types import ClientLog, LogLevel, LogLine


def line_to_proto(line: LogLine) -> types_pb2.LogLine:
    """Return the message of a line."""
    return message_like(
        types_pb2.LogLine, line, time=timestamp(line.time), level=LOG_LEVEL.number(line.level), facts=dict(line.facts)
    )


def line_from_proto(message: types_pb2.LogLine) -> LogLine:
    """Return the line of a message."""
    if message.ByteSize() > MAX_LINE_BYTES:
        raise malformed("log_lines", f"a line has more than {MAX_LINE_BYTES} bytes")
    return LogLine(
        time=time_of("log_lines.time", message.time),
        level=LOG_LEVEL.member(message.level, "log_lines.level"),
        event=message.event,
        run_id=message.run_id,
        round=message.round,
        facts=tuple(sorted(message.facts.items())),
    )


def lines_from_proto(messages: Sequence[types_pb2.LogLine]) -> tuple[LogLine, ...]:
    """Return the lines of a heartbeat."""
    return tuple(map(line_from_proto, limited("log_lines", messages, MAX_LINES)))


def level_from_proto(number: int, field: str) -> LogLevel | None:
    """Return a level; None where none is said."""
    return LOG_LEVEL.member(number, field) if number else None


def log_to_proto(log: ClientLog) -> run_service_pb2.ClientLog:
    """Return the message of a client's log."""
    lines = [run_service_pb2.KeptLogLine(number=number, line=line_to_proto(line)) for number, line in log.lines]
    return run_service_pb2.ClientLog(level=LOG_LEVEL.number(log.level), lines=lines, left_out=log.left_out)


def log_from_proto(message: run_service_pb2.ClientLog) -> ClientLog:
    """Return the log of a message."""
    return ClientLog(
        level=level_from_proto(message.level, "level"),
        lines=tuple((at_least(1, "number", each.number), line_from_proto(each.line)) for each in message.lines),
        left_out=at_least(0, "left_out", message.left_out),
    )
