"""An aggregator's service that breaks off, forgets and stands still as a test says."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fedplcc.shared import errors
from fedplcc.shared.convert.membership import membership_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as pb
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as pb_grpc
from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import MODEL, Membership
from fedplcc.shared.wire.statuses import to_status

DATA = bytes(range(256)) * 40
BLOB = blob_ref(MODEL, DATA)
TOKEN = "t" * 20


class Server(pb_grpc.RoundServiceServicer):
    """Keeps one blob; `trouble[method]` holds what goes wrong next: an error to answer with, or a function to call."""

    def __init__(self) -> None:
        self.trouble: dict[str, list[Any]] = {}
        self.received = bytearray()
        self.calls: list[str] = []
        self.offsets: list[int] = []
        self.steps: list[pb.SyncRoundResponse] = []
        self.polls: queue.SimpleQueue[list[pb.SyncRoundResponse]] = queue.SimpleQueue()
        self.asked: queue.SimpleQueue[pb.SyncRoundRequest] = queue.SimpleQueue()
        self.commits: list[pb.CommitUpdateRequest] = []
        self.peers: list[str] = []
        """Ends of the connections over which joins and commits came."""
        self.max_inline_bytes = 0
        self.closing = threading.Event()

    def _answer(self, method: str, context: Any) -> None:
        self.calls.append(method)
        trouble = self.trouble.get(method)
        if trouble:
            error = trouble.pop(0)
            if callable(error):
                error()
            elif isinstance(error, errors.FedplccError):
                refuse(context, error)

    def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        self._answer("Join", context)
        self.peers.append(context.peer())
        terms = Membership(
            heartbeat_interval_s=0.1,
            lease_s=1.0,
            max_chunk_bytes=1000,
            max_blob_bytes=1 << 20,
            max_inline_bytes=self.max_inline_bytes,
        )
        return membership_to_proto(terms)

    def SyncRound(self, request: pb.SyncRoundRequest, context: Any) -> Iterator[pb.SyncRoundResponse]:
        self._answer("SyncRound", context)
        self.asked.put(request)
        if request.HasField("poll"):
            yield from self._answer_poll(context)
            return
        yield from self.steps
        if not self.steps or self.steps[-1].WhichOneof("step") != "end":
            while context.is_active() and not self.closing.wait(0.02):
                pass

    def _answer_poll(self, context: Any) -> list[pb.SyncRoundResponse]:
        """What the test has for this poll; it is held until there is something."""
        while context.is_active() and not self.closing.is_set():
            with suppress(queue.Empty):
                return self.polls.get(timeout=0.02)
        return []

    def DownloadBlob(self, request: pb.DownloadBlobRequest, context: Any) -> Iterator[pb.DownloadBlobResponse]:
        self.offsets.append(request.offset_bytes)
        trouble = self.trouble.get("DownloadBlob")
        limit = trouble.pop(0) if trouble else len(DATA)
        if isinstance(limit, errors.FedplccError):
            refuse(context, limit)
        for offset in range(request.offset_bytes, len(DATA), 1000):
            if callable(limit):
                limit()
            elif offset >= limit:
                refuse(context, errors.Unavailable("broken off"))
            yield pb.DownloadBlobResponse(chunk=pb.Chunk(offset_bytes=offset, data=DATA[offset : offset + 1000]))

    def GetUploadStatus(self, request: pb.GetUploadStatusRequest, context: Any) -> pb.GetUploadStatusResponse:
        self._answer("GetUploadStatus", context)
        return pb.GetUploadStatusResponse(
            offset_bytes=len(self.received), is_complete=len(self.received) == request.header.blob.size_bytes
        )

    def UploadModel(self, request_iterator: Iterator[pb.UploadModelRequest], context: Any) -> pb.UploadModelResponse:
        trouble = self.trouble.get("UploadModel")
        limit = trouble.pop(0) if trouble else None
        assert next(request_iterator).WhichOneof("part") == "header"
        self.offsets.append(len(self.received))
        for part in request_iterator:
            assert part.chunk.offset_bytes == len(self.received)
            assert len(part.chunk.data) <= 1000
            self.received += part.chunk.data
            if callable(limit):
                limit()
            elif isinstance(limit, errors.FedplccError):
                self.received.clear()
                refuse(context, limit)
            elif limit is not None and len(self.received) >= limit:
                refuse(context, errors.Unavailable("broken off"))
        return pb.UploadModelResponse(offset_bytes=len(self.received))

    def CommitUpdate(self, request: pb.CommitUpdateRequest, context: Any) -> pb.CommitUpdateResponse:
        self._answer("CommitUpdate", context)
        self.commits.append(request)
        self.peers.append(context.peer())
        sha256s = [blob.sha256 for blob in request.payload.tensor_groups]
        return pb.CommitUpdateResponse(
            committed=pb.CommittedUpdate(run_id=request.run_id, round=request.round, sha256s=sha256s)
        )


def refuse(context: Any, error: errors.FedplccError) -> None:
    from grpc_status import rpc_status

    context.abort_with_status(rpc_status.to_status(to_status(error)))


class Quick(random.Random):
    """Jitter that makes every wait short."""

    def uniform(self, a: float, b: float) -> float:
        return 0.01


class Slow(random.Random):
    """Jitter that makes every wait endless."""

    def uniform(self, a: float, b: float) -> float:
        return 1e5
