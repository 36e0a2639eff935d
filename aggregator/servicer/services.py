"""RoundService and RunService: decode, call the coordinator, encode. No state machine, no SQL, no error mapping here.

The coordinator blocks (disk, database), so it is called in threads; the event loop only moves bytes and wakes streams.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import Message

from aggregator.coordinator.service import Coordinator
from aggregator.coordinator.transfers import Receiver
from aggregator.rounds.events import FINAL_EVENTS
from shared.config.run import canonical_json
from shared.convert.clients import client_to_proto, heartbeat_from_proto
from shared.convert.evaluations import evaluation_from_report, evaluation_to_proto
from shared.convert.events import event_to_proto
from shared.convert.membership import client_from_join, membership_to_proto
from shared.convert.payloads import blob_to_proto
from shared.convert.prototype_maps import prototype_map_to_proto
from shared.convert.rounds import round_to_proto
from shared.convert.runs import run_to_proto
from shared.convert.tasks import poll_from_proto, task_to_proto
from shared.convert.updates import committed_to_proto, update_from_commit
from shared.convert.uploads import UploadHeader, initial_model_from_proto, upload_header_from_proto
from shared.errors import MalformedRequest, NotAMember, Overloaded, TransferIdle
from shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from shared.gen.fedplcc.v1 import run_service_pb2 as run_pb2
from shared.gen.fedplcc.v1 import run_service_pb2_grpc as run_grpc
from shared.types import BlobRef, EventQuery, Run
from shared.wire.chunk_size import Pace
from shared.wire.rpc import IDLE_S

SEND_BYTES = (1 << 20) - 64
"""Largest of the pieces in which blobs are sent; what is around a piece still fits into a power of two with it, to which the
encoder rounds its buffer."""
MAX_HOLD_S = 20.0
"""How long a poll is held at most: well below the 30 to 60 s after which common proxies cut what is idle."""
MAX_MODEL_UPLOADS = 4
"""Initial models that are received at once; each may be as large as a blob may be, and takes that much of the disk."""
MAX_MAPS_ASKED = 32
"""Prototype maps that are drawn, one at a time, or wait for it."""
MAX_PAGE = 1000
MAX_PAGE_BYTES = 512 << 10
"""Size that a page of more than one entry keeps to; well below the limit on messages, which one entry may come near."""
READ_AT_ONCE = 20
"""Records read from the store at a time: a page of large ones ends soon, and what lies behind it is not read."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_End = round_pb2.StreamEnd.Reason
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Cursor = TypeVar("_Cursor")
_Message = TypeVar("_Message", bound=Message)


class Wakeups:
    """Wakes streams when the coordinator has changed something; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks, self._events = asyncio.Event(), asyncio.Event()
        self.is_closing = False

    def notify(self, tasks_changed: bool) -> None:
        """Wake those who wait for events, and those who wait for tasks if these may have changed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, tasks_changed)

    def close(self) -> None:
        """Wake everybody for the last time, so that they end their streams with a reason."""
        self.is_closing = True
        self._wake(True)

    def tasks(self) -> asyncio.Event:
        """Set once tasks may have changed after this call."""
        return self._tasks

    def events(self) -> asyncio.Event:
        """Set once there may be events after this call."""
        return self._events

    def _wake(self, tasks_changed: bool) -> None:
        self._events.set()
        self._events = asyncio.Event()
        if tasks_changed:
            self._tasks.set()
            self._tasks = asyncio.Event()


