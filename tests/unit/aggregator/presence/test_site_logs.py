"""Log lines that the aggregator keeps: of the form that may leave a site, at its level, of each client its share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.aggregator.presence.site_logs import BURST, LEAST_LINES, LINES_OF_ALL, LINES_PER_S, MOST_LINES, SiteLogs
from fedplcc.shared.types import ClientLog, Heartbeat, LogLevel, LogLine
from tests.support.records.captured_logs import logged

MARKUP = "<img src=x onerror=alert(1)>"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def logs(clock: Clock) -> SiteLogs:
    return SiteLogs(clock)


def line(time: float, event: str = "task_failed", level: LogLevel = LogLevel.ERROR, **facts: str) -> LogLine:
    return LogLine(time=time, level=level, event=event, facts=tuple(sorted(facts.items())))


def beat(
    *lines: LogLine, client: str = "north", level: LogLevel | None = LogLevel.INFO, left_out: int = 0
) -> Heartbeat:
    return Heartbeat(client_id=client, log_level=level, log_lines=lines, log_lines_left_out=left_out)


def of(logs: SiteLogs, client: str = "north", *, after: int = 0, level: LogLevel = LogLevel.INFO) -> ClientLog:
    return logs.of(client, after=after, level=level)


def times(log: ClientLog) -> list[float]:
    return [each.time for _, each in log.lines]


def test_lines_are_kept_by_client_level_and_number_and_once(logs: SiteLogs) -> None:
    assert of(logs).level is None
    logs.heard(beat(line(1.0), line(2.0, "connected", LogLevel.INFO), left_out=3))
    logs.heard(beat(line(1.0), line(2.0, "connected", LogLevel.INFO), line(3.0), left_out=3))
    logs.heard(beat(line(9.0), client="south"))
    logs.heard(beat(level=None))  # a report says nothing of the log
    found = of(logs)
    assert (found.level, times(found), found.left_out) == (LogLevel.INFO, [1.0, 2.0, 3.0], 3)
    assert times(of(logs, level=LogLevel.WARNING)) == [1.0, 3.0]
    assert times(of(logs, after=found.lines[1][0])) == [3.0]


@pytest.mark.parametrize(
    "other",
    [
        line(1.0, MARKUP),
        line(1.0, "cannot_go_on"),
        line(1.0, "task_failed", LogLevel.NONE),
        replace(line(1.0), run_id=MARKUP),
        replace(line(1.0), run_id="run\n1"),
        line(1.0, "task_begun", LogLevel.INFO),  # more than the site says that it lets out
    ],
)
def test_a_line_of_another_form_or_level_is_left_out_counted_and_said_once(logs: SiteLogs, other: LogLine) -> None:
    with logged() as lines:
        for number in (1.0, 2.0):
            logs.heard(beat(replace(other, time=number), level=LogLevel.WARNING))
    assert of(logs) == ClientLog(level=LogLevel.WARNING, left_out=2)
    (said,) = lines("reading_left_out")
    assert (said["client_id"], said["reading"]) == ("north", "log_lines")


def test_facts_of_other_names_or_forms_are_dropped(logs: SiteLogs) -> None:
    logs.heard(beat(line(1.0, task="train", reason=MARKUP, patient="Anna", outcome="done\u202e")))
    ((_, kept),) = of(logs).lines
    assert kept.facts == (("task", "train"),)


def test_a_flood_of_one_client_costs_itself_alone(logs: SiteLogs, clock: Clock) -> None:
    logs.heard(beat(line(1.0), client="south"))
    for number in range(int(BURST) + 10):
        logs.heard(beat(line(float(number))))
    assert (len(of(logs).lines), of(logs).left_out) == (BURST, 10)
    clock.now += 1000.0
    for number in range(1000, 1000 + int(BURST)):
        logs.heard(beat(line(float(number))))
        clock.now += 1.0 / LINES_PER_S
    logs.heard(beat(line(5000.0)))
    assert len(of(logs).lines) == MOST_LINES, "the newest"
    assert times(of(logs))[-1] == 5000.0
    assert times(of(logs, "south")) == [1.0]


def test_many_clients_share_what_is_kept(logs: SiteLogs) -> None:
    num_clients = LINES_OF_ALL // LEAST_LINES
    for number in range(50):
        logs.heard(beat(line(float(number))))
    for number in range(num_clients - 1):
        logs.heard(beat(client=f"client-{number}"))
    assert times(of(logs)) == [float(number) for number in range(50 - LEAST_LINES, 50)]


def test_an_owner_who_lets_less_out_takes_back_what_left_before(logs: SiteLogs) -> None:
    logs.heard(beat(line(1.0), line(2.0, "connected", LogLevel.INFO)))
    logs.heard(beat(level=LogLevel.ERROR))
    assert times(of(logs)) == [1.0]
    logs.heard(beat(level=LogLevel.NONE))
    assert of(logs) == ClientLog(level=LogLevel.NONE)
    logs.forget("north")
    assert of(logs).level is None
