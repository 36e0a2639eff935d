"""A request arrives and its answer is lost: asked again it is answered as the first time, and counts once."""

from __future__ import annotations

import asyncio
import itertools
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.shared.errors import Unavailable
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.process.metrics import new_registry
from fedplcc.shared.types import ClientActivity, ClientProblem, CommittedUpdate, Heartbeat, Task, TaskKind
from fedplcc.trainer.aggregator.connection import AggregatorConnection
from fedplcc.trainer.aggregator.task_connection import TaskConnection
from fedplcc.trainer.aggregator.task_stream import StreamEnd
from fedplcc.trainer.cancellation import never
from fedplcc.trainer.readings.metrics import TrainerMetrics
from tests.chaos.fault_proxy import FaultProxy
from tests.support.federation.grpc_client import RunControl
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation, eventually

WAIT_S = 60.0
NUMBERS = itertools.count()


class Aggregator:
    """A running aggregator as those see it who look past the link."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.control = RunControl(federation.address, tls=federation.operator_tls)
        self.is_inline = True

    def value(self, name: str, **labels: str) -> float:
        """A sample of its /metrics; 0 where there is none yet."""
        url = f"http://127.0.0.1:{self.federation.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples if sample.name == name]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def handled(self, method: str) -> float:
        """How many calls of a method it has answered with success."""
        return self.value("grpc_server_handled_total", grpc_method=method, grpc_code="OK")

    def events(self, run_id: str, kind: str, client_id: str = "") -> list[Any]:
        history = self.control.stub.WatchRun(run_pb2.WatchRunRequest(run_id=run_id, page_size=1000), timeout=WAIT_S)
        found = [response.event for response in history if response.event.type == kind]
        return [event for event in found if client_id in ("", event.client_id)]

    @contextmanager
    def losing_an_answer(
        self, link: FaultProxy, method: str, *, is_asked_again: bool = True, is_swallowing: bool = True
    ) -> Iterator[None]:
        """Within the block, let a call of this method arrive over the link and be answered, lose the answer, then cut."""
        before, has_failed = self.handled(method), threading.Event()
        link.down.is_swallowing = is_swallowing

        def cut_when_answered() -> None:
            try:
                eventually(lambda: self.handled(method) > before, f"{method} arrives", WAIT_S)
            except AssertionError:
                has_failed.set()
            link.down.mend()
            link.cut()

        thread = threading.Thread(target=cut_when_answered)
        thread.start()
        try:
            yield
        finally:
            thread.join()
        assert not has_failed.is_set(), f"no {method} arrived"
        assert self.handled(method) == before + 1 + is_asked_again


@pytest.fixture(scope="module")
def aggregator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aggregator]:
    with Federation(tmp_path_factory.mktemp("federation")) as federation:
        federation.start_aggregator("--heartbeat-interval-s", "30")
        aggregator = Aggregator(federation)
        yield aggregator
        aggregator.control.close()


@pytest.fixture
def link(aggregator: Aggregator) -> Iterator[FaultProxy]:
    with FaultProxy(aggregator.federation.address) as link:
        yield link


@pytest.fixture
def ann() -> NumpyClient:
    """A client of this test's own."""
    return NumpyClient(f"ann-{next(NUMBERS)}")


@pytest.fixture
def client(aggregator: Aggregator, link: FaultProxy, ann: NumpyClient) -> Iterator[AggregatorConnection]:
    metrics, tls = TrainerMetrics(new_registry("trainer")), aggregator.federation.client_tls(ann.client_id)
    client = AggregatorConnection(link.address, ann.client_id, ann.token, metrics, tls=tls)
    client.join(ann.record)
    # Both connections stand before an answer is lost: where nothing comes back, no TLS begins.
    for channel in client._link._channels:
        grpc.channel_ready_future(channel).result(WAIT_S)
    yield client
    client.close()


@pytest.fixture
def task(aggregator: Aggregator, client: AggregatorConnection) -> Task:
    """The client is asked for a run's first model."""
    aggregator.control.create(a_document(clients=(client.client_id,), run={"rounds": 1}))
    return next_task(client)


def next_task(client: AggregatorConnection) -> Task:
    """What the client is asked for now."""
    for step in client.follow():
        assert not isinstance(step, StreamEnd)
        if step.kind is not TaskKind.WAIT:
            return step
    raise AssertionError("the stream ended without work")


def hand_in(connection: TaskConnection, ann: NumpyClient, task: Task) -> CommittedUpdate:
    assert task.run is not None
    data = {blob: connection.fetch(blob) for blob in task.payload.blobs}
    update, blobs = ann.work(task, next(iter(data.values()), None))
    for blob, content in blobs.items():
        connection.store(task.run.run_id, task.round, blob, content, is_prototypes=False)
    return connection.commit_update(task.run.run_id, task.round, update)


@pytest.mark.parametrize("is_inline", [False, True], ids=["uploaded", "with its blobs"])
def test_a_lost_acknowledgement_of_a_commit_is_given_again_and_counts_as_a_duplicate(
    aggregator: Aggregator,
    link: FaultProxy,
    client: AggregatorConnection,
    ann: NumpyClient,
    task: Task,
    is_inline: bool,
) -> None:
    assert task.run is not None
    connection = client.for_task(never)
    update, blobs = ann.work(task, None)
    ((blob, data),) = blobs.items()
    if not is_inline:
        connection.store(task.run.run_id, 0, blob, data, is_prototypes=False)
    duplicates = aggregator.value("fedplcc_client_updates_total", outcome="duplicate")
    uploads = aggregator.handled("UploadModel")
    with aggregator.losing_an_answer(link, "CommitUpdate"):
        committed = connection.commit_update(task.run.run_id, 0, update, [data] if is_inline else [])
    assert committed == CommittedUpdate(task.run.run_id, 0, (blob.sha256,))
    assert connection.retries >= 1
    assert aggregator.value("fedplcc_client_updates_total", outcome="duplicate") == duplicates + 1
    assert len(aggregator.events(task.run.run_id, "update_committed")) == 1
    assert aggregator.handled("UploadModel") == uploads