class RoundServicer(round_grpc.RoundServiceServicer):
    """What trainers call."""

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
        self._streams: dict[str, asyncio.Event] = {}

    async def Join(self, request: round_pb2.JoinRequest, context: Context) -> round_pb2.JoinResponse:
        """See RoundService.Join."""
        client = client_from_join(request)
        membership = await _call(self._coordinator.join, client, request.instance_token)
        return membership_to_proto(membership)

    async def SyncRound(
        self, request: round_pb2.SyncRoundRequest, context: Context
    ) -> AsyncIterator[round_pb2.SyncRoundResponse]:
        """See RoundService.SyncRound."""
        client_id, token = request.client_id, request.instance_token
        poll = poll_from_proto(request.poll) if request.HasField("poll") else None
        known = None if poll is None else poll.known
        held_until = math.inf if poll is None else time.monotonic() + min(poll.hold_s, self._max_hold_s)
        superseded = asyncio.Event()
        changed = self._wakeups.tasks()
        task = await _call(self._coordinator.task, client_id, token)
        if client_id in self._streams:
            self._streams[client_id].set()
        self._streams[client_id] = superseded
        try:
            while True:
                if task.key != known:
                    yield round_pb2.SyncRoundResponse(task=task_to_proto(task))
                    known = task.key
                    if poll is not None:
                        yield _stream_end(_End.REASON_POLL_ANSWERED)
                        return
                rest_s = max(0.0, held_until - time.monotonic())
                await _first(changed, superseded, timeout_s=min(self._lease_check_s, rest_s))
                reason = self._end_reason(superseded, held_until)
                if reason is not None:
                    yield _stream_end(reason)
                    return
                changed = self._wakeups.tasks()
                try:
                    task = await _call(self._coordinator.task_if_connected, client_id, token)
                except NotAMember:
                    yield _stream_end(_End.REASON_LEASE_EXPIRED)
                    return
        finally:
            if self._streams.get(client_id) is superseded:
                del self._streams[client_id]

    async def Heartbeat(self, request: round_pb2.HeartbeatRequest, context: Context) -> round_pb2.HeartbeatResponse:
        """See RoundService.Heartbeat."""
        heartbeat = heartbeat_from_proto(request)
        is_wanted = await _call(self._coordinator.heartbeat, heartbeat, request.instance_token)
        directive = round_pb2.HeartbeatResponse.Directive
        return round_pb2.HeartbeatResponse(
            directive=directive.DIRECTIVE_CONTINUE if is_wanted else directive.DIRECTIVE_STOP
        )

    async def DownloadBlob(
        self, request: round_pb2.DownloadBlobRequest, context: Context
    ) -> AsyncIterator[round_pb2.DownloadBlobResponse]:
        """See RoundService.DownloadBlob."""
        blob, kind, _path = await _call(
            self._coordinator.transfers.open_download, request.client_id, request.instance_token, request.sha256
        )
        if not 0 <= request.offset_bytes <= blob.size_bytes:
            raise MalformedRequest(f"offset_bytes = {request.offset_bytes}: the blob has {blob.size_bytes} bytes")
        if request.offset_bytes:
            self._coordinator.transfers.count_resumed(direction="sent")
        offset = request.offset_bytes
        async with aclosing(_read(self._coordinator, blob, offset)) as pieces:
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
                self._coordinator.transfers.note_received(
                    request.client_id, request.instance_token, is_whole=offset == blob.size_bytes
                )

    async def GetUploadStatus(
        self, request: round_pb2.GetUploadStatusRequest, context: Context
    ) -> round_pb2.GetUploadStatusResponse:
        """See RoundService.GetUploadStatus."""
        header = upload_header_from_proto(request.header)
        offset, is_complete = await _call(
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
        """See RoundService.UploadModel."""
        return round_pb2.UploadModelResponse(offset_bytes=await self._receive(request_iterator, "model"))

    async def UploadPrototypes(
        self, request_iterator: AsyncIterator[round_pb2.UploadPrototypesRequest], context: Context
    ) -> round_pb2.UploadPrototypesResponse:
        """See RoundService.UploadPrototypes."""
        return round_pb2.UploadPrototypesResponse(offset_bytes=await self._receive(request_iterator, "prototypes"))

    async def CommitUpdate(
        self, request: round_pb2.CommitUpdateRequest, context: Context
    ) -> round_pb2.CommitUpdateResponse:
        """See RoundService.CommitUpdate."""
        update = update_from_commit(request)
        committed = await _call(
            self._coordinator.commit_update,
            request.client_id,
            request.instance_token,
            request.run_id,
            request.round,
            update,
        )
        return round_pb2.CommitUpdateResponse(committed=committed_to_proto(committed))

    async def ReportEvaluation(
        self, request: round_pb2.ReportEvaluationRequest, context: Context
    ) -> round_pb2.ReportEvaluationResponse:
        """See RoundService.ReportEvaluation."""
        evaluation = evaluation_from_report(request, domain="")
        await _call(
            self._coordinator.report_evaluation,
            request.client_id,
            request.instance_token,
            request.run_id,
            request.round,
            evaluation,
        )
        return round_pb2.ReportEvaluationResponse()

    async def _receive(self, parts: AsyncIterator[Any], kind: str) -> int:
        """Take one upload, header first; returns the blob's size."""
        header: UploadHeader | None = None
        receiver: Receiver | None = None
        try:
            stream = aiter(parts)
            while (part := await self._in_time(anext(stream, None), "the client sends")) is not None:
                which = part.WhichOneof("part")
                if header is None:
                    if which != "header":
                        raise MalformedRequest("an upload begins with its header")
                    header = upload_header_from_proto(part.header)
                    receiver = await _call(
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
                await _call(receiver.write, part.chunk.offset_bytes, part.chunk.data)
                self._coordinator.transfers.count_transfer(
                    len(part.chunk.data),
                    direction="received",
                    kind=kind,
                    client_id=header.client_id,
                    sha256=header.blob.sha256,
                    offset_bytes=part.chunk.offset_bytes,
                )
            if header is None or receiver is None:
                raise MalformedRequest("an upload has a header")
            await _call(receiver.finish)
            return header.blob.size_bytes
        finally:
            if receiver is not None:
                receiver.close()

    async def _in_time(self, step: Awaitable[_T], what: str) -> _T:
        return await _in_time(step, what, self._idle_s)

    def _end_reason(self, superseded: asyncio.Event, held_until: float) -> round_pb2.StreamEnd.Reason | None:
        if self._wakeups.is_closing:
            return _End.REASON_SHUTTING_DOWN
        if superseded.is_set():
            return _End.REASON_SUPERSEDED
        return _End.REASON_POLL_ANSWERED if time.monotonic() >= held_until else None


class RunServicer(run_grpc.RunServiceServicer):
    """What the gateway calls."""

    def __init__(self, coordinator: Coordinator, wakeups: Wakeups, *, idle_s: float = IDLE_S) -> None:
        self._coordinator, self._wakeups, self._idle_s = coordinator, wakeups, idle_s
        self._model_uploads = self._maps_asked = 0
        self._drawing = ThreadPoolExecutor(1, "prototype-maps")

    async def CreateRun(self, request: run_pb2.CreateRunRequest, context: Context) -> run_pb2.CreateRunResponse:
        """See RunService.CreateRun."""
        document = _json_object(request.config_json)
        run = await _call(self._coordinator.create_run, request.request_id, document)
        return run_pb2.CreateRunResponse(run=await self._encode(run))

    async def UploadInitialModel(
        self, request_iterator: AsyncIterator[run_pb2.UploadInitialModelRequest], context: Context
    ) -> AsyncIterator[run_pb2.UploadInitialModelResponse]:
        """See RunService.UploadInitialModel."""
        stream = aiter(request_iterator)
        first = await _in_time(anext(stream, None), "the caller sends", self._idle_s)
        if first is None or first.WhichOneof("part") != "header":
            raise MalformedRequest("an upload begins with its header")
        blob, name = initial_model_from_proto(first.header)
        receiver = await _call(self._coordinator.initial_models.begin_upload, blob, name)
        if receiver is None:
            yield run_pb2.UploadInitialModelResponse(is_stored=True)
            return
        try:
            with self._place_for_model():
                yield run_pb2.UploadInitialModelResponse(is_stored=False)
                while (part := await _in_time(anext(stream, None), "the caller sends", self._idle_s)) is not None:
                    if part.WhichOneof("part") != "data":
                        raise MalformedRequest("an upload has one header")
                    await _call(receiver.write, part.data)
                await _call(receiver.finish)
        finally:
            receiver.close()
        yield run_pb2.UploadInitialModelResponse(is_stored=True)

    @contextmanager
    def _place_for_model(self) -> Iterator[None]:
        if self._model_uploads >= MAX_MODEL_UPLOADS:
            raise Overloaded(f"{MAX_MODEL_UPLOADS} initial models are being uploaded; try again when one has arrived")
        self._model_uploads += 1
        try:
            yield
        finally:
            self._model_uploads -= 1

    async def GetRun(self, request: run_pb2.GetRunRequest, context: Context) -> run_pb2.GetRunResponse:
        """See RunService.GetRun."""
        return run_pb2.GetRunResponse(run=await self._encode(await _call(self._coordinator.get_run, request.run_id)))

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Context) -> run_pb2.ListRunsResponse:
        """See RunService.ListRuns."""
        limit = _page_size(request.page_size, default=50, most=200)
        runs = _listing(
            lambda last, most: self._coordinator.list_runs(before=last, limit=most),
            request.page_token,
            lambda run: run.run_id,
        )
        page, is_cut = await _call(_page, map(run_to_proto, runs), limit)
        return run_pb2.ListRunsResponse(runs=page, next_page_token=page[-1].run_id if is_cut else "")

    async def ListRounds(self, request: run_pb2.ListRoundsRequest, context: Context) -> run_pb2.ListRoundsResponse:
        """See RunService.ListRounds."""
        limit = _page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        rounds = _listing(
            lambda last, most: self._coordinator.list_rounds(request.run_id, after=last, limit=most),
            request.after_round,
            lambda current: current.number,
        )
        page, is_cut = await _call(_page, map(round_to_proto, rounds), limit)
        return run_pb2.ListRoundsResponse(rounds=page, has_more=is_cut)

    async def ListEvaluations(
        self, request: run_pb2.ListEvaluationsRequest, context: Context
    ) -> run_pb2.ListEvaluationsResponse:
        """See RunService.ListEvaluations."""
        limit = _page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        number = None if request.round < 0 else request.round
        reports = _listing(
            lambda last, most: self._coordinator.list_evaluations(request.run_id, number, after=last, limit=most),
            _report_cursor(request.page_token),
            lambda entry: (entry[0], entry[1].client_id),
        )
        page, is_cut = await _call(_page, (evaluation_to_proto(*entry) for entry in reports), limit)
        token = f"{page[-1].round}:{page[-1].client_id}" if is_cut else ""
        return run_pb2.ListEvaluationsResponse(evaluations=page, next_page_token=token)

    async def PauseRun(self, request: run_pb2.PauseRunRequest, context: Context) -> run_pb2.PauseRunResponse:
        """See RunService.PauseRun."""
        run = await _call(self._coordinator.pause, request.run_id, now=request.now, request_id=request.request_id)
        return run_pb2.PauseRunResponse(run=await self._encode(run))

    async def ResumeRun(self, request: run_pb2.ResumeRunRequest, context: Context) -> run_pb2.ResumeRunResponse:
        """See RunService.ResumeRun."""
        run = await _call(self._coordinator.resume, request.run_id, request_id=request.request_id)
        return run_pb2.ResumeRunResponse(run=await self._encode(run))

    async def StopRun(self, request: run_pb2.StopRunRequest, context: Context) -> run_pb2.StopRunResponse:
        """See RunService.StopRun."""
        run = await _call(self._coordinator.stop, request.run_id, reason=request.reason, request_id=request.request_id)
        return run_pb2.StopRunResponse(run=await self._encode(run))

    async def QuarantineClient(
        self, request: run_pb2.QuarantineClientRequest, context: Context
    ) -> run_pb2.QuarantineClientResponse:
        """See RunService.QuarantineClient."""
        run = await _call(
            self._coordinator.quarantine,
            request.run_id,
            request.client_id,
            reason=request.reason,
            request_id=request.request_id,
        )
        return run_pb2.QuarantineClientResponse(run=await self._encode(run))

    async def ReleaseClient(
        self, request: run_pb2.ReleaseClientRequest, context: Context
    ) -> run_pb2.ReleaseClientResponse:
        """See RunService.ReleaseClient."""
        run = await _call(self._coordinator.release, request.run_id, request.client_id, request_id=request.request_id)
        return run_pb2.ReleaseClientResponse(run=await self._encode(run))

    async def WatchRun(
        self, request: run_pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[run_pb2.WatchRunResponse]:
        """See RunService.WatchRun."""
        if request.follow and (request.before_sequence or request.newest_first):
            raise MalformedRequest("before_sequence, newest_first: who follows gets events in order, without an end")
        cursor, run_id = request.after_sequence, request.run_id
        limit = MAX_PAGE if request.follow else _page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        while True:
            changed = self._wakeups.events()
            has_ended = bool(run_id) and await _call(self._coordinator.has_ended, run_id)
            events = await _call(
                self._coordinator.list_events,
                EventQuery(
                    run_id=run_id,
                    after=cursor,
                    before=request.before_sequence,
                    types=tuple(request.types),
                    client_id=request.client_id,
                    newest_first=request.newest_first,
                    limit=limit,
                ),
            )
            for event in events:
                cursor = event.sequence
                yield run_pb2.WatchRunResponse(event=event_to_proto(event))
            is_last = bool(run_id) and bool(events) and events[-1].type in FINAL_EVENTS
            if not request.follow or is_last or (has_ended and not events) or self._wakeups.is_closing:
                return
            if not events:
                await changed.wait()

    async def ListClients(self, request: run_pb2.ListClientsRequest, context: Context) -> run_pb2.ListClientsResponse:
        """See RunService.ListClients."""
        limit = _page_size(request.page_size, default=MAX_PAGE, most=MAX_PAGE)
        clients = _listing(
            lambda last, most: self._coordinator.list_clients(after=last, limit=most),
            request.page_token,
            lambda client: client.client_id,
        )
        page, is_cut = await _call(_page, map(client_to_proto, clients), limit)
        return run_pb2.ListClientsResponse(clients=page, next_page_token=page[-1].client_id if is_cut else "")

    async def FetchArtifact(
        self, request: run_pb2.FetchArtifactRequest, context: Context
    ) -> AsyncIterator[run_pb2.FetchArtifactResponse]:
        """See RunService.FetchArtifact."""
        kinds = {run_pb2.ARTIFACT_KIND_MODEL: "model", run_pb2.ARTIFACT_KIND_PROTOTYPES: "prototypes"}
        kind = kinds.get(request.kind)
        if kind is None:
            raise MalformedRequest("kind: model or prototypes")
        blob, _path = await _call(self._coordinator.artifact, request.run_id, request.round, kind)
        if not 0 <= request.offset_bytes <= blob.size_bytes:
            raise MalformedRequest(f"offset_bytes = {request.offset_bytes}: the blob has {blob.size_bytes} bytes")
        yield run_pb2.FetchArtifactResponse(blob=blob_to_proto(blob))
        async with aclosing(_read(self._coordinator, blob, request.offset_bytes)) as pieces:
            async for data in pieces:
                yield run_pb2.FetchArtifactResponse(data=data)

    async def GetPrototypeMap(
        self, request: run_pb2.GetPrototypeMapRequest, context: Context
    ) -> run_pb2.GetPrototypeMapResponse:
        """See RunService.GetPrototypeMap."""
        if self._maps_asked >= MAX_MAPS_ASKED:
            raise Overloaded(f"{MAX_MAPS_ASKED} prototype maps are being asked for; try again in a moment")
        self._maps_asked += 1
        try:
            # In a thread of its own: one at a time, and whoever gives up leaves none that trainers' calls need.
            draw = self._coordinator.prototype_maps.of
            found = await asyncio.get_running_loop().run_in_executor(self._drawing, draw, request.run_id, request.round)
            return await _call(prototype_map_to_proto, found)
        finally:
            self._maps_asked -= 1

    async def _encode(self, run: Run) -> Any:
        manifest = await _call(self._coordinator.manifest, run)
        return run_to_proto(run, manifest_json=canonical_json(manifest))


async def _call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    return await asyncio.to_thread(function, *args, **kwargs)


async def _in_time(step: Awaitable[_T], what: str, idle_s: float) -> _T:
    """Wait for one step of a transfer; total time has no limit, standing still has."""
    try:
        async with asyncio.timeout(idle_s):
            return await step
    except TimeoutError as error:
        raise TransferIdle(f"{what} nothing for {idle_s:g} s") from error


async def _read(coordinator: Coordinator, blob: BlobRef, offset_bytes: int) -> AsyncGenerator[bytes, None]:
    """A blob's bytes from an offset on, in pieces as large as whoever takes them takes quickly."""
    pace = Pace(min(SEND_BYTES, coordinator.transfers.max_chunk_bytes))
    with coordinator.transfers.reading(blob) as path:
        # Each piece opens the file anew: a call that is cancelled at any moment leaves nothing open.
        while offset_bytes < blob.size_bytes and (
            data := await _call(_read_piece, path, offset_bytes, pace.next_bytes)
        ):
            begin = time.monotonic()
            yield data
            pace.moved(len(data), time.monotonic() - begin)
            offset_bytes += len(data)


def _read_piece(path: Path, offset_bytes: int, num_bytes: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(offset_bytes)
        return file.read(num_bytes)


async def _first(*events: asyncio.Event, timeout_s: float) -> None:
    """Wait until one of the events is set, or for so long."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _stream_end(reason: round_pb2.StreamEnd.Reason) -> round_pb2.SyncRoundResponse:
    return round_pb2.SyncRoundResponse(end=round_pb2.StreamEnd(reason=reason))


def _page_size(asked: int, *, default: int, most: int) -> int:
    if not 0 <= asked <= most:
        raise MalformedRequest(f"page_size = {asked}: 1 to {most}")
    return asked or default


def _listing(read: Callable[[_Cursor, int], list[_T]], last: _Cursor, cursor: Callable[[_T], _Cursor]) -> Iterator[_T]:
    """What a listing has after `last`, read in parts as it is taken: `read(last, most)` is one part."""
    while True:
        part = read(last, READ_AT_ONCE)
        yield from part
        if len(part) < READ_AT_ONCE:
            return
        last = cursor(part[-1])


def _page(entries: Iterable[_Message], most: int) -> tuple[list[_Message], bool]:
    """The entries that one answer holds, at least one if there is one, and whether there are more."""
    page: list[_Message] = []
    size_bytes = 0
    for entry in entries:
        size_bytes += entry.ByteSize()
        if len(page) == most or (page and size_bytes > MAX_PAGE_BYTES):
            return page, True
        page.append(entry)
    return page, False


def _report_cursor(token: str) -> tuple[int, str]:
    """Round and client of the last report of a page; before all of them for an empty token."""
    if not token:
        return -1, ""
    number, _, client_id = token.partition(":")
    if not re.fullmatch(r"[0-9]{1,10}", number) or not client_id:
        raise MalformedRequest("page_token: it is none that an answer gave")
    return int(number), client_id


def _json_object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # also a lone surrogate, which no database can hold
        raise MalformedRequest("config_json is not JSON of Unicode text, or too deep") from error
    if not isinstance(document, dict):
        raise MalformedRequest("config_json is not a JSON object")
    return document
