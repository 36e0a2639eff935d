"""Lines that a caller could make a service write without end."""

from __future__ import annotations

import logging

from fedplcc.shared.process import repeated_lines
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.repeated_lines import BETWEEN_S, MOST_KINDS, MOST_OF_A_CALLER, OTHERS, RepeatedLines
from tests.support.clock import Clock
from tests.support.records.captured_logs import logged


def made(clock: Clock) -> RepeatedLines:
    return RepeatedLines(get_logger("rpc"), clock)


def test_a_line_comes_once_a_minute_and_then_how_many_were_left_out() -> None:
    clock = Clock(0.0)
    repeated = made(clock)
    with logged() as lines:
        levels = [repeated.level(logging.WARNING, "client:ann", "Join", "NOT_A_MEMBER") for _ in range(1000)]
        assert levels == [logging.WARNING, *[logging.DEBUG] * 999]
        assert repeated.level(logging.WARNING, "client:bob", "Join", "NOT_A_MEMBER") == logging.WARNING
        assert lines() == []
        clock.now += BETWEEN_S
        assert repeated.level(logging.WARNING, "client:ann", "Join", "NOT_A_MEMBER") == logging.WARNING
        (line,) = lines()
        said = {"caller": "client:ann", "subject": "Join", "reason": "NOT_A_MEMBER", "count": 999, "level": "warning"}
        assert line | {"event": "lines_left_out"} | said == line
        clock.now += BETWEEN_S
        repeated.say_what_was_left_out()
        assert len(lines()) == 1, "nothing was left out"


def test_a_caller_has_a_few_kinds_of_lines_and_takes_none_of_anothers() -> None:
    repeated = made(Clock(0.0))
    levels = [repeated.level(logging.WARNING, "ann", f"method {number}", "NO") for number in range(1000)]
    assert levels.count(logging.WARNING) == MOST_OF_A_CALLER + 1
    assert repeated.level(logging.WARNING, "bob", "method 0", "NO") == logging.WARNING


def test_memory_and_log_are_bounded_whoever_calls() -> None:
    clock = Clock(0.0)
    repeated = made(clock)
    levels = [repeated.level(logging.WARNING, f"address {number}", "Join", "NO") for number in range(3 * MOST_KINDS)]
    assert levels.count(logging.WARNING) == MOST_KINDS + 1
    with logged() as lines:
        clock.now += BETWEEN_S
        repeated.say_what_was_left_out()
        (line,) = lines()
    assert (line["caller"], line["count"]) == (OTHERS, 2 * MOST_KINDS - 1)
    assert not repeated._counted
    assert not repeated._num_kinds


def test_what_is_at_debug_stays_there_and_is_not_counted() -> None:
    repeated = made(Clock(0.0))
    assert repeated.level(logging.DEBUG, "ann", "Heartbeat", "CANCELLED") == logging.DEBUG
    assert repeated.level(logging.INFO, "ann", "Heartbeat", "CANCELLED") == logging.INFO
    assert repeated_lines.BETWEEN_S == 60
