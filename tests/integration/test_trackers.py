"""Trackers as people use them: a real MLflow server on loopback, TensorBoard and wandb without a network, and SIGKILL."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.runs.artifacts import read_record
from fedplcc.tracking.measurements import SECONDS, measurements
from fedplcc.tracking.round_events import recorded_rounds
from tests.support import ROOT
from tests.support.federation import tiny_federation
from tests.support.federation.processes import eventually
from tests.support.federation.served_gateway import ServedGateway
from tests.support.federation.simulations import hashed, simulated, write_config
from tests.support.later import later
from tests.support.records import kept_curves
from tests.support.records.kept_curves import Curves

if TYPE_CHECKING:
    from mlflow import MlflowClient

mlflow = later("mlflow")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # MLflow, wandb and TensorBoard about themselves

START_S = 120.0
RUN_S = 240.0
ROUNDS = 6


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of its own, on loopback."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    words += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and server.poll() is None:
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            time.sleep(0.2)
        else:
            pytest.fail(f"the MLflow server did not start: {(folder / 'log').read_text()[-2000:]}")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(START_S)


def mlflow_run(url: str, experiment: str) -> tuple[MlflowClient, str]:
    """The one run of an experiment."""
    client = mlflow.MlflowClient(url)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    (run,) = client.search_runs([found.experiment_id])
    return client, run.info.run_id


def rounds_of(curves: Curves) -> dict[str, list[int]]:
    return {name: [number for number, _ in values] for name, values in curves.items() if name != SECONDS}


def config_in(folder: Path, name: str) -> Path:
    tiny_federation.write_data(folder)
    return write_config(folder / "run.toml", tiny_federation.document(folder, run={"name": name, "rounds": ROUNDS}))


@pytest.mark.full
def test_a_simulation_that_is_killed_keeps_each_round_once_with_every_tracker(
    mlflow_server: str, tmp_path: Path
) -> None:
    config, out = config_in(tmp_path, "killed"), tmp_path / "out"
    words = [sys.executable, "-m", "fedplcc", "simulate", "--config", str(config), "--out", str(out), "--device", "cpu"]
    words += ["--log", "tensorboard", "--log", "jsonl", "--log", "wandb", "--log", f"mlflow:{mlflow_server}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def num_kept() -> int:
        file = out / "log.jsonl"
        return sum('"entry":"round"' in line for line in file.read_text().splitlines()) if file.exists() else 0

    for wanted in (2, 4):
        process = subprocess.Popen(words, env=environment, start_new_session=True, stdout=subprocess.DEVNULL)
        eventually(lambda wanted=wanted: num_kept() >= wanted, f"{wanted} rounds are kept", timeout_s=RUN_S)  # type: ignore[misc]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(RUN_S)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr

    client, run_id = mlflow_run(mlflow_server, "killed")
    curves = {
        "jsonl": kept_curves.of_jsonl(out / "log.jsonl"),
        "tensorboard": kept_curves.of_tensorboard(out / "tensorboard"),
        "wandb": kept_curves.of_wandb(out.glob("wandb/offline-run-*")),
        "mlflow": kept_curves.of_mlflow(client, run_id),
    }
    expected = {result.number: measurements(result) for result in recorded_rounds(read_record(out), out)}
    for kind, found in curves.items():
        names = {name for values in expected.values() for name in values}
        assert set(found) == names, kind
        for name in names - {SECONDS}:
            wanted_values = [(number, values[name]) for number, values in expected.items() if name in values]
            assert [number for number, _ in found[name]] == [number for number, _ in wanted_values], (kind, name)
            assert [value for _, value in found[name]] == pytest.approx([value for _, value in wanted_values]), kind
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["training.local_steps"] == "4"
    undisturbed = tmp_path / "undisturbed"
    simulated(tiny_federation.document(tmp_path, run={"name": "killed", "rounds": ROUNDS}), undisturbed)
    assert hashed(undisturbed) == hashed(out), "trackers and kills change no byte"


def test_a_deployed_run_is_followed_and_followed_again_with_the_values_of_its_metrics(
    mlflow_server: str, tmp_path: Path
) -> None:
    with ServedGateway(tmp_path) as gateway:
        run_id = gateway.create_and_finish(run={"name": "deployed", "rounds": 3})
        words = ["run", "watch", run_id, "--gateway", gateway.url, "--log", f"jsonl:{tmp_path}/log.jsonl"]
        words += ["--log", f"tensorboard:{tmp_path}/boards", "--log", f"mlflow:{mlflow_server}"]
        for _ in range(2):
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
        lines = gateway.http.get(f"/v1/runs/{run_id}/rounds").json()["rounds"]
        metrics = [line["metrics"] for line in lines if line["metrics"] is not None]
    client, kept = mlflow_run(mlflow_server, "deployed")
    for curves in (
        kept_curves.of_jsonl(tmp_path / "log.jsonl"),
        kept_curves.of_tensorboard(tmp_path / "boards" / run_id),
        kept_curves.of_mlflow(client, kept),
    ):
        assert rounds_of(curves) == {name: [1, 2, 3] for name in rounds_of(curves)}
        assert [value for _, value in curves["accuracy/mean"]] == pytest.approx(
            [line["accuracy"]["mean"] for line in metrics]
        )
        assert [number for number, _ in curves[SECONDS]] == [1, 2, 3]
