"""Sites that cannot do their part, each for another reason: the run goes on, and REST says who, why and what to do."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from tests.support.federation.class_folders import NUM_PER_CLASS, write_class_folders
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import CLASSES, NumpyClient
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, Process, eventually

FILE_LIMIT_BYTES = 200_000
"""The logs stay below it; an update of the model does not."""

MODEL = """
import os
import torch
from torch import nn

class Net(nn.Module):
    feature_dim = 8

    def __init__(self, num_classes, image_size):
        super().__init__()
        self.base = nn.Sequential(nn.Flatten(), nn.Linear(3 * image_size**2, 400), nn.ReLU(), nn.Linear(400, 8))
        self.classifier = nn.Linear(8, num_classes)

    def features(self, x):
        if len(x) > 2 and os.environ.get("SITE") == "memory":
            x = x + torch.ones(2**46, dtype=x.dtype).sum()
        if len(x) > 2 and os.environ.get("SITE") == "code":
            raise LookupError("the name of a patient")
        return self.base(x)
"""


def write_site(folder: Path) -> str:
    """Class folders with one file that is no image."""
    write_class_folders(folder)
    (folder / "train" / CLASSES[0] / "broken.png").write_bytes(b"no image")
    return f"folder:{folder}"


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    (tmp_path / "site_model.py").write_text(MODEL)
    with Federation(tmp_path) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "0.5")
        yield federation


def get(federation: Federation, path: str) -> Any:
    return federation.ask(path, Accept="application/json")


def limit_files(process: Process, size_bytes: int) -> None:
    """Let the kernel refuse what the process writes beyond a file's size, as a full disk does."""
    _soft, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def run_to_end(control: RunControl, **sections: Any) -> str:
    document: dict[str, Any] = {
        "run": {"method": "moon", "rounds": 2},
        "model": {"name": "site_model:Net"},
        "data": {"classes": list(CLASSES), "image_size": 16},
        "training": {"local_steps": 1, "batch_size": 4},
    }
    for name, values in sections.items():
        document[name] = {**document.get(name, {}), **values}
    run_id = control.create(document).run_id
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", 120)
    return run_id


@pytest.mark.timeout(300)
def test_a_run_goes_on_without_sites_that_fail_and_says_of_each_which_why_and_what_to_do(
    federation: Federation, control: RunControl, tmp_path: Path
) -> None:
    data = write_site(tmp_path / "data")
    names = ("ann", "code", "disk", "memory")
    processes = {
        name: federation.trainer(
            f"trainer-{name}", name, data, "--allow-code", "site_model:Net", state_dir=tmp_path / name
        )
        for name in names
    }
    for name, process in processes.items():
        process.environment = {"SITE": name}
        process.start()
    eventually(lambda: "trainer_starting" in processes["disk"].log(), "the trainer has opened its log")
    limit_files(processes["disk"], FILE_LIMIT_BYTES)
    federation.start_gateway()
    bob = NumpyClient("bob", counts=(NUM_PER_CLASS,) * len(CLASSES))
    with NumpyTrainer(federation.address, bob, tls=federation.client_tls("bob")):
        run_id = run_to_end(control, run={"clients": [*names, "bob"]}, quorum={"min_clients": 2, "deadline_s": 0})

    events = get(federation, f"/v1/runs/{run_id}/events?page_size=1000")["events"]
    reported = {
        event["client_id"]: (event["data"]["reason"], event["data"]["detail"], event["data"]["hint"])
        for event in events
        if event["type"] == "client_problem" and event["data"]["is_fatal"]
    }
    reasons = {client_id: reason for client_id, (reason, _detail, _hint) in reported.items()}
    assert reasons == {"code": "MODEL_FAILED", "disk": "DISK_FULL", "memory": "OUT_OF_MEMORY"}
    assert "raised LookupError at site_model:" in reported["code"][1]
    assert "patient" not in json.dumps(events)
    assert "broken" not in json.dumps([events, get(federation, "/v1/clients")])
    assert str(tmp_path) not in json.dumps(events)
    hints = {client_id: hint for client_id, (_reason, _detail, hint) in reported.items()}
    assert "mend the model's code" in hints["code"]
    assert "make room on the disk of this trainer's --state-dir" in hints["disk"]
    assert "batch_size" in hints["memory"]
    rounds = get(federation, f"/v1/runs/{run_id}/rounds")["rounds"]
    for current in rounds[1:]:
        assert {"code", "disk", "memory"} == {entry["client_id"] for entry in current["dropped"]}

    clients = {client["client_id"]: client for client in get(federation, "/v1/clients")["clients"]}
    assert clients["ann"]["problem"]["reason"] == "UNREADABLE_FILES"
    assert clients["ann"]["readings"]["unreadable_files"] == 1
    assert clients["ann"]["num_examples"] == NUM_PER_CLASS * len(CLASSES)
    for name in ("code", "memory"):
        left = clients[name]["problem"]  # forgotten with the run's end, unless the trainer said it once more after that
        assert left is None or (left["reason"], left["hint"]) == (reasons[name], hints[name])
    assert all(process.is_running for process in processes.values())

    limit_files(processes["disk"], resource.RLIM_INFINITY)
    run_to_end(control, run={"clients": ["ann", "disk"]})
    assert processes["disk"].is_running


@pytest.mark.timeout(120)
def test_a_site_refuses_code_that_its_owner_did_not_list_and_rest_says_so(
    federation: Federation, control: RunControl, tmp_path: Path
) -> None:
    data = write_site(tmp_path / "data")
    federation.start_trainer("ann", data, "--allow-code", "site_model:Other")
    federation.start_gateway()
    document = {
        "run": {"method": "fedavg", "rounds": 1, "clients": ["ann"]},
        "model": {"name": "site_model:Net"},
        "data": {"classes": list(CLASSES), "image_size": 16},
    }
    run_id = control.create(document).run_id

    def problem() -> Any:
        problems = [client.get("problem") for client in get(federation, "/v1/clients")["clients"]]
        return next((problem for problem in problems if problem and problem["is_fatal"]), None)

    refused = eventually(problem, "the trainer reports the problem", 60)
    assert refused["reason"] == "CODE_NOT_ALLOWED"
    assert "site_model:Net" in refused["detail"]
    assert "--allow-code" in refused["hint"]
    events = get(federation, f"/v1/runs/{run_id}/events?page_size=1000")["events"]
    assert [event["data"]["reason"] for event in events if event["type"] == "client_problem"][-1:] == [
        "CODE_NOT_ALLOWED"
    ]
