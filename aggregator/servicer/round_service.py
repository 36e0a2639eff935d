"""RoundService, which trainers call: decode, call the coordinator, encode."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.incoming.transfers import Receiver
from fedplcc.aggregator.servicer.blob_pieces import pieces_of
from fedplcc.aggregator.servicer.calls import Context, call, in_time
from fedplcc.aggregator.servicer.inline_tasks import InlineTasks
from fedplcc.aggregator.servicer.wakeups import TaskStream, Wakeups
from fedplcc.shared.convert.clients import heartbeat_from_proto
from fedplcc.shared.convert.evaluations import evaluation_from_report
from fedplcc.shared.convert.membership import client_from_join, membership_to_proto
from fedplcc.shared.convert.tasks import poll_from_proto
from fedplcc.shared.convert.updates import committed_to_proto, inline_blobs_of, update_from_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_from_proto
from fedplcc.shared.errors import MalformedRequest, NotAMember
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.types import CommittedUpdate, Membership
from fedplcc.shared.wire.channels import IDLE_S
from fedplcc.shared.wire.serving.caller import require_client

MAX_HOLD_S = 20.0
"""Longest time that a poll is held. Common proxies close a connection that is idle for 30 to 60 s."""

_End = round_pb2.StreamEnd.Reason


class RoundServicer(round_grpc.RoundServiceServicer):
    """Servicer of the RPCs that trainers call."""

    def __init__(
        self,
        coordinator: Coordinator,
        wakeups: Wakeups,
        lease_check_s: float,
        *,
        idle_s: float = IDLE_S,
        max_hold_s: float = MAX_HOLD_S,
    ) -> None:
        self._coordinator, self._wakeups, self._lease_check_s = coordinator, wakeups, lease_check_s
        self._idle_s, self._max_hold_s = idle_s, max_hold_s

    async def Join(self, request: round_pb2.JoinRequest, context: Context) -> round_pb2.JoinResponse:
        require_client(request.client_id)

        def join() -> Membership:  # the thread makes the objects: 10,000 classes are many
            return self._coordinator.join(client_from_join(request), request.instance_token)

        return membership_to_proto(await call(join))

    async def SyncRound(
        self, request: round_pb2.SyncRoundRequest, context: Context
    ) -> AsyncIterator[round_pb2.SyncRoundResponse]:
        client_id, token = request.client_id, request.instance_token
        require_client(client_id)
        poll = poll_from_proto(request.poll) if request.HasField("poll") else None
        known = None if poll is None else poll.known
        inline = InlineTasks(self._coordinator, request)
        held_until = math.inf if poll is None else time.monotonic() + min(poll.hold_s, self._max_hold_s)
        # A task is read from memory, and nothing is awaited until the stream can be woken: no change is missed.
        task = self._coordinator.task(client_id, token)
        stream = self._wakeups.open_stream(client_id)
        is_told = False
        try:
            while True:
                if is_told and self._coordinator.goes_without_saying(client_id, task):
                    known = None  # whatever follows is news, also the same work again
                elif task.key != known:
                    yield await inline.response(task)
                    known, is_told = task.key, True
                    if poll is not None:
                        yield _stream_end(_End.REASON_POLL_ANSWERED)
                        return
                rest_s = max(0.0, held_until - time.monotonic())
                await stream.wait(min(self._lease_check_s, rest_s))
                reason = self._end_reason(stream, held_until)
                if reason is not None:
                    yield _stream_end(reason)
                    return
                try:
                    task = self._coordinator.task_if_connected(client_id, token)
                except NotAMember:
                    yield _stream_end(_End.REASON_LEASE_EXPIRED)
                    return
        finally:
            self._wakeups.close_stream(client_id, stream)

    async def Heartbeat(self, request: round_pb2.HeartbeatRequest, context: Context) -> round_pb2.HeartbeatResponse:
        require_client(request.client_id)
        heartbeat = heartbeat_from_proto(request)
        is_wanted = self._coordinator.sign_of_life(heartbeat, request.instance_token)
        if self._coordinator.has_consequences(heartbeat):
            await call(self._coordinator.draw_consequences, heartbeat, request.instance_token)
        directive = round_pb2.HeartbeatResponse.Directive
        return round_pb2.HeartbeatResponse(
            directive=directive.DIRECTIVE_CONTINUE if is_wanted else directive.DIRECTIVE_STOP
        )

    async def DownloadBlob(
        self, request: round_pb2.DownloadBlobRequest, context: Context
    ) -> AsyncIterator[round_pb2.DownloadBlobResponse]:
        require_client(request.client_id)
        blob, kind, _path = await call(
            self._coordinator.transfers.open_download, request.client_id, request.instance_token, request.sha256
        )
        if not 0 <= request.offset_bytes <= blob.size_bytes:
            raise MalformedRequest(f"offset_bytes = {request.offset_bytes}: the blob has {blob.size_bytes} bytes")
        if request.offset_bytes:
            self._coordinator.transfers.count_resumed(direction="sent")
        offset = request.offset_bytes
        async with aclosing(pieces_of(self._coordinator, blob, offset)) as pieces:
            async for data in pieces:
                yield round_pb2.DownloadBlobResponse(chunk=round_pb2.Chunk(offset_bytes=offset, data=data))
                offset += len(data)
                self._coordinator.transfers.count_transfer(
                    len(data),
                    direction="sent",
                    kind=kind,
                    client_id=request.client_id,
                    sha256=blob.sha256,
                    offset_bytes=offset - len(data),
                )
                self._coordinator.transfers.note_received(request.client_id, request.instance_token, blob, offset)
            if offset == blob.size_bytes:
                self._coordinator.transfers.sent_whole(request.instance_token, blob.sha256)

    async def GetUploadStatus(
        self, request: round_pb2.GetUploadStatusRequest, context: Context
    ) -> round_pb2.GetUploadStatusResponse:
        require_client(request.header.client_id)
        header = upload_header_from_proto(request.header)
        offset, is_complete = await call(
            self._coordinator.transfers.upload_status,
            header.client_id,
            header.instance_token,
            header.run_id,
            header.round,
            header.blob,
        )
        return round_pb2.GetUploadStatusResponse(offset_bytes=offset, is_complete=is_complete)

    async def UploadModel(
        self, request_iterator: AsyncIterator[round_pb2.UploadModelRequest], context: Context
    ) -> round_pb2.UploadModelResponse:
        return round_pb2.UploadModelResponse(offset_bytes=await self._receive(request_iterator, "model"))

    async def UploadPrototypes(
        self, request_iterator: AsyncIterator[round_pb2.UploadPrototypesRequest], context: Context
    ) -> round_pb2.UploadPrototypesResponse:
        return round_pb2.UploadPrototypesResponse(offset_bytes=await self._receive(request_iterator, "prototypes"))

    async def CommitUpdate(
        self, request: round_pb2.CommitUpdateRequest, context: Context
    ) -> round_pb2.CommitUpdateResponse:
        require_client(request.client_id)

        def commit() -> CommittedUpdate:
            return self._coordinator.commit_update(
                request.client_id,
                request.instance_token,
                request.run_id,
                request.round,
                update_from_commit(request),
                inline_blobs_of(request),
            )

        return round_pb2.CommitUpdateResponse(committed=committed_to_proto(await call(commit)))

    async def ReportEvaluation(
        self, request: round_pb2.ReportEvaluationRequest, context: Context
    ) -> round_pb2.ReportEvaluationResponse:
        require_client(request.client_id)

        def report() -> None:
            self._coordinator.report_evaluation(
                request.client_id,
                request.instance_token,
                request.run_id,
                request.round,
                evaluation_from_report(request, domain=""),
            )

        await call(report)
        return round_pb2.ReportEvaluationResponse()

    async def _receive(self, parts: AsyncIterator[Any], kind: str) -> int:
        """Receive one upload, header first; returns the blob's size in bytes."""
        header: UploadHeader | None = None
        receiver: Receiver | None = None
        try:
            stream = aiter(parts)
            while (part := await in_time(anext(stream, None), "the client sends", self._idle_s)) is not None:
                which = part.WhichOneof("part")
                if header is None:
                    if which != "header":
                        raise MalformedRequest("an upload begins with its header")
                    require_client(part.header.client_id)
                    header = upload_header_from_proto(part.header)
                    receiver = await call(
                        self._coordinator.transfers.begin_upload,
                        header.client_id,
                        header.instance_token,
                        header.run_id,
                        header.round,
                        header.blob,
                    )
                    if receiver is None:
                        return header.blob.size_bytes
                    continue
                if which != "chunk":
                    raise MalformedRequest("an upload has one header")
                assert receiver is not None
                num_bytes = await call(_written, receiver, part.chunk)
                self._coordinator.transfers.count_transfer(
                    num_bytes,
                    direction="received",
                    kind=kind,
                    client_id=header.client_id,
                    sha256=header.blob.sha256,
                    offset_bytes=part.chunk.offset_bytes,
                )
            if header is None or receiver is None:
                raise MalformedRequest("an upload has a header")
            await call(receiver.finish)
            return header.blob.size_bytes
        finally:
            if receiver is not None:
                receiver.close()

    def _end_reason(self, stream: TaskStream, held_until: float) -> round_pb2.StreamEnd.Reason | None:
        if self._wakeups.is_closing:
            return _End.REASON_SHUTTING_DOWN
        if stream.is_superseded:
            return _End.REASON_SUPERSEDED
        return _End.REASON_POLL_ANSWERED if time.monotonic() >= held_until else None


def _written(receiver: Receiver, chunk: round_pb2.Chunk) -> int:
    """Write a chunk and return its size, in a thread: those that wait for one hold no copy of their bytes yet."""
    data = chunk.data
    if not data:
        raise MalformedRequest("a chunk has bytes")  # without, a stream would move nothing and never end
    receiver.write(chunk.offset_bytes, data)
    return len(data)


def _stream_end(reason: round_pb2.StreamEnd.Reason) -> round_pb2.SyncRoundResponse:
    return round_pb2.SyncRoundResponse(end=round_pb2.StreamEnd(reason=reason))
