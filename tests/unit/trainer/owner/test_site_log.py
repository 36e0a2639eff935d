"""Log lines that a site lets out: what may leave of them, at which level, how many, and that none costs a heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedplcc.shared.config.sections import validate
from fedplcc.shared.errors import AggregatorUnavailable, FedplccError, InvalidArgument
from fedplcc.shared.process.log import bind, get_logger
from fedplcc.shared.site_logs import MAX_LINES
from fedplcc.shared.types import Heartbeat, LogLevel, LogLine
from fedplcc.trainer.owner.egress.log import NotWrittenDown
from fedplcc.trainer.owner.policy import NO_POLICY, Policy
from fedplcc.trainer.owner.policy_text import policy_sentences
from fedplcc.trainer.owner.site_log import MAX_WAITING, SiteLog
from tests.support.records.captured_logs import logged

BEAT = Heartbeat(client_id="north")
PATIENT = "/scans/Mueller_Anna_1961.dcm"
log = get_logger("fedplcc.trainer.worker")


class Aggregator:
    """Takes heartbeats, after the refusals that a test wants."""

    def __init__(self, *refusals: FedplccError) -> None:
        self.refusals, self.taken = list(refusals), list[Heartbeat]()

    def __call__(self, heartbeat: Heartbeat) -> bool:
        if self.refusals and heartbeat.log_lines:
            raise self.refusals.pop(0)
        self.taken.append(heartbeat)
        return True

    @property
    def lines(self) -> list[LogLine]:
        return [line for heartbeat in self.taken for line in heartbeat.log_lines]


@contextmanager
def site_log(least: LogLevel) -> Iterator[SiteLog]:
    with logged(), SiteLog(least, reasons={"INVALID_DATA"}) as found:
        yield found


def told(least: LogLevel) -> list[LogLine]:
    to = Aggregator()
    with site_log(least) as found:
        with bind(run_id="run-1", round=3, client_id="north"):
            log.info("task_begun", task="train")
            log.error("task_failed", task="train", reason="INVALID_DATA", detail=f"cannot read {PATIENT}", hint=PATIENT)
        log.warning("unreadable_files", count=3, first=PATIENT)
        log.error("cannot_go_on", reason="INVALID_DATA", detail=PATIENT)  # an event that is not in the list
        log.error("task_failed", task=PATIENT, reason="MUELLER_ANNA")  # words that foreign code chose
        get_logger("other.package").error("task_failed", task="train")
        found.send(BEAT, to)
    assert PATIENT not in repr(to.taken)
    assert "MUELLER" not in repr(to.taken)
    return to.lines


def test_nothing_leaves_unless_the_owner_says_so() -> None:
    assert NO_POLICY.leaves.logs is LogLevel.NONE
    assert validate(Policy, {"approve": "always"}, "").leaves.logs is LogLevel.NONE
    assert told(LogLevel.NONE) == []


@pytest.mark.parametrize(
    ("least", "events"),
    [
        (LogLevel.ERROR, ["task_failed", "task_failed"]),
        (LogLevel.WARNING, ["task_failed", "unreadable_files", "task_failed"]),
        (LogLevel.INFO, ["task_begun", "task_failed", "unreadable_files", "task_failed"]),
    ],
)
def test_lines_leave_from_the_owners_level_on(least: LogLevel, events: list[str]) -> None:
    assert [line.event for line in told(least)] == events


def test_a_line_has_facts_of_closed_lists_and_nothing_else() -> None:
    first, failed, files, foreign = told(LogLevel.INFO)
    assert (failed.run_id, failed.round, failed.level) == ("run-1", 3, LogLevel.ERROR)
    assert (first.facts, failed.facts) == ((("task", "train"),), (("reason", "INVALID_DATA"), ("task", "train")))
    assert (files.facts, files.run_id, foreign.facts) == ((), "", ())
    assert first.time < failed.time < files.time < foreign.time, "each has a time of its own"


def test_lines_wait_for_an_aggregator_and_the_oldest_of_too_many_are_counted() -> None:
    to = Aggregator(AggregatorUnavailable("away"))
    with site_log(LogLevel.INFO) as found:
        for _ in range(MAX_WAITING + 2):
            log.info("connected")
        with pytest.raises(AggregatorUnavailable):
            found.send(BEAT, to)
        found.send(BEAT, to)
        log.info("task_ended", outcome="done")
        for _ in range(MAX_WAITING // MAX_LINES + 1):
            found.send(BEAT, to)
    assert [len(to.lines), to.lines[-1].event, to.taken[0].log_lines_left_out] == [MAX_WAITING + 1, "task_ended", 2]
    assert max(len(each.log_lines) for each in to.taken) == MAX_LINES


@pytest.mark.parametrize(("refusal", "num_later"), [(NotWrittenDown("full"), 1), (InvalidArgument("too long"), 0)])
def test_a_line_that_cannot_leave_costs_no_heartbeat(refusal: FedplccError, num_later: int) -> None:
    to = Aggregator(refusal)
    with site_log(LogLevel.INFO) as found:
        log.info("connected")
        assert found.send(BEAT, to)
        assert to.lines == []
        found.send(BEAT, to)
    assert len(to.lines) == num_later
    assert [each.log_level for each in to.taken] == [LogLevel.INFO] * 2


def test_a_policy_says_in_a_sentence_what_leaves_of_the_log() -> None:
    assert "No line of the trainer's log leaves." in policy_sentences(NO_POLICY)
    for privacy in ({"claim": "site"}, {"epsilon": 3.0}):
        site = validate(Policy, {"leaves": {"logs": "info"}, "privacy": privacy}, "")
        assert "No line of the trainer's log leaves." in policy_sentences(site)
    warnings = validate(Policy, {"leaves": {"logs": "warning"}}, "")
    assert "Warnings and errors in the trainer's log may leave, without sentences and numbers." in policy_sentences(
        warnings
    )
