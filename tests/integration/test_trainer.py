"""The trainer's shell against a real aggregator process: it follows tasks, and what happens to either end loses no work."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.convert.clients import client_from_proto
from fedplcc.shared.errors import InvalidArgument, InvalidData
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import PauseRun, ResumeRun, StopRun
from fedplcc.shared.types import Client, ClientActivity
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.processes import Federation, eventually, free_port
from tests.support.federation.thread_trainer import ThreadTrainer

NUM_EXAMPLES, BATCH = 12, 4


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Twelve small images of two classes that differ in brightness."""
    rng = np.random.default_rng(0)
    labels = np.arange(NUM_EXAMPLES) % 2
    images = (rng.integers(0, 100, (NUM_EXAMPLES, 16, 16, 3)) + 120 * labels[:, None, None, None]).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=["a", "b"])
    return f"npz:{path}"


def a_document(steps: int = 2, rounds: int = 2, **sections: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "run": {"method": "fedplcc", "rounds": rounds, "clients": ["ann"]},
        "model": {"name": "cnn4"},
        "data": {"classes": ["a", "b"], "image_size": 16},
        "training": {"local_steps": steps, "batch_size": BATCH, "learning_rate": 1e-4},
    }
    for name, values in sections.items():
        document[name] = {**document[name], **values}
    return document


def started(federation: Federation, data: str, **options: Any) -> ThreadTrainer:
    return ThreadTrainer(federation.address, "ann", data, tls=federation.client_tls("ann"), **options)


@pytest.fixture
def aggregator(federation: Federation) -> Federation:
    federation.start_aggregator("--heartbeat-interval-s", "0.2", "--max-chunk-bytes", "65536")
    return federation


@pytest.fixture
def control(aggregator: Federation) -> Iterator[RunControl]:
    control = RunControl(aggregator.address, tls=aggregator.operator_tls)
    yield control
    control.close()


@pytest.fixture
def trainer(aggregator: Federation, data: str) -> Iterator[ThreadTrainer]:
    trainer = started(aggregator, data)
    yield trainer
    trainer.end()


def completed(control: RunControl, run_id: str, status: int = types_pb2.RUN_STATUS_COMPLETED) -> list[dict[str, Any]]:
    """The run's metrics once it has ended so."""
    eventually(lambda: control.get(run_id).status == status, "the run ends", 30)
    return [json.loads(line) for line in control.metrics_lines(run_id) if line]


def said(caplog: pytest.LogCaptureFixture, level: int) -> list[dict[str, Any]]:
    """The events of a level that were logged."""
    return [vars(record)["msg"] for record in caplog.records if record.levelno == level]


def the_client(control: RunControl) -> Client:
    (client,) = control.stub.ListClients(run_pb2.ListClientsRequest(), timeout=10).clients
    return client_from_proto(client)


def is_idle(control: RunControl) -> bool:
    client = the_client(control)
    return client.is_connected and client.activity is ClientActivity.IDLE and client.run_id == ""


def test_a_trainer_serves_one_run_after_another(trainer: ThreadTrainer, control: RunControl) -> None:
    first = completed(control, control.create(a_document(), "first").run_id)
    second = completed(control, control.create(a_document(), "second").run_id)
    assert first == second
    assert first[-1]["accuracy"]["ann"] is not None
    done = {"outcome": "done"}  # a task is counted after the answer to its report, which ends the run
    eventually(lambda: trainer.value("tasks_total", kind="evaluate", **done) == 4, "the last evaluation is counted")
    assert trainer.value("tasks_total", kind="train", **done) == 4
    assert trainer.value("transfer_bytes_total", direction="sent", kind="model") > 0
    assert trainer.value("transfer_bytes_total", direction="received", kind="prototypes") > 0
    eventually(lambda: is_idle(control), "the trainer is idle")


def test_a_training_that_runs_while_the_aggregator_dies_is_not_thrown_away(
    aggregator: Federation, trainer: ThreadTrainer, control: RunControl
) -> None:
    undisturbed = completed(control, control.create(a_document(steps=200), "undisturbed").run_id)
    before = trainer.num_samples
    run_id = control.create(a_document(steps=200), "disturbed").run_id
    eventually(lambda: trainer.num_samples > before, "training begins")
    aggregator.processes["aggregator"].kill()
    eventually(lambda: trainer.value("retries_total", operation="commit") > 0, "the update waits for the aggregator")
    assert trainer.value("aggregator_connected") == 0
    aggregator.start_aggregator()
    assert completed(control, run_id) == undisturbed
    assert trainer.num_samples == 2 * before
    assert trainer.value("tasks_total", kind="train", outcome="cancelled") == 0
    assert trainer.value("aggregator_connected") == 1


