"""A real aggregator on a PostgreSQL database: both of them die in the middle of a run, and the bytes are those of SQLite."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from fedplcc.shared.gen.fedplcc.v1.run_service_pb2 import (
    CreateRunRequest,
    GetRunRequest,
    ListRoundsRequest,
)
from fedplcc.shared.gen.fedplcc.v1.run_service_pb2_grpc import RunServiceStub
from fedplcc.shared.gen.fedplcc.v1.types_pb2 import RUN_STATUS_COMPLETED as COMPLETED
from fedplcc.shared.identity.names import Role
from fedplcc.shared.types import Task, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyRunner, NumpyTrainer
from tests.support.federation.processes import Federation, eventually
from tests.support.hosts.postgres import PASSWORD, Server
from tests.support.identity.issued import channel_of

ROUNDS = 4
RUN_S = 120.0
"""Bound on a whole run of a numpy federation on a busy machine."""


def the_clients() -> list[NumpyClient]:
    return [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]


def the_document() -> dict[str, Any]:
    return a_document("fedplcc", run={"rounds": ROUNDS})


class Disturbed(NumpyRunner):
    """A client at whose place something happens before it trains in a round."""

    def __init__(self, client: NumpyClient, disturbances: dict[int, Callable[[], None]]) -> None:
        super().__init__(client)
        self.disturbances = disturbances

    def perform(self, task: Task, *arguments: Any, **keywords: Any) -> None:
        if task.kind is TaskKind.TRAIN:
            self.disturbances.pop(task.round, lambda: None)()
        super().perform(task, *arguments, **keywords)


def metrics_on_sqlite(folder: Path) -> list[str]:
    """The lines of the undisturbed run, which hold the hashes of every round's model and prototypes."""
    folder.mkdir()
    with closing(LocalFederation(folder, the_clients())) as federation:
        federation.join()
        run = federation.coordinator.create_run("the run", the_document())
        federation.run_to_end(run.run_id)
        return federation.metrics_lines(run.run_id)


def test_a_run_whose_aggregator_and_database_server_die_ends_in_the_bytes_of_sqlite(
    federation: Federation, postgres: Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPLCC_DATABASE_URL", database_url)
    database = database_url.rpartition("/")[2]
    aggregator = federation.start_aggregator("--heartbeat-interval-s", "0.3")

    def kill_the_aggregator() -> None:
        aggregator.kill()
        federation.start_aggregator()

    def crash_the_server() -> None:
        postgres.crash()
        postgres.start()

    def take_the_server_away() -> None:
        postgres.stop()
        eventually(lambda: "the database: " in aggregator.log(), "the aggregator misses its database", RUN_S)
        postgres.start()

    disturbances = {1: kill_the_aggregator, 2: crash_the_server, 3: take_the_server_away}
    ann, bob = the_clients()
    disturbed = NumpyTrainer(
        federation.address, ann, runner=Disturbed(ann, disturbances), tls=federation.client_tls("ann")
    )
    with (
        disturbed,
        NumpyTrainer(federation.address, bob, tls=federation.client_tls("bob")),
        channel_of(federation.address, federation.operator_tls) as channel,
    ):
        runs = RunServiceStub(channel)
        document = json.dumps(the_document())
        request = CreateRunRequest(request_id="the run", config_json=document)

        def is_created() -> str | None:
            with suppress(grpc.RpcError):  # the kill in round 1 may take the answer away; the request is the same run
                return str(runs.CreateRun(request, timeout=30).run.run_id)
            return None

        run_id = eventually(is_created, "the run is created", RUN_S)

        def has_ended() -> bool:
            with suppress(grpc.RpcError):  # the database is away
                return bool(runs.GetRun(GetRunRequest(run_id=run_id), timeout=30).run.status == COMPLETED)
            return False

        eventually(has_ended, "the run completes", RUN_S)
        rounds = runs.ListRounds(ListRoundsRequest(run_id=run_id), timeout=30).rounds
    assert disturbances == {}
    assert [each.metrics_json for each in rounds] == metrics_on_sqlite(tmp_path / "sqlite")
    history = [kind for (kind,) in postgres.execute("SELECT type FROM events ORDER BY sequence", database)]
    assert history.count("run_recovered") == 1, "only the killed aggregator forgot"
    assert history.count("round_committed") == ROUNDS + 1

    log = aggregator.log()
    assert f'"database": "postgresql://127.0.0.1:{postgres.port}/' in log
    assert not list((tmp_path / "aggregator").glob("*.sqlite*"))
    for secret in (PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in log
    assert aggregator.end() == 0


def test_an_aggregator_whose_database_another_took_ends_and_says_so(
    federation: Federation, postgres: Server, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPLCC_DATABASE_URL", database_url)
    process, operator = federation.start_aggregator(), federation.operator_tls
    _ = federation.credentials(Role.GATEWAY, "tests")  # admitted while it can write
    # What a process on another host does that took the database while this one was cut off.
    postgres.execute("UPDATE writer SET token = 'another'", database_url.rpartition("/")[2])
    request = CreateRunRequest(request_id="x", config_json=json.dumps(the_document()))
    with channel_of(federation.address, operator) as channel:
        runs = RunServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            runs.CreateRun(request, timeout=30)
    said = "another aggregator wrote to it; it ends, and its next start reads what is there"
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert said in str(refused.value.details())
    eventually(lambda: not process.is_running, "the aggregator ends", RUN_S)
    assert process.end() == 4
    (line,) = [json.loads(line) for line in process.log().splitlines() if "database_lost" in line]
    assert said in line["detail"]
