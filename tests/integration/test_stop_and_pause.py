"""Stop means stopped, pause and resume lose nothing: in the middle of an upload, with the aggregator killed in between.

A real aggregator process, and the real shells of trainers around numpy clients, one of them behind a slow link.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import PauseRun, ResumeRun, StopRun
from tests.chaos.fault_proxy import FaultProxy
from tests.chaos.network import WideClient, undisturbed
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

SLOW_BYTES_PER_S = 60_000
"""A model of 160 kB takes 2.7 seconds."""
IDLE_S = 5.0
"""Two seconds on a quiet machine, and what a busy one adds."""
WAIT_S = 60.0
NAMES = ("ann", "bob")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """An aggregator that lives, and dies, through all tests of this module."""
    with Federation(tmp_path_factory.mktemp("federation")) as running:
        running.start_aggregator("--heartbeat-interval-s", "0.3", "--max-inline-bytes", "0")
        yield running


@pytest.fixture(scope="module")
def control(federation: Federation) -> Iterator[RunControl]:
    control = RunControl(federation.address, tls=federation.operator_tls)
    yield control
    control.close()


@pytest.fixture(scope="module")
def trainers(federation: Federation) -> Iterator[FaultProxy]:
    """Two trainers; the link of ann's."""
    with (
        FaultProxy(federation.address) as link,
        NumpyTrainer(link.address, WideClient("ann"), tls=federation.client_tls("ann")),
        NumpyTrainer(federation.address, WideClient("bob"), tls=federation.client_tls("bob")),
    ):
        yield link


@pytest.fixture
def link(trainers: FaultProxy) -> FaultProxy:
    """Ann's link, slow on its way up."""
    trainers.up.bytes_per_s = SLOW_BYTES_PER_S
    return trainers


def parts(federation: Federation) -> dict[str, int]:
    """Sizes of the uploads that are in the middle, by their file."""
    found = (federation.folder / "aggregator" / "incoming").glob("*/*.part")
    return {f"{path.parent.name}/{path.name}": path.stat().st_size for path in found}


def wait_in_upload(federation: Federation, control: RunControl, run_id: str, number: int) -> dict[str, int]:
    """Until ann is in the middle of an upload for this round."""

    def is_uploading() -> dict[str, int] | None:
        if control.get(run_id).round != number:
            return None
        return {name: size for name, size in parts(federation).items() if name.startswith("ann/") and size} or None

    return eventually(is_uploading, f"ann uploads in round {number}", WAIT_S)


def is_idle(control: RunControl) -> bool:
    return {client.activity for client in control.clients()} == {types_pb2.CLIENT_ACTIVITY_IDLE}


def test_a_run_paused_in_an_upload_whose_aggregator_is_killed_goes_on_from_the_same_byte(
    federation: Federation, control: RunControl, link: FaultProxy, tmp_path: Path
) -> None:
    document = a_document("fedplcc", run={"rounds": 1})
    run_id = control.create(document).run_id
    before = wait_in_upload(federation, control, run_id, 1)
    assert control.steer(run_id, PauseRun(now=True), request_id="p").status == types_pb2.RUN_STATUS_PAUSED
    eventually(lambda: is_idle(control), "everybody is idle", IDLE_S * 4)
    federation.processes["aggregator"].kill()
    federation.start_aggregator()
    assert control.get(run_id).status == types_pb2.RUN_STATUS_PAUSED
    kept = parts(federation)
    assert all(kept[name] >= size for name, size in before.items()), "what came stays"
    link.up.bytes_per_s = float("inf")
    assert control.steer(run_id, ResumeRun(), request_id="r").status == types_pb2.RUN_STATUS_RUNNING
    assert control.steer(run_id, PauseRun(now=True), request_id="p").status == types_pb2.RUN_STATUS_RUNNING, (
        "that one was done"
    )
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", WAIT_S)
    clients = [WideClient(name) for name in NAMES]
    assert control.metrics_lines(run_id) == undisturbed(tmp_path / "undisturbed", clients, document)
    assert parts(federation) == {}


def test_a_run_stopped_in_an_upload_leaves_everybody_idle_and_no_byte_for_ever(
    federation: Federation, control: RunControl, link: FaultProxy
) -> None:
    run_id = control.create(a_document("fedplcc", run={"rounds": 2})).run_id
    wait_in_upload(federation, control, run_id, 2)  # what the test before made of round 1 is stored already
    began = time.monotonic()
    control.steer(run_id, StopRun(), request_id="s")
    eventually(lambda: is_idle(control), "everybody is idle", 30)
    assert time.monotonic() - began <= IDLE_S
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_STOPPED, "the run has stopped", IDLE_S)
    assert control.steer(run_id, StopRun(), request_id="s").status == types_pb2.RUN_STATUS_STOPPED
    assert control.get(run_id).round == 2
    federation.processes["aggregator"].kill()
    # What the aggregator's collection does, days later: nobody goes on with what is left.
    left = parts(federation)
    assert BlobStore(federation.folder / "aggregator").uploads.expire(time.time() + 1) >= sum(left.values()) > 0
    assert not list((federation.folder / "aggregator" / "incoming").iterdir())
    federation.start_aggregator()
    link.up.bytes_per_s = float("inf")
    again = control.create(a_document("fedavg", run={"rounds": 1})).run_id
    eventually(lambda: control.get(again).status == types_pb2.RUN_STATUS_COMPLETED, "the next run completes", WAIT_S)
