"""The worker's handling of tasks, heartbeats and failures; runner and connection are scripted, so there is no wire."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fedplcc.shared.errors import (
    CertificateExpired,
    CertificateRevoked,
    FedplccError,
    IdentityMismatch,
    InvalidArgument,
    InvalidData,
    NotAMember,
    RoundClosed,
    StoreUnavailable,
    Unauthenticated,
    Unavailable,
)
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import ClientActivity, ClientProblem, ForgottenRun, Heartbeat, LogLevel, Task, TaskKind
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets
from fedplcc.trainer.aggregator.task_stream import StreamEnd
from fedplcc.trainer.cancellation import Cancelled
from fedplcc.trainer.owner.approval.gate import Look
from fedplcc.trainer.readings.metrics import TrainerMetrics
from fedplcc.trainer.worker import Worker
from fedplcc.trainer.worker_state import LEAST_GAP_S, Lease
from tests.support import present
from tests.support.federation.processes import eventually
from tests.unit.trainer.scripted_worker import (
    IDLE,
    ROUND_1,
    ROUND_2,
    RUN,
    WAIT_S,
    ScriptedClient,
    ScriptedRunner,
    Shell,
)


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    shell.worker.end()
    shell.thread.join(WAIT_S)
    assert not shell.thread.is_alive()


def until(event: threading.Event) -> Callable[..., None]:
    def wait(*arguments: Any) -> None:
        assert event.wait(WAIT_S)

    return wait


def until_stopped(task: Task, should_stop: Callable[[], bool], on_problem: Any) -> None:
    waiting = threading.Event()
    while not should_stop():
        waiting.wait(0.005)
    raise Cancelled


def test_a_task_is_done_once_however_often_it_is_pushed_meanwhile(shell: Shell) -> None:
    going_on = threading.Event()
    shell.runner.behaviour = until(going_on)
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1
    shell.push(ROUND_1, replace(ROUND_1, detail="the same work in other words"))
    shell.client.await_heartbeat(lambda beat: beat.activity is ClientActivity.TRAINING)
    shell.await_pushed(3)
    assert shell.worker._tasks_changed.qsize() <= 1, "an endless stream of tasks takes no memory"
    going_on.set()
    shell.await_outcome("done", 1)
    shell.push(ROUND_2)
    assert shell.begun() == ROUND_2
    shell.await_outcome("done", 2)


def test_a_run_that_is_to_forget_the_client_is_deleted_while_a_task_of_another_goes_on(shell: Shell) -> None:
    going_on = threading.Event()
    shell.runner.behaviour = until(going_on)
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1
    assert shell.runner.forgotten.get(timeout=WAIT_S) == ()
    shell.client.forgotten_runs = (ForgottenRun("run-2", 3),)
    shell.push(StreamEnd.LEASE_EXPIRED)
    assert shell.runner.forgotten.get(timeout=WAIT_S) == shell.client.forgotten_runs
    assert shell.outcome("done") in (None, 0)
    going_on.set()
    shell.await_outcome("done")


def test_a_disk_that_does_not_let_go_disconnects_nobody(shell: Shell) -> None:
    shell.runner.forgotten.get(timeout=WAIT_S)
    shell.runner.failing_to_forget.append(StoreUnavailable("the disk is away"))
    shell.push(StreamEnd.LEASE_EXPIRED)
    shell.runner.forgotten.get(timeout=WAIT_S)
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1
    assert len(shell.client.joined) == 2


def test_another_task_cancels_the_one_at_hand(shell: Shell) -> None:
    shell.runner.behaviour = until_stopped
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1
    shell.push(ROUND_2)
    assert shell.begun() == ROUND_2
    assert shell.outcome("cancelled") == 1
    shell.push(IDLE)
    shell.await_idle()


def test_only_the_newest_of_several_tasks_is_done(shell: Shell) -> None:
    going_on = threading.Event()
    shell.runner.behaviour = until(going_on)
    shell.push(ROUND_1)
    shell.begun()
    shell.push(ROUND_2, IDLE, replace(ROUND_2, round=3))
    shell.await_pushed(4)
    going_on.set()
    assert shell.begun().round == 3


def test_a_stop_in_a_heartbeat_ends_the_task_and_asks_what_is_wanted_instead(shell: Shell) -> None:
    shell.runner.behaviour = until_stopped
    shell.client.is_wanted = lambda heartbeat: heartbeat.activity is not ClientActivity.TRAINING
    shell.push(ROUND_1)
    shell.begun()
    assert shell.client.refreshed.acquire(timeout=WAIT_S)
    shell.client.is_wanted = lambda heartbeat: True
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1


def test_a_withdrawal_ends_the_task_although_no_heartbeat_is_answered(shell: Shell) -> None:
    withdrawn = threading.Event()
    shell.worker._gate = SimpleNamespace(  # type: ignore[assignment]
        has_ended=lambda run: withdrawn.is_set(), look=lambda run: Look(), forget=lambda but_of: None
    )
    shell.runner.behaviour = until_stopped
    shell.push(ROUND_1)
    shell.begun()
    shell.client.failing_heartbeats = [Unavailable("away")] * 10_000
    withdrawn.set()
    shell.await_outcome("cancelled")


def test_a_lost_connection_cancels_nothing(shell: Shell) -> None:
    going_on = threading.Event()
    shell.runner.behaviour = until(going_on)
    shell.push(ROUND_1)
    shell.begun()
    shell.client.pushed.put(Unavailable("the connection broke"))
    shell.client.pushed.put(ROUND_1)
    shell.await_joins(2)
    going_on.set()
    shell.await_outcome("done")
    assert shell.outcome("cancelled") == 0


@pytest.mark.parametrize(
    "refusal",
    [
        CertificateExpired("it ended"),
        IdentityMismatch("of another"),
        Unauthenticated("no client id"),
        InvalidArgument("an aggregator that was upgraded by mistake"),
        RuntimeError("an answer that no check foresaw"),
    ],
)
def test_a_refusal_that_a_person_or_a_renewal_can_mend_ends_nothing(shell: Shell, refusal: Exception) -> None:
    shell.client.pushed.put(refusal)
    shell.await_joins(2)
    shell.client.failing_heartbeats = [refusal]
    shell.push(ROUND_1)
    shell.await_outcome("done")
    eventually(lambda: not shell.client.failing_heartbeats, "a heartbeat fails", WAIT_S)
    shell.await_idle()


def test_an_end_that_is_meant_is_told(shell: Shell) -> None:
    shell.push(IDLE)
    eventually(lambda: shell.worker.is_well, "it is connected", WAIT_S)
    shell.worker.end()
    shell.thread.join(WAIT_S)
    leaving = Heartbeat(client_id="ann", is_leaving=True, log_level=LogLevel.NONE)
    assert shell.client.await_heartbeat(lambda beat: beat.is_leaving) == leaving
    assert shell.client.is_closed


def test_a_revocation_ends_the_trainer_with_its_reason() -> None:
    ended: queue.SimpleQueue[FedplccError] = queue.SimpleQueue()

    def run() -> None:
        try:
            worker.run()
        except FedplccError as error:
            ended.put(error)

    client = ScriptedClient()
    worker = Worker(ScriptedRunner(), client, TrainerMetrics(new_registry("trainer")))  # type: ignore[arg-type]
    thread = threading.Thread(target=run)
    thread.start()
    client.pushed.put(CertificateRevoked("it was revoked"))
    assert type(ended.get(timeout=WAIT_S)) is CertificateRevoked
    thread.join(WAIT_S)


@pytest.mark.parametrize("answer", [None, NotAMember("join first")], ids=["it knows us", "it has restarted"])
def test_it_joins_again_as_soon_as_a_heartbeat_is_answered(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: Exception | None
) -> None:
    monkeypatch.setattr("fedplcc.trainer.worker.backoff", lambda rng: itertools.repeat(1000.0))
    shell.push(IDLE)
    shell.await_idle()
    shell.client.failing_heartbeats = [Unavailable("away")] * 5 + ([answer] * 10_000 if answer else [])
    shell.client.pushed.put(Unavailable("the connection broke"))
    shell.await_joins(2)


def fails_with(error: BaseException) -> Callable[..., None]:
    def fail(*arguments: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (InvalidData("data 'x' has the class 'b'"), "INVALID_DATA", "the log of its trainer says why"),
        (MemoryError(), "OUT_OF_MEMORY", "not enough memory"),
        (ZeroDivisionError("a patient's name"), "INTERNAL", "the task failed with ZeroDivisionError"),
    ],
)
def test_a_task_that_cannot_be_done_is_reported_with_its_run_and_a_hint(
    shell: Shell, error: Exception, reason: str, detail: str
) -> None:
    shell.runner.behaviour = fails_with(error)
    shell.push(ROUND_1)
    heartbeat = shell.client.await_heartbeat(lambda beat: beat.problem is not None)
    assert (heartbeat.run_id, heartbeat.round) == ("run-1", 1)
    problem = present(heartbeat.problem)
    assert (problem.reason, problem.is_fatal) == (reason, True)
    assert detail in problem.detail
    assert problem.hint
    assert "patient" not in problem.detail
    shell.await_idle()


def test_a_failed_task_is_tried_again_after_a_while_and_logged_once(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    shell.runner.behaviour = fails_with(InvalidData("no"))
    shell.push(ROUND_1)
    for _ in range(3):
        assert shell.begun() == ROUND_1
        assert shell.await_problem().reason == "INVALID_DATA"
    shell.runner.behaviour = lambda *arguments: None
    shell.await_outcome("done")
    assert [vars(record)["msg"]["event"] for record in caplog.records if record.levelno == logging.ERROR] == [
        "task_failed"
    ]


def test_a_failed_task_gives_way_to_another_at_once(shell: Shell) -> None:
    shell.worker._retry_failed_s = 1000.0
    shell.runner.behaviour = fails_with(InvalidData("no"))
    shell.push(ROUND_1)
    shell.await_problem()
    shell.push(ROUND_1, ROUND_2)
    assert shell.begun() == ROUND_1
    assert shell.begun() == ROUND_2
    assert shell.runner.begun.empty()


def test_an_aggregator_that_asks_for_ever_other_things_in_vain_does_not_fill_the_sites_disk(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    shell.worker._vain = TokenBuckets(1e-9, 2)
    for number in range(3):
        shell.push(Task(kind=TaskKind.WAIT, detail=f"reason {number}"))
        eventually(lambda: shell.worker._why_idle == f"reason {number}", "it has heard", WAIT_S)  # noqa: B023
    lines = [vars(record)["msg"] for record in caplog.records]
    assert [line["detail"] for line in lines if line["event"] == "idle"] == ["reason 0", "reason 1"]
    shell.runner.behaviour = fails_with(InvalidData("no"))
    for number in range(4):
        shell.push(replace(ROUND_1, run=replace(RUN, run_id=f"run-{number}")))
        if number < 3:
            assert present(shell.begun().run).run_id == f"run-{number}"
    shell.await_pushed(7)
    shell.await_idle()
    shell.await_idle()
    assert shell.runner.begun.empty(), "it pauses after what failed in vain"
    shell.worker._vain = TokenBuckets(1e-9, 2)
    caplog.clear()
    for count in range(4):
        shell.client.pushed.put(Unavailable("away"))
        shell.await_joins(count + 2)
        shell.push(IDLE)
        eventually(lambda: shell.worker._is_connected, "it is connected", WAIT_S)
    told = [vars(record)["msg"]["event"] for record in caplog.records]
    assert (told.count("connected"), told.count("disconnected")) == (2, 2)


def test_a_result_that_comes_too_late_is_dropped_and_no_problem(shell: Shell) -> None:
    shell.runner.behaviour = fails_with(RoundClosed("round 1 takes no more updates"))
    shell.push(ROUND_1)
    shell.begun()
    assert shell.client.refreshed.acquire(timeout=WAIT_S)
    shell.await_outcome("cancelled")
    assert shell.outcome("failed") == 0


def test_a_trainer_joins_again_with_what_its_runner_announced_last(shell: Shell) -> None:
    shell.runner.client = replace(shell.runner.client, num_examples=2, class_counts={"a": 2})
    shell.push(ROUND_1)
    shell.await_outcome("done")
    shell.push(StreamEnd.REFRESHED)
    shell.await_joins(2)
    assert [client.num_examples for client in shell.client.joined] == [3, 2]


def test_two_heartbeats_are_never_closer_than_the_least_gap_however_quickly_the_activity_changes(shell: Shell) -> None:
    shell.client.heartbeat_interval_s = 600.0
    shell.push(StreamEnd.REFRESHED)
    shell.await_joins(2)
    times: list[float] = []

    def flicker(task: Task, aggregator: Any, should_stop: Any, on_activity: Any, on_problem: Any) -> None:
        for activity in (ClientActivity.TRAINING, ClientActivity.SUMMARISING) * 5:
            on_activity(activity, 0.0)
            shell.client.await_heartbeat(lambda beat, wanted=activity: beat.activity is wanted)  # type: ignore[misc]
            times.append(time.monotonic())

    shell.runner.perform = flicker  # type: ignore[method-assign]
    shell.push(ROUND_1)
    shell.await_outcome("done")
    assert times[-1] - times[0] >= 9 * LEAST_GAP_S - 0.05


def test_a_stopped_trainer_that_was_silent_says_at_once_that_it_is_idle(shell: Shell) -> None:
    shell.client.heartbeat_interval_s = 600.0
    shell.push(StreamEnd.REFRESHED)
    shell.await_joins(2)
    shell.push(ROUND_1)
    shell.await_outcome("done")
    while not shell.client.heartbeats.empty():
        shell.client.heartbeats.get()
    shell.push(replace(ROUND_1, kind=TaskKind.STOP))
    shell.await_idle()


def test_a_heartbeat_waits_while_half_of_the_lease_is_left_and_the_aggregator_knows_that_the_client_is_idle() -> None:
    lease = Lease(interval_s=200.0, lasts_s=1000.0)
    lease.renew(told=0)
    assert lease.may_wait()
    lease.renewed_at -= 301.0  # at the next turn less than half would be left
    assert not lease.may_wait()
    lease.renew(told=-1)
    assert not lease.may_wait()
    lease.renew(told=0)
    lease.num_untold += 1
    assert not lease.may_wait()


def test_a_trainer_is_well_from_its_first_task_until_the_connection_breaks(shell: Shell) -> None:
    assert not shell.worker.is_well
    shell.push(IDLE)
    eventually(lambda: shell.worker.is_well, "it is in", WAIT_S)
    shell.client.pushed.put(Unavailable("away"))
    eventually(lambda: not shell.worker.is_well, "it is out", WAIT_S)
    shell.push(IDLE)
    eventually(lambda: shell.worker.is_well, "it is in again", WAIT_S)


def test_a_trainer_whose_heartbeats_get_lost_is_not_well_after_its_lease_although_the_stream_is_open(
    shell: Shell,
) -> None:
    shell.push(IDLE)
    eventually(lambda: shell.worker.is_well, "it is in", WAIT_S)
    shell.client.failing_heartbeats = [Unavailable("lost")] * 100_000
    eventually(lambda: not shell.worker.is_well, "the lease has run out", WAIT_S)
    shell.client.failing_heartbeats.clear()
    eventually(lambda: shell.worker.is_well, "it is heard again", WAIT_S)


def test_a_trainer_that_cannot_do_its_task_is_not_well_until_it_can(shell: Shell) -> None:
    mended = threading.Event()

    def fails(*arguments: Any) -> None:
        if not mended.is_set():
            raise InvalidData("the folder is empty")

    shell.runner.behaviour = fails
    shell.push(ROUND_1)
    shell.await_problem()
    eventually(lambda: shell.worker._failure is not None, "the failure is kept", WAIT_S)
    assert not shell.worker.is_well
    mended.set()
    eventually(lambda: shell.worker.is_well, "the next attempt succeeds", WAIT_S)


def test_a_heartbeat_of_one_who_has_not_joined_has_the_stream_opened_anew(shell: Shell) -> None:
    shell.push(IDLE)
    shell.await_idle()
    shell.client.failing_heartbeats = [NotAMember("join first")]
    assert shell.client.refreshed.acquire(timeout=WAIT_S)
    shell.await_joins(2)


def test_a_task_that_is_pushed_again_after_its_end_is_done_again(shell: Shell) -> None:
    shell.push(ROUND_1)
    shell.begun()
    shell.await_outcome("done")
    shell.push(ROUND_1)
    assert shell.begun() == ROUND_1


def test_the_log_says_once_why_there_is_nothing_to_do(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    left_out = Task(kind=TaskKind.WAIT, detail="run r has quarantined this client: broken scanner")

    def told() -> list[str]:
        lines = [vars(record)["msg"] for record in list(caplog.records)]
        return [line.get("detail", line["event"]) for line in lines if line["event"] in ("idle", "task_ended")]

    def await_told(count: int) -> None:
        eventually(lambda: len(told()) == count, f"{count} lines are told", WAIT_S)

    for task, count in ((ROUND_1, 0), (ROUND_2, 2)):
        shell.push(left_out)
        await_told(count + 1)
        shell.push(left_out, task)
        await_told(count + 2)
    assert told() == [left_out.detail, "task_ended"] * 2


def test_what_could_not_be_reported_is_reported_later_and_once(shell: Shell) -> None:
    shell.push(IDLE)
    shell.await_idle()
    shell.client.failing_heartbeats = [Unavailable("away")] * 30
    shell.runner.behaviour = fails_with(InvalidData("no"))
    shell.push(ROUND_1)
    shell.await_problem()
    shell.worker._retry_failed_s = 1000.0
    assert len(shell.worker._outbox) <= 1


def test_what_the_operator_should_know_is_sent_while_the_task_goes_on(shell: Shell) -> None:
    note = ClientProblem(reason="UNREADABLE_FILES", detail="1 of the data set's files")
    shell.runner.behaviour = lambda task, should_stop, on_problem: on_problem(note)
    shell.push(ROUND_1)
    assert shell.await_problem() == note
    shell.await_outcome("done")


def test_ending_cancels_the_task_at_hand(shell: Shell) -> None:
    shell.runner.behaviour = until_stopped
    shell.push(ROUND_1)
    shell.begun()
    shell.worker.end()
    shell.thread.join(WAIT_S)
    assert not shell.thread.is_alive()
    assert shell.client.is_closed
