"""The contract over real gRPC against a real aggregator process: whole runs, and everything that must be refused."""

from __future__ import annotations

import itertools
import signal
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedplcc.shared import errors
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import RunSpec, Task, TaskKind
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.statuses import translated
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation.grpc_client import DEADLINE_S, GrpcClient, RunControl
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.numpy_trainer import NumpyTrainer
from tests.support.federation.processes import Federation, eventually
from tests.support.identity.issued import channel_of

NUMBERS = itertools.count()
ANN, BOB = NumpyClient("ann"), NumpyClient("bob", counts=(2, 0, 1))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """One aggregator for all tests of this module; it outlives whatever they do to it."""
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        # Clients here send no heartbeats: a lease of 3 s is what a busy machine may stall between two calls.
        federation.start_aggregator(
            "--heartbeat-interval-s", "0.2", "--lease-heartbeats", "15", "--max-chunk-bytes", "4096"
        )
        yield federation


@pytest.fixture
def control(running: Federation) -> Iterator[RunControl]:
    control = RunControl(running.address, tls=running.operator_tls)
    yield control
    control.close()


@pytest.fixture
def ann(running: Federation) -> Iterator[GrpcClient]:
    """A client of this test's own, so that no other test's run asks it for anything."""
    client = dial(running, NumpyClient(f"ann-{next(NUMBERS)}"))
    yield client
    client.close()


def dial(federation: Federation, client: NumpyClient) -> GrpcClient:
    return GrpcClient(federation.address, client, tls=federation.client_tls(client.client_id))


def undisturbed(folder: Path, method: str) -> list[str]:
    """The metrics lines of the same run without sockets."""
    folder.mkdir()
    local = LocalFederation(folder, [ANN, BOB])
    local.join()
    run = local.coordinator.create_run("request", a_document(method))
    local.run_to_end(run.run_id)
    lines = local.metrics_lines(run.run_id)
    local.store.close()
    return lines


def a_train_task(client: GrpcClient, control: RunControl, method: str = "fedavg") -> Task:
    """Take a run of one client to its first TRAIN task."""
    client.join()
    control.create(a_document(method, clients=(client.client_id,)))
    return client.follow(lambda task: task.kind is TaskKind.TRAIN)[-1]


@pytest.mark.parametrize("method", ["fedavg", "fedplcc"])
def test_a_run_over_grpc_gives_the_bytes_of_a_run_without_sockets(
    running: Federation, control: RunControl, tmp_path: Path, method: str
) -> None:
    run_id = control.create(a_document(method)).run_id
    watchers = [
        threading.Thread(target=_until_completed, args=(running, client, control, run_id)) for client in (ANN, BOB)
    ]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join(30)
    assert control.metrics_lines(run_id) == undisturbed(tmp_path / "local", method)


def _until_completed(federation: Federation, client: NumpyClient, control: RunControl, run_id: str) -> None:
    dialled = dial(federation, client)
    dialled.join()
    stream = dialled.tasks()
    for response in stream:
        task = task_from_proto(response.task)
        if task.kind in (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE):
            dialled.perform(task)
        if task.kind is TaskKind.WAIT and control.get(run_id).status == 6:
            stream.close()
            break
    dialled.close()


@pytest.mark.parametrize("wish", [{"newest_first": True}, {"before_sequence": 9}])
def test_who_follows_a_run_cannot_ask_for_its_past_backwards(control: RunControl, wish: dict[str, Any]) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        list(control.stub.WatchRun(run_pb2.WatchRunRequest(follow=True, **wish), timeout=20))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_an_altered_blob_is_refused_and_starts_again_from_nothing(ann: GrpcClient, control: RunControl) -> None:
    task = a_train_task(ann, control)
    _update, blobs = ann.client.work(task, ann.download(task.payload.tensor_groups[0]))
    ((blob, data),) = blobs.items()
    altered = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(errors.BlobCorrupt):
        ann.upload_parts(task, blob, iter([(0, altered)]))
    assert ann.upload_status(task, blob).offset_bytes == 0