@pytest.mark.parametrize("method", ["GetUploadStatus", "UploadModel"])
def test_a_blob_whose_upload_is_not_acknowledged_is_not_sent_again(
    aggregator: Aggregator, link: FaultProxy, client: AggregatorConnection, ann: NumpyClient, task: Task, method: str
) -> None:
    assert task.run is not None
    ((blob, data),) = ann.work(task, None)[1].items()
    labels = {"direction": "received", "kind": "model"}
    before = aggregator.value("fedplcc_transfer_bytes_total", **labels)
    for channel in client._link._channels:  # what is swallowed is the answer and not the greeting of a new connection
        grpc.channel_ready_future(channel).result(WAIT_S)
    connection = client.for_task(never)
    if method == "GetUploadStatus":
        with aggregator.losing_an_answer(link, method):
            connection.store(task.run.run_id, 0, blob, data, is_prototypes=False)
    else:
        call = client._link.transfers.UploadModel

        def upload(parts: Any) -> Any:
            link.down.is_swallowing = True  # not before: the call before it says where to begin
            return call.future(parts)

        client._link.transfers.UploadModel = SimpleNamespace(future=upload)
        with aggregator.losing_an_answer(link, method, is_asked_again=False, is_swallowing=False):
            connection.store(task.run.run_id, 0, blob, data, is_prototypes=False)
    assert connection.retries >= 1
    assert aggregator.value("fedplcc_transfer_bytes_total", **labels) == before + len(data)


def test_a_lost_answer_to_a_join_leaves_one_client_that_joined_once(
    aggregator: Aggregator, link: FaultProxy, client: AggregatorConnection, ann: NumpyClient
) -> None:
    with aggregator.losing_an_answer(link, "Join"):
        client.for_task(never).announce(ann.record)
    assert len(aggregator.events("", "client_joined", ann.client_id)) == 1


def test_a_lost_answer_to_a_report_leaves_one_report(
    aggregator: Aggregator, link: FaultProxy, client: AggregatorConnection, ann: NumpyClient, task: Task
) -> None:
    assert task.run is not None
    connection = client.for_task(never)
    hand_in(connection, ann, task)
    hand_in(connection, ann, next_task(client))
    evaluate = next_task(client)
    assert evaluate.kind is TaskKind.EVALUATE
    (blob,) = evaluate.payload.tensor_groups
    report = ann.evaluation(evaluate, connection.fetch(blob))
    with aggregator.losing_an_answer(link, "ReportEvaluation"):
        connection.report_evaluation(task.run.run_id, evaluate.round, report)
    assert len(aggregator.events(task.run.run_id, "evaluation_reported")) == 1
    assert len(aggregator.events(task.run.run_id, "run_completed")) == 1


def test_a_problem_whose_heartbeat_is_not_answered_is_told_again_and_noted_once(
    aggregator: Aggregator, link: FaultProxy, client: AggregatorConnection
) -> None:
    problem = ClientProblem(reason="INVALID_DATA", detail="no files", hint="look", is_fatal=True)
    beat = Heartbeat(client_id=client.client_id, activity=ClientActivity.IDLE, problem=problem)
    with aggregator.losing_an_answer(link, "Heartbeat"):
        with pytest.raises(Unavailable):
            client.heartbeat(beat)
        assert eventually(lambda: came_through(client, beat), "the next one is answered", WAIT_S)
    assert len(aggregator.events("", "client_problem", client.client_id)) == 1


def came_through(client: AggregatorConnection, beat: Heartbeat) -> bool:
    try:
        return client.heartbeat(beat)
    except Unavailable:
        return False


@pytest.mark.parametrize("where", ["between gateway and aggregator", "between person and gateway"])
def test_a_run_whose_creation_is_not_answered_is_created_once(aggregator: Aggregator, where: str) -> None:
    federation, name = aggregator.federation, f"created-{next(NUMBERS)}"
    document = a_document(clients=("nobody",), run={"name": name})

    async def start(url: str) -> str:
        async with AsyncGateway(url, key=federation.key) as gateway:
            return (await gateway.create_run(document, request_id=f"request-{name}")).run_id

    with FaultProxy(federation.address) as inner:
        federation.processes.pop("gateway", None)
        federation.start_gateway("--aggregator", inner.address)
        with FaultProxy(federation.gateway_url.removeprefix("http://")) as outer:
            # A key that was taken before is not asked about again.
            known = httpx.get(f"{federation.gateway_url}/v1/me", headers={"Authorization": f"Bearer {federation.key}"})
            assert known.status_code == 200
            lossy = inner if where == "between gateway and aggregator" else outer
            with aggregator.losing_an_answer(lossy, "CreateRun"):
                run_id = asyncio.run(start(f"http://{outer.address}"))
        federation.processes["gateway"].end()
    runs = aggregator.control.stub.ListRuns(run_pb2.ListRunsRequest(), timeout=WAIT_S).runs
    assert [run.run_id for run in runs if run.name == name] == [run_id]
    assert len(aggregator.events(run_id, "run_created")) == 1
