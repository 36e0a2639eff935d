"""A problem that a client reports stays visible until the client works again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.coordinator.attendance import MAX_LEFT_OUT
from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import ClientActivity, ClientProblem, EventQuery, Heartbeat
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document


def test_the_smallest_side_of_a_client_s_images_is_shown_while_it_is_connected(tmp_path: Path) -> None:
    ann = NumpyClient("ann")
    with LocalFederation(tmp_path, [ann]) as local:
        for _ in range(2):
            local.coordinator.join(replace(ann.record, smallest_side=64), ann.token)
        assert [client.smallest_side for client in local.coordinator.list_clients()] == [64]
        joined = local.coordinator.list_events(EventQuery(types=("client_joined",)))
        assert len(joined) == 1, "the second Join has changed nothing"


def test_a_problem_in_a_run_ends_with_the_run_and_one_in_another_stays(tmp_path: Path) -> None:
    ann = NumpyClient("ann")
    with LocalFederation(tmp_path, [ann]) as local:
        local.join()
        runs = [local.coordinator.create_run(name, a_document(clients=("ann",))).run_id for name in ("one", "other")]
        problems = [ClientProblem(reason="INVALID_DATA", detail=run_id, is_fatal=True) for run_id in runs]

        def shown() -> ClientProblem | None:
            local.coordinator.tick()
            (client,) = local.coordinator.list_clients()
            return client.problem

        for run_id, problem in zip(runs, problems, strict=True):
            local.heartbeat(ann, run_id=run_id, activity=ClientActivity.TRAINING, problem=problem)
        assert shown() == problems[1]
        local.heartbeat(ann)
        local.coordinator.steer(runs[1], StopRun())
        assert shown() == problems[0]
        local.coordinator.steer(runs[0], StopRun())
        assert shown() is None
        local.heartbeat(ann, run_id=runs[0], activity=ClientActivity.TRAINING, problem=problems[0])
        assert shown() == replace(problems[0], is_fatal=False)


def test_a_reading_that_cannot_be_is_said_once_and_the_heartbeat_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ann = NumpyClient("ann")
    with LocalFederation(tmp_path, [ann]) as local:
        local.join()
        why = "batch_seconds is nan, and not at least 0"
        odd = Heartbeat(client_id="ann", readings={"unreadable_files": 2.0}, left_out={"batch_seconds": why})
        for heartbeat in (odd, Heartbeat(client_id="ann"), odd):
            local.coordinator.heartbeat(heartbeat, ann.token)
        local.join()
        local.coordinator.heartbeat(odd, ann.token)
        (client,) = local.coordinator.list_clients()
        assert client.readings == {"unreadable_files": 2.0}
        many = {f"reading_{number}": "it cannot be" for number in range(2 * MAX_LEFT_OUT)}
        local.coordinator.heartbeat(Heartbeat(client_id="ann", left_out=many), ann.token)
    lines = [vars(record)["msg"] for record in caplog.records]
    told = [line for line in lines if line["event"] == "reading_left_out"]
    assert [(told[0][name]) for name in ("client_id", "reading", "reason", "level")] == [
        *("ann", "batch_seconds", why, "warning")
    ]
    assert [line["reading"] for line in told].count("batch_seconds") == 1
    assert len(told) == MAX_LEFT_OUT


def test_a_problem_outlives_a_new_connection_of_the_same_instance_and_ends_with_work_done(tmp_path: Path) -> None:
    ann = NumpyClient("ann")
    local = LocalFederation(tmp_path, [ann])
    local.join()
    run = local.coordinator.create_run("request", a_document(clients=("ann",)))
    problem = ClientProblem(reason="INVALID_DATA", detail="no", is_fatal=True)
    local.coordinator.heartbeat(Heartbeat(client_id="ann", problem=problem), ann.token)
    local.join()
    assert [client.problem for client in local.coordinator.list_clients()] == [problem]
    local.run_to_end(run.run_id)
    assert [client.problem for client in local.coordinator.list_clients()] == [None]
    local.store.close()