def test_a_truncated_blob_is_refused_and_resumes_from_its_last_byte(ann: GrpcClient, control: RunControl) -> None:
    task = a_train_task(ann, control)
    update, blobs = ann.client.work(task, ann.download(task.payload.tensor_groups[0]))
    ((blob, data),) = blobs.items()
    with pytest.raises(errors.BlobCorrupt):
        ann.upload_parts(task, blob, iter([(0, data[:120])]))
    assert ann.upload_status(task, blob).offset_bytes == 120
    with pytest.raises(errors.BlobNotFound):
        ann.commit(task, update)
    ann.upload(task, blob, data)
    assert ann.commit(task, update) == ann.commit(task, update)


def test_a_trainer_whose_upload_another_stream_of_it_ends_goes_on_where_that_one_got(
    running: Federation, control: RunControl
) -> None:
    """A second stream of the same upload takes over in the middle, and then sends what had arrived before."""
    client = NumpyClient(f"ann-{next(NUMBERS)}", size=100_000, has_linear_head=False)  # too large for CommitUpdate
    document = a_document(clients=(client.client_id,), run={"rounds": 1})
    with FaultProxy(running.address) as link, closing(dial(running, client)) as second:
        link.up.bytes_per_s = 100_000  # so that there is a middle
        with NumpyTrainer(link.address, client, tls=running.client_tls(client.client_id)) as trainer:
            eventually(lambda: trainer.count("is_connected") == 1, "the trainer is connected")
            run_id = control.create(document).run_id
            task = Task(kind=TaskKind.INIT, run=RunSpec(run_id=run_id, config_json="{}", config_hash=""))
            ((blob, data),) = client.work(task, None)[1].items()
            eventually(lambda: second.upload_status(task, blob).offset_bytes > 0, "a part of it arrived")
            with pytest.raises(errors.ChunkOutOfOrder):
                second.upload_parts(task, blob, iter([(0, data[:1000])]))
            link.up.bytes_per_s = 1e9
            eventually(lambda: control.get(run_id).status == types_pb2.RUN_STATUS_COMPLETED, "the run completes", 60)
            assert trainer.count("retries", "upload") > 0
    history = control.stub.WatchRun(run_pb2.WatchRunRequest(run_id=run_id, page_size=1000), timeout=DEADLINE_S)
    types = {response.event.type for response in history}
    assert not types & {"update_refused", "client_problem"}


def test_an_upload_must_begin_with_its_header(ann: GrpcClient) -> None:
    ann.join()
    chunk = round_pb2.UploadModelRequest(chunk=round_pb2.Chunk(offset_bytes=0, data=b"x"))
    with pytest.raises(errors.MalformedRequest), translated():
        ann.stub.UploadModel(iter([chunk]), timeout=DEADLINE_S)
    with pytest.raises(errors.MalformedRequest), translated():
        ann.stub.UploadModel(iter([]), timeout=DEADLINE_S)


def test_a_client_cannot_fetch_a_blob_that_its_task_does_not_name(ann: GrpcClient, control: RunControl) -> None:
    task = a_train_task(ann, control)
    _update, blobs = ann.client.work(task, ann.download(task.payload.tensor_groups[0]))
    ((blob, data),) = blobs.items()
    ann.upload(task, blob, data)
    with pytest.raises(errors.BlobNotFound):
        ann.download(blob)


def test_the_same_instance_takes_over_its_stream_at_once(ann: GrpcClient) -> None:
    ann.join()
    older = ann.tasks()
    assert next(older).WhichOneof("step") == "task"
    ann.join()
    newer = ann.tasks()
    assert next(newer).WhichOneof("step") == "task"
    assert next(older).end.reason == round_pb2.StreamEnd.REASON_SUPERSEDED
    newer.close()


def test_a_stream_ends_with_a_reason_when_the_lease_runs_out(ann: GrpcClient) -> None:
    ann.join()
    reasons = [step.end.reason for step in ann.tasks() if step.WhichOneof("step") == "end"]
    assert reasons == [round_pb2.StreamEnd.REASON_LEASE_EXPIRED]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"run": "\\ud800"}', "[" * 100_000])
def test_a_configuration_that_is_no_json_object_is_refused(control: RunControl, text: str) -> None:
    request = run_pb2.CreateRunRequest(request_id="request", config_json=text)
    with pytest.raises(errors.MalformedRequest), translated():
        control.stub.CreateRun(request, timeout=DEADLINE_S)


