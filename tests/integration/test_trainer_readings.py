"""Readings of real trainers arrive where people look: REST, the aggregator's /metrics, the trainer's own; or nowhere."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually, free_port

TOLD = {"samples_per_second", "batch_seconds", "data_seconds", "process_resident_bytes", "unreadable_files"}
"""Of a trainer without a GPU."""
DOCUMENT = {
    "run": {"method": "fedplcc", "rounds": 1, "clients": ["ann", "shy"]},
    "model": {"name": "cnn4"},
    "data": {"classes": ["a", "b"], "image_size": 16},
    "training": {"local_steps": 3, "batch_size": 4},
}


def written(path: Path) -> str:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (12, 16, 16, 3)).astype(np.uint8), np.arange(12) % 2
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels, classes=["a", "b"])
    return f"npz:{path}"


def series(port: int) -> dict[tuple[str, str], float]:
    """What /metrics has, by name and client."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, sample.labels.get("client", "")): sample.value for family in families for sample in family.samples
    }


@pytest.mark.timeout(300)
def test_readings_arrive_in_rest_and_under_the_clients_name_unless_the_site_keeps_them(tmp_path: Path) -> None:
    data, port, named = written(tmp_path / "images.npz"), free_port(), "Klinik Köln, Haus 3"
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.2")
        ann = federation.start_trainer("ann", data, "--metrics-port", str(port), "--display-name", named)
        shy = federation.trainer("trainer-shy", "shy", data, state_dir=tmp_path / "shy")
        (tmp_path / "policy.toml").write_text('approve = "always"\n[leaves]\nreadings = false\n')
        shy.environment = {"FEDPLCC_POLICY": str(tmp_path / "policy.toml")}
        shy.start()
        federation.start_gateway()

        def client(name: str) -> dict[str, Any]:
            answer = federation.ask("/v1/clients")
            clients: dict[str, dict[str, Any]] = {each["client_id"]: each for each in answer["clients"]}
            return clients.get(name, {})

        eventually(lambda: bool(client("ann") and client("shy")), "both are in", 120)
        assert [client(name)["display_name"] for name in ("ann", "shy")] == [named, ""]
        assert client("ann")["readings"].keys() <= {"process_resident_bytes"}, "nothing of a training before the first"
        control = RunControl(federation.address, tls=federation.operator_tls)
        run_id = control.create(DOCUMENT).run_id
        eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", 120)
        control.close()

        told = eventually(lambda: all_told(client("ann")), "the speed is told")
        assert told["data_seconds"] < told["batch_seconds"]
        assert told["samples_per_second"] == pytest.approx(4 / told["batch_seconds"])
        assert told["process_resident_bytes"] > 50e6, "torch is in it"
        assert client("shy")["readings"] == {}

        odd = NumpyTrainer(federation.address, NumpyClient("odd"), tls=federation.client_tls("odd"))
        odd.runner.measured = {"battery_kelvin": 290.0, "batch_seconds": 0.5}
        with odd:
            later = eventually(lambda: client("odd").get("readings") or None, "a site of a later version tells more")
            assert later == {"battery_kelvin": 290.0, "batch_seconds": 0.5}
            exported = eventually(lambda: with_client(series(federation.metrics_port), "odd"), "its series are there")
        assert exported["fedplcc_client_batch_seconds", "odd"] == 0.5
        assert named not in json.dumps(federation.ask(f"/v1/runs/{run_id}/manifest"), ensure_ascii=False)
        assert not [key for key in exported if "battery" in f"{key}"], "an unknown name is no metric and no label"
        for name in ("training_samples_per_second", "batch_seconds", "data_seconds"):
            assert exported[f"fedplcc_client_{name}", "ann"] > 0
            assert (f"fedplcc_client_{name}", "shy") not in exported
        assert not [key for key in exported if "device" in key[0]], "there is no GPU"

        own = series(port)
        assert own["fedplcc_training_samples_per_second", ""] == pytest.approx(told["samples_per_second"])
        assert own["fedplcc_training_batch_seconds_count", ""] == own["fedplcc_training_data_seconds_count", ""] == 3
        assert own["process_resident_memory_bytes", ""] > 50e6
        assert own["process_cpu_seconds_total", ""] > 0
        assert not [key for key in own if "device" in key[0]], "there is no GPU"
        assert ann.is_running
        assert shy.is_running


def with_client(found: dict[tuple[str, str], float], name: str) -> dict[tuple[str, str], float] | None:
    return found if ("fedplcc_client_batch_seconds", name) in found else None


def all_told(client: dict[str, Any]) -> dict[str, float] | None:
    readings: dict[str, float] = client["readings"]
    return readings if readings.keys() >= TOLD else None