def test_a_pause_that_is_taken_back_at_once_cannot_leave_the_trainer_without_work(
    trainer: ThreadTrainer, control: RunControl
) -> None:
    run_id = control.create(a_document(steps=300), "hurried").run_id
    eventually(lambda: trainer.num_samples > 0, "training begins")
    for _ in range(5):
        control.steer(run_id, PauseRun(now=True))
        control.steer(run_id, ResumeRun())
    assert len(completed(control, run_id)) == 2


def test_a_trainer_that_finds_no_aggregator_says_so_and_comes_in_when_there_is_one(
    federation: Federation, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    federation.port = free_port()
    with caplog.at_level(logging.INFO, "trainer"):
        trainer = started(federation, data)
        try:
            eventually(lambda: trainer.value("retries_total", operation="join") >= 2, "it tries again")
            (warning,) = said(caplog, logging.WARNING)
            assert warning["reason"] == "AGGREGATOR_UNAVAILABLE"
            assert f"no aggregator answers at {federation.address}" in warning["detail"]
            federation.start_aggregator()
            eventually(lambda: trainer.value("aggregator_connected") == 1, "it comes in")
        finally:
            trainer.end()
    assert trainer.error is None


def test_of_two_trainers_for_one_client_the_second_waits_until_the_first_is_gone(
    aggregator: Federation, trainer: ThreadTrainer, control: RunControl, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    eventually(lambda: trainer.value("aggregator_connected") == 1, "the first is in")
    with caplog.at_level(logging.INFO, "trainer"):
        second = started(aggregator, data, token="another-token-of-some-length")
        try:
            eventually(lambda: second.value("retries_total", operation="join") >= 1, "the second tries")
            assert [warning["reason"] for warning in said(caplog, logging.WARNING)] == ["CLIENT_ID_TAKEN"]
            trainer.end()
            eventually(lambda: second.value("aggregator_connected") == 1, "the second takes over", 20)
            assert len(completed(control, control.create(a_document()).run_id)) == 2
        finally:
            second.end()
    assert second.value("tasks_total", kind="train", outcome="done") == 2


def test_data_that_do_not_fit_are_reported_once_and_the_trainer_is_there_for_the_next_run(
    aggregator: Federation, control: RunControl, data: str, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = started(aggregator, data, retry_failed_s=0.05)
    try:
        with caplog.at_level(logging.INFO, "trainer"):
            run_id = control.create(a_document(data={"classes": ["x", "y"]}), "wrong").run_id
            eventually(lambda: trainer.value("tasks_total", kind="init", outcome="failed") >= 3, "it tries again")
        (failure,) = said(caplog, logging.ERROR)
        assert failure["reason"] == "INVALID_DATA"
        problem = eventually(lambda: the_client(control).problem, "the aggregator knows")
        assert (problem.reason, problem.is_fatal) == ("INVALID_DATA", True)
        assert "--data" in problem.hint
        control.steer(run_id, StopRun())
        assert len(completed(control, control.create(a_document(), "right").run_id)) == 2
    finally:
        trainer.end()


def test_a_trainer_without_data_ends_with_a_sentence(aggregator: Federation) -> None:
    trainer = started(aggregator, "npz:/nowhere.npz")
    trainer.wait()
    assert isinstance(trainer.error, InvalidData)
    assert "nowhere.npz" in trainer.error.detail


def test_a_trainer_that_the_aggregator_refuses_for_good_ends(aggregator: Federation, data: str) -> None:
    trainer = started(aggregator, data, token="short")
    trainer.wait()
    assert isinstance(trainer.error, InvalidArgument)
    assert "instance_token" in trainer.error.detail


def test_a_process_ends_cleanly_on_a_signal_and_shares_its_state_directory_with_none(
    aggregator: Federation, control: RunControl, data: str
) -> None:
    process = aggregator.start_trainer("ann", data)
    control.create(a_document(steps=100_000))
    eventually(lambda: "task_begun" in process.log() and the_client(control).progress > 0, "training begins")
    twin = aggregator.trainer("twin", "ann", data, state_dir=aggregator.folder / "trainer-ann")
    twin.start()
    eventually(lambda: not twin.is_running, "the twin ends")
    assert twin.end() == 2
    assert "another trainer uses the state directory" in twin.log()
    assert process.end(signal.SIGTERM, timeout_s=15) == 0
    assert "trainer_ended" in process.log()
    log = aggregator.processes["aggregator"].log
    eventually(lambda: '"client_left"' in log(), "its lease ends")
    assert '"client_lost"' not in log(), "who was ended on purpose is not looked for"
    early = aggregator.start_trainer("early", data)
    eventually(lambda: "trainer_starting" in early.log(), "it starts")
    assert early.end(signal.SIGINT, timeout_s=15) == 0
    assert "Traceback" not in process.log() + twin.log() + early.log()