def test_ctrl_c_ends_the_aggregator_cleanly_and_the_next_start_goes_on(federation: Federation, tmp_path: Path) -> None:
    running = federation
    running.start_aggregator()
    control, ann = RunControl(running.address, tls=running.operator_tls), dial(running, ANN)
    task = a_train_task(ann, control)
    assert task.run is not None
    stream = ann.tasks()
    next(stream)
    ending = threading.Thread(target=running.processes["aggregator"].end, args=(signal.SIGINT,))
    ending.start()
    assert next(stream).end.reason == round_pb2.StreamEnd.REASON_SHUTTING_DOWN
    ending.join()
    assert running.processes["aggregator"].end() == 0
    running.start_aggregator()
    ann.join()
    _until_completed(running, ANN, control, task.run.run_id)
    assert control.get(task.run.run_id).status == 6
    with pytest.raises(AssertionError, match="ended"):
        _second_aggregator(running, tmp_path)
    control.close()
    ann.close()


def _second_aggregator(running: Federation, folder: Path) -> None:
    """Start another aggregator on the port that is taken."""
    other = Federation(folder / "other")
    other.folder.mkdir()
    other.port = running.port
    try:
        other.start_aggregator()
    finally:
        log = other.processes["aggregator"].log()
        assert "the port is taken" in log
        assert "Traceback" not in log


def test_what_a_scraper_sees_of_the_aggregator_counts_what_was_done(
    running: Federation, control: RunControl, ann: GrpcClient
) -> None:
    def scraped() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=10) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {
                " ".join([sample.name, *sorted(sample.labels.values())]): sample.value
                for family in families
                for sample in family.samples
            }

    before = scraped()
    task = a_train_task(ann, control, "fedplcc")
    update, blobs = ann.client.work(task, ann.download(task.payload.tensor_groups[0]))
    for number, (blob, data) in enumerate(blobs.items()):
        if not number:
            with pytest.raises(errors.BlobCorrupt):
                ann.upload_parts(task, blob, iter([(0, bytes(len(data)))]))
            with pytest.raises(errors.BlobIncomplete):
                ann.upload_parts(task, blob, iter([(0, data[:100])]))
        ann.upload(task, blob, data)
    ann.commit(task, update)
    ann.commit(task, update)
    after = scraped()

    def grew(*names: str) -> float:
        return after[" ".join(names)] - before[" ".join(names)]

    assert grew("fedplcc_client_updates_total", "accepted") == 2, "round 0 and round 1"
    assert grew("fedplcc_client_updates_total", "duplicate") == 1
    assert grew("fedplcc_client_updates_total", "blob_corrupt") == 1
    assert grew("fedplcc_transfers_resumed_total", "received") == 1
    assert grew("fedplcc_transfer_bytes_total", "prototypes", "received") > 0
    assert grew("fedplcc_transfer_bytes_total", "model", "sent") > 0
    assert after[" ".join(["fedplcc_build_info", *sorted(["aggregator", VERSION])])] == 1
    for name in ("fedplcc_round_duration_seconds_count", "fedplcc_round_phase_duration_seconds_count evaluate"):
        assert name in after
    assert after["fedplcc_runs running"] >= 1

    def calls(name: str, method: str, kind: str, *code: str) -> float:
        return grew(" ".join([f"grpc_server_{name}", *sorted([*code, "fedplcc.v1.RoundService", method, kind])]))

    assert calls("handled_total", "CommitUpdate", "unary", "OK") == 3, "of round 0 too"
    assert calls("handled_total", "UploadModel", "client_stream", "INVALID_ARGUMENT") == 2
    assert calls("started_total", "UploadPrototypes", "client_stream") == 1
    chunks = calls("msg_received_total", "UploadPrototypes", "client_stream")
    assert chunks == 1 + -(-len(blobs[update.payload.prototype_sets[0]]) // 200), "the header, and each chunk"
    assert calls("msg_sent_total", "UploadPrototypes", "client_stream") == 1
    assert calls("handling_seconds_count", "DownloadBlob", "server_stream") == 1


def test_reflection_is_served_in_plain_text_on_loopback_alone(running: Federation, tmp_path: Path) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with channel_of(running.address, running.operator_tls) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            list(reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([request])))
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    with Federation(tmp_path, tls=False) as plain:
        plain.start_aggregator()
        with open_channel(plain.address) as channel:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            names = {
                service.name
                for answer in stub.ServerReflectionInfo(iter([request]))
                for service in answer.list_services_response.service
            }
    assert {"fedplcc.v1.RoundService", "fedplcc.v1.RunService", "grpc.health.v1.Health"} <= names
