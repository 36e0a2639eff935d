"""A live aggregator's state: examined and backed up in the middle of a run, lost, restored elsewhere, gone on with."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.types import Task, TaskKind
from tests.support.federation.grpc_client import GrpcClient, RunControl
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation, eventually
from tests.support.hosts.memory_folder import memory_folder

ROUNDS = 24
FLAGS = ("--keep-models", "2", "--keep-prototypes", "2", "--keep-updates", "1", "--heartbeat-interval-s", "1")
DOCUMENT = a_document("fedplcc", run={"rounds": ROUNDS})


def clients() -> list[NumpyClient]:
    return [NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7))]


@contextmanager
def training(federation: Federation) -> Iterator[None]:
    """Let both clients do their tasks until the block ends or the aggregator is gone."""
    ending = threading.Event()
    remote = [
        GrpcClient(federation.address, client, tls=federation.client_tls(client.client_id)) for client in clients()
    ]

    def is_over(task: Task) -> bool:
        return ending.is_set() and task.kind is TaskKind.WAIT

    def work(client: GrpcClient) -> None:
        with suppress(FedplccError):  # it ends as the aggregator does
            client.follow(is_over)

    for client in remote:
        client.join()
    threads = [threading.Thread(target=work, args=(client,)) for client in remote]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for client in remote:
            client.close()
        for thread in threads:
            thread.join(30)


def command(*words: object) -> str:
    answer = CliRunner().invoke(app, [str(word) for word in words])
    assert answer.exit_code == ExitCode.OK, answer.output
    return answer.stdout


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[list[str]]:
    with memory_folder() as name, LocalFederation(Path(name), clients()) as federation:
        federation.join()
        run = federation.coordinator.create_run("undisturbed", DOCUMENT)
        federation.run_to_end(run.run_id)
        yield federation.metrics_lines(run.run_id)


def test_a_run_goes_on_from_a_backup_that_was_made_while_it_ran(folder: Path, undisturbed: list[str]) -> None:
    state, restored = folder / "first" / "aggregator", folder / "second" / "aggregator"
    (folder / "first").mkdir()
    (folder / "second").mkdir()
    with Federation(folder / "first") as first:
        first.start_aggregator(*FLAGS)
        control = RunControl(first.address, tls=first.operator_tls)
        run_id = control.create(DOCUMENT).run_id
        with training(first):
            eventually(lambda: control.get(run_id).round >= 5, "the run is in its middle")
            assert "0 problems" in command("doctor", state)
            command("state", "backup", state, folder / "backup")
            begin = control.get(run_id).round
            eventually(lambda: control.get(run_id).round >= min(begin + 3, ROUNDS), "the run went on")
            control.close()
            first.processes["aggregator"].kill()
    command("state", "restore", folder / "backup", restored)
    with Federation(folder / "second") as second:
        second.start_aggregator(*FLAGS)
        control = RunControl(second.address, tls=second.operator_tls)
        assert 5 <= control.get(run_id).round < ROUNDS, "the backup was of the middle"
        with training(second):
            eventually(lambda: bool(control.metrics_lines(run_id)[ROUNDS - 1 :] > [""]), "the run ends")
        assert control.metrics_lines(run_id) == undisturbed
        control.close()
        eventually(lambda: len(list(restored.glob("blobs/*/*"))) < 25, "garbage is collected in the background")
        assert second.processes["aggregator"].end() == 0
    last_model = json.loads(undisturbed[-1])["model_sha256"]
    assert last_model in command("state", "audit", restored, "--replay", run_id, "--round", ROUNDS)
    assert "0 problems" in command("doctor", restored)
