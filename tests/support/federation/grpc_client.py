"""The numpy client over real gRPC, and a person's hand on RunService."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator, Iterator
from typing import Any

from fedplcc.shared.convert.clients import heartbeat_to_proto
from fedplcc.shared.convert.evaluations import evaluation_to_report
from fedplcc.shared.convert.membership import client_to_join
from fedplcc.shared.convert.steering import steering_to_proto
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.convert.updates import update_to_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import Verb
from fedplcc.shared.types import MODEL, BlobRef, ClientActivity, Heartbeat, Task, TaskKind
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.statuses import translated
from fedplcc.shared.wire.tls import ClientTls
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.processes import eventually
from tests.support.identity.issued import channel_of

ENDED = (types_pb2.RUN_STATUS_COMPLETED, types_pb2.RUN_STATUS_FAILED, types_pb2.RUN_STATUS_STOPPED)
RUN_S = 150.0
DEADLINE_S = 3000.0
"""Deadline of a call, longer than any test: an aggregator that has died answers at once, and a test has its own limit."""


class GrpcClient:
    """A NumpyClient that dials an aggregator; every call is one method, so that tests can bend any of them."""

    def __init__(self, address: str, client: NumpyClient, channel: Any = None, *, tls: ClientTls | None = None) -> None:
        self.client = client
        self.channel = channel or open_channel(address, tls=tls)
        self.stub = round_grpc.RoundServiceStub(self.channel)

    @property
    def client_id(self) -> str:
        return self.client.client_id

    @property
    def token(self) -> str:
        return self.client.token

    def close(self) -> None:
        self.channel.close()

    def join(self) -> round_pb2.JoinResponse:
        request = client_to_join(self.client.record, instance_token=self.token, version="test")
        with translated():
            answer: round_pb2.JoinResponse = self.stub.Join(request, timeout=DEADLINE_S)
        return answer

    def tasks(self) -> Generator[round_pb2.SyncRoundResponse, None, None]:
        request = round_pb2.SyncRoundRequest(client_id=self.client_id, instance_token=self.token)
        with translated():
            yield from self.stub.SyncRound(request)

    def heartbeat(
        self, activity: ClientActivity = ClientActivity.IDLE, run_id: str = "", round: int = 0, progress: float = 0.0
    ) -> bool:
        beat = Heartbeat(client_id=self.client_id, activity=activity, run_id=run_id, round=round, progress=progress)
        with translated():
            response = self.stub.Heartbeat(heartbeat_to_proto(beat, instance_token=self.token), timeout=DEADLINE_S)
        return bool(response.directive == round_pb2.HeartbeatResponse.DIRECTIVE_CONTINUE)

    def download(self, blob: BlobRef, offset: int = 0) -> bytes:
        request = round_pb2.DownloadBlobRequest(
            client_id=self.client_id, instance_token=self.token, sha256=blob.sha256, offset_bytes=offset
        )
        with translated():
            return b"".join(part.chunk.data for part in self.stub.DownloadBlob(request, timeout=DEADLINE_S))

    def header(self, task: Task, blob: BlobRef) -> round_pb2.BlobHeader:
        assert task.run is not None
        return upload_header_to_proto(
            UploadHeader(
                run_id=task.run.run_id,
                round=task.round,
                client_id=self.client_id,
                instance_token=self.token,
                blob=blob,
            )
        )

    def upload_status(self, task: Task, blob: BlobRef) -> round_pb2.GetUploadStatusResponse:
        with translated():
            answer: round_pb2.GetUploadStatusResponse = self.stub.GetUploadStatus(
                round_pb2.GetUploadStatusRequest(header=self.header(task, blob)), timeout=DEADLINE_S
            )
        return answer

    def upload_parts(self, task: Task, blob: BlobRef, chunks: Iterator[tuple[int, bytes]]) -> int:
        """Send a header, then these chunks as they are."""

        call, make = (
            (self.stub.UploadModel, round_pb2.UploadModelRequest)
            if blob.role == MODEL
            else (self.stub.UploadPrototypes, round_pb2.UploadPrototypesRequest)
        )

        def parts() -> Iterator[Any]:
            yield make(header=self.header(task, blob))
            for offset, data in chunks:
                yield make(chunk=round_pb2.Chunk(offset_bytes=offset, data=data))

        with translated():
            return int(call(parts(), timeout=DEADLINE_S).offset_bytes)

    def upload(self, task: Task, blob: BlobRef, data: bytes, chunk_bytes: int = 200) -> None:
        status = self.upload_status(task, blob)
        if not status.is_complete:
            begins = range(status.offset_bytes, len(data), chunk_bytes)
            self.upload_parts(task, blob, iter((begin, data[begin : begin + chunk_bytes]) for begin in begins))

    def commit(self, task: Task, update: Any) -> round_pb2.CommitUpdateResponse:
        assert task.run is not None
        request = update_to_commit(update, run_id=task.run.run_id, round_number=task.round, instance_token=self.token)
        with translated():
            answer: round_pb2.CommitUpdateResponse = self.stub.CommitUpdate(request, timeout=DEADLINE_S)
        return answer

    def perform(self, task: Task) -> None:
        """Do a task to its end."""
        assert task.run is not None
        model = None
        for blob in task.payload.blobs:
            data = self.download(blob)
            model = data if blob.role == "model" else model
        if task.kind is TaskKind.EVALUATE:
            assert model is not None
            report = evaluation_to_report(
                self.client.evaluation(task, model),
                run_id=task.run.run_id,
                round_number=task.round,
                instance_token=self.token,
            )
            with translated():
                self.stub.ReportEvaluation(report, timeout=DEADLINE_S)
            return
        update, blobs = self.client.work(task, model)
        for blob, data in blobs.items():
            self.upload(task, blob, data)
        self.commit(task, update)

    def follow(self, until: Any) -> list[Task]:
        """Do the tasks that the stream brings until `until(task)` holds; returns them all."""
        done = []
        stream = self.tasks()
        for response in stream:
            task = task_from_proto(response.task)
            done.append(task)
            if until(task):
                stream.close()
                return done
            if task.kind in (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE):
                self.perform(task)
            else:
                self.heartbeat()
        return done


class RunControl:
    """RunService as a script uses it."""

    def __init__(self, address: str, *, tls: ClientTls | None = None) -> None:
        self.channel = channel_of(address, tls)
        self.stub = run_grpc.RunServiceStub(self.channel)

    def close(self) -> None:
        self.channel.close()

    def create(self, document: dict[str, Any], request_id: str = "") -> types_pb2.Run:
        request = run_pb2.CreateRunRequest(request_id=request_id or uuid.uuid4().hex, config_json=json.dumps(document))
        with translated():
            run: types_pb2.Run = self.stub.CreateRun(request, timeout=DEADLINE_S).run
        return run

    def get(self, run_id: str) -> types_pb2.Run:
        with translated():
            run: types_pb2.Run = self.stub.GetRun(run_pb2.GetRunRequest(run_id=run_id), timeout=DEADLINE_S).run
        return run

    def steer(self, run_id: str, verb: Verb, *, request_id: str = "") -> types_pb2.Run:
        with translated():
            request = steering_to_proto(run_id, verb, request_id)
            run: types_pb2.Run = self.stub.SteerRun(request, timeout=DEADLINE_S).run
        return run

    def end_of(self, run_id: str) -> tuple[str, ...]:
        """The metrics lines of a run when it has ended."""
        eventually(lambda: self.get(run_id).status in ENDED, f"run {run_id} ends", RUN_S)
        return tuple(line for line in self.metrics_lines(run_id) if line)

    def run_to_end(self, values: dict[str, Any]) -> tuple[str, ...]:
        """The metrics lines of a new run, whose document may have the clients' tables of a simulation."""
        document = {name: table for name, table in values.items() if name != "clients"}
        return self.end_of(self.create(document).run_id)

    def clients(self) -> list[types_pb2.Client]:
        with translated():
            return list(self.stub.ListClients(run_pb2.ListClientsRequest(), timeout=DEADLINE_S).clients)

    def timings(self, run_id: str) -> list[dict[str, Any]]:
        """Lines of timings.jsonl of the rounds after round 0."""
        request = run_pb2.ListRoundsRequest(run_id=run_id, after_round=0)
        with translated():
            answer = self.stub.ListRounds(request, timeout=DEADLINE_S)
        return [json.loads(each.timings_json) for each in answer.rounds if each.timings_json]

    def metrics_lines(self, run_id: str) -> list[str]:
        with translated():
            request = run_pb2.ListRoundsRequest(run_id=run_id, after_round=0)
            rounds = self.stub.ListRounds(request, timeout=DEADLINE_S).rounds
        return [current.metrics_json for current in rounds]
