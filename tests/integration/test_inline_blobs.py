"""Small blobs travel inside commits and tasks, over streams and polls; they are transferred where one end takes none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import MODEL, TaskKind
from tests.chaos.network import undisturbed
from tests.chaos.test_lost_answers import Aggregator
from tests.support.federation.grpc_client import GrpcClient
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually

NAMES = ("ann", "bob")
ROUNDS = 3
WAIT_S = 60.0


@pytest.fixture(params=[256 << 10, 0], ids=["inline", "uploaded"])
def aggregator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Aggregator]:
    """One that takes and sends small blobs inside messages, and one that takes none."""
    with Federation(tmp_path) as federation:
        flags = ("--max-inline-bytes", str(request.param), "--heartbeat-interval-s", "30")
        federation.start_aggregator(*flags)
        aggregator = Aggregator(federation)
        aggregator.is_inline = request.param > 0
        yield aggregator
        aggregator.control.close()


def finish(aggregator: Aggregator, run_id: str) -> list[str]:
    control = aggregator.control
    eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", WAIT_S)
    return control.metrics_lines(run_id)


@pytest.mark.parametrize("poll_hold_s", [None, 5.0], ids=["stream", "polls"])
def test_a_round_of_small_models_needs_a_commit_and_a_report_of_each_client(
    aggregator: Aggregator, tmp_path: Path, poll_hold_s: float | None
) -> None:
    document = a_document("fedplcc", clients=NAMES, run={"rounds": ROUNDS})
    clients = [NumpyClient(name) for name in NAMES]
    address = aggregator.federation.address
    trainers = [
        NumpyTrainer(address, client, poll_hold_s=poll_hold_s, tls=aggregator.federation.client_tls(client.client_id))
        for client in clients
    ]
    with trainers[0], trainers[1]:
        lines = finish(aggregator, aggregator.control.create(document).run_id)
    assert lines == undisturbed(tmp_path / "undisturbed", [NumpyClient(name) for name in NAMES], document)
    updates = ROUNDS * len(NAMES) + 1  # and the first model
    assert aggregator.handled("CommitUpdate") == updates
    assert aggregator.handled("ReportEvaluation") == ROUNDS * len(NAMES)
    transfers = {
        method: aggregator.handled(method)
        for method in ("GetUploadStatus", "UploadModel", "UploadPrototypes", "DownloadBlob")
    }
    if aggregator.is_inline:
        assert set(transfers.values()) == {0}, transfers
    else:
        assert transfers["UploadModel"] == updates
        assert transfers["DownloadBlob"] > 0
    for kind in ("model", "prototypes"):
        for direction, way in (("sent", "received"), ("received", "sent")):
            moved = sum(trainer.count("transfer_bytes", way, kind) for trainer in trainers)
            assert aggregator.value("fedplcc_transfer_bytes_total", direction=direction, kind=kind) == moved > 0


def test_a_client_that_takes_none_is_sent_no_bytes_with_its_tasks_and_uploads_its_own(
    aggregator: Aggregator, tmp_path: Path
) -> None:
    document = a_document("fedplcc", clients=("ann",), run={"rounds": 1})
    federation = aggregator.federation
    ann = GrpcClient(federation.address, NumpyClient("ann"), tls=federation.client_tls("ann"))
    try:
        assert ann.join().limits.max_inline_bytes == (256 << 10 if aggregator.is_inline else 0)
        run_id = aggregator.control.create(document).run_id
        for response in ann.tasks():
            assert not response.inline_blobs
            if response.task.kind == types_pb2.TASK_KIND_WAIT:
                if aggregator.control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED:
                    break
                continue
            ann.perform(task_from_proto(response.task))
        assert finish(aggregator, run_id) == undisturbed(tmp_path / "undisturbed", [NumpyClient("ann")], document)
    finally:
        ann.close()


def test_a_stream_sends_a_blob_once_and_none_that_the_trainer_says_it_holds(aggregator: Aggregator) -> None:
    document = a_document("fedplcc", clients=("ann",), run={"rounds": 2})
    federation = aggregator.federation
    ann = GrpcClient(federation.address, NumpyClient("ann"), tls=federation.client_tls("ann"))
    try:
        ann.join()
        aggregator.control.create(document)
        taken = round_pb2.InlineBlobs(max_bytes=1 << 20)
        request = round_pb2.SyncRoundRequest(client_id="ann", instance_token=ann.token, inline_blobs=taken)
        came: dict[tuple[int, TaskKind], list[int]] = {}
        for response in ann.stub.SyncRound(request, timeout=WAIT_S):
            task = task_from_proto(response.task)
            if task.kind is TaskKind.WAIT:
                continue
            came[task.round, task.kind] = [len(data) for data in response.inline_blobs]
            if task.round == 2 and task.kind is TaskKind.TRAIN:
                break
            ann.perform(task)
        model, prototypes = task.payload.tensor_group(MODEL), task.payload.prototype_sets[0]
        assert model is not None
        if aggregator.is_inline:
            assert came[1, TaskKind.EVALUATE] == [model.size_bytes]
            assert came[2, TaskKind.TRAIN] == [prototypes.size_bytes]  # the model came when it was evaluated
        else:
            assert not any(came.values())
        held = round_pb2.InlineBlobs(max_bytes=1 << 20, held_sha256s=[model.sha256, prototypes.sha256])
        few = round_pb2.InlineBlobs(max_bytes=prototypes.size_bytes)
        for said, expected in ((held, 0), (few, 0), (taken, 2)):
            request = round_pb2.SyncRoundRequest(client_id="ann", instance_token=ann.token, inline_blobs=said)
            first = next(iter(ann.stub.SyncRound(request, timeout=WAIT_S)))
            assert len(first.inline_blobs) == (expected if aggregator.is_inline else 0)
    finally:
        ann.close()
