"""Fake trainers: many clients in one process, each with a connection of its own, that do everything but learn.

They speak the trainers' protocol with as little processor time as possible, since they share the machine with the
aggregator that is measured: one event loop, no metrics, no retries but to begin again. A client joins, follows its tasks,
sends signs of life, downloads each model, sends an update that differs from every other one, and reports on the new model.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import grpc
import grpc.aio

from benchmarks.support.members import Served
from benchmarks.support.models import Updates
from fedplcc.shared.convert.membership import membership_from_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.process.allocator import keep_freed_memory
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import FEATURE_DIM, MODEL
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.trainer.aggregator.round_service import INLINE_BYTES
from fedplcc.trainer.worker_state import Lease

CLASSES = ("one", "other")
NUM_EXAMPLES = 100
JOINING = 8
"""Clients of a process that join at the same time."""
IN_FLIGHT_BYTES = 64 << 20
"""Bytes of updates that a process holds at the same time; small updates are all sent at once."""
CHUNK_BYTES = 1 << 20
CALL_S = 60.0
AGAIN_S = 1.0
"""Longest pause, drawn at random, before a client that lost the aggregator begins again."""


_WORK = (types_pb2.TASK_KIND_INIT, types_pb2.TASK_KIND_TRAIN, types_pb2.TASK_KIND_EVALUATE)
_AWAY = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
)
"""Codes of an aggregator that is away, or has started again and does not know the client yet."""


@dataclass(slots=True)
class Seen:
    """What the clients of a process have seen since the last question."""

    heartbeat_s: list[float] = field(default_factory=list)
    """Seconds of each heartbeat until its answer."""
    num_committed: int = 0
    """Updates whose commit was answered, since the process began."""
    num_asked_again: int = 0
    """Tasks to train a round whose update was committed already."""
    num_joins: int = 0
    """Joins, since the process began."""


class Clients:
    """The clients of one process."""

    def __init__(self, served: Served, names: Sequence[str], num_parameters: int, index: int) -> None:
        self.names, self._served = names, served
        self._updates = Updates(num_parameters, index)
        size_bytes = len(self._updates.another())
        self.turns = asyncio.Semaphore(max(1, min(len(names), IN_FLIGHT_BYTES // size_bytes)))
        self.joining = asyncio.Semaphore(JOINING)
        self.seen = Seen()
        self.held: frozenset[str] = frozenset()
        """Clients that train for ever, until they are let go."""
        self.let_go = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Have every client join, and then follow its tasks."""
        clients = [_Client(self, self._served, name) for name in self.names]
        await asyncio.gather(*(client.join() for client in clients))
        self._tasks = [asyncio.create_task(step) for client in clients for step in (client.follow(), client.beat())]

    async def leave(self) -> None:
        """End every client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def update(self) -> bytes:
        """Another update."""
        return self._updates.another()


class _Client:
    """One client."""

    def __init__(self, clients: Clients, served: Served, name: str) -> None:
        self._clients, self._name, self._token = clients, name, uuid.uuid4().hex
        self._stub: Any = round_grpc.RoundServiceStub(open_aio_channel(served.address, tls=served.members.tls(name)))
        self._lease, self._max_inline_bytes = Lease(), 0
        self._busy: tuple[str, int] | None = None
        self._committed: tuple[str, int] | None = None
        self._update: tuple[tuple[str, int], bytes] | None = None
        self._model = ""

    async def join(self) -> None:
        request = round_pb2.JoinRequest(
            client_id=self._name,
            domain="benchmark",
            instance_token=self._token,
            num_examples=NUM_EXAMPLES,
            class_counts=[types_pb2.ClassCount(class_name=name, num_examples=NUM_EXAMPLES // 2) for name in CLASSES],
            environment=types_pb2.Environment(cpu="any", device="cpu", platform="any"),
        )
        async with self._clients.joining:
            answer = await self._stub.Join(request, timeout=CALL_S)
        self._max_inline_bytes = answer.limits.max_inline_bytes
        self._lease.granted(membership_from_proto(answer))
        self._clients.seen.num_joins += 1

    async def beat(self) -> None:
        """Send signs of life as a trainer does, at intervals alone; the clients of a fleet do so at different moments."""
        request = round_pb2.HeartbeatRequest(client_id=self._name, instance_token=self._token)
        interval_s = self._lease.interval_s or 2.0
        await asyncio.sleep(interval_s * random.random())
        due = time.monotonic()
        while True:
            due = max(due + interval_s, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if not self._busy and self._lease.may_wait():
                continue
            request.run_id, request.round = self._busy or ("", 0)
            activity = types_pb2.CLIENT_ACTIVITY_TRAINING if self._busy else types_pb2.CLIENT_ACTIVITY_IDLE
            request.activity = activity
            begin = time.perf_counter()
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._stub.Heartbeat(request, timeout=CALL_S)
                self._clients.seen.heartbeat_s.append(time.perf_counter() - begin)
                self._lease.renew(-1 if request.run_id else 0)

    async def follow(self) -> None:
        """Do each task as it comes; a task that comes again, from a new stream, is begun again."""
        doing: dict[tuple[str, int, int], asyncio.Task[None]] = {}
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                inline = round_pb2.InlineBlobs(
                    max_bytes=INLINE_BYTES, held_sha256s=[self._model] if self._model else []
                )
                request = round_pb2.SyncRoundRequest(
                    client_id=self._name, instance_token=self._token, inline_blobs=inline
                )
                async for step in self._stub.SyncRound(request):
                    if not step.HasField("task") or step.task.kind not in _WORK:
                        continue
                    if step.inline_blobs:
                        self._model = step.task.payload.tensor_groups[0].sha256
                    key = (step.task.run.run_id, step.task.round, step.task.kind)
                    if key in doing:
                        doing[key].cancel()
                    doing = {known: work for known, work in doing.items() if not work.done()}
                    doing[key] = asyncio.create_task(self._do(step.task))
            while True:
                await asyncio.sleep(AGAIN_S * random.random())
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await self.join()
                    break

    async def _do(self, task: types_pb2.RoundTask) -> None:
        kind = task.kind
        key = self._busy = (task.run.run_id, task.round)
        while True:
            try:
                for blob in task.payload.tensor_groups:
                    if blob.sha256 != self._model:  # a trainer keeps the model that it evaluated for the next round
                        await self._download(blob)
                if kind == types_pb2.TASK_KIND_EVALUATE:
                    await self._report(*key)
                else:
                    await self._train(*key, is_first=kind == types_pb2.TASK_KIND_INIT)
                break
            except grpc.aio.AioRpcError as error:
                if error.code() not in _AWAY:
                    print(f"{self._name}: {error.code()}: {error.details()}", file=sys.stderr, flush=True)
                    break
                await asyncio.sleep(AGAIN_S * random.random())
        self._busy = None
        self._lease.renew(0)

    async def _download(self, blob: types_pb2.BlobRef) -> None:
        request = round_pb2.DownloadBlobRequest(
            client_id=self._name, instance_token=self._token, sha256=blob.sha256, offset_bytes=0
        )
        size_bytes = 0
        async for piece in self._stub.DownloadBlob(request):
            size_bytes += len(piece.chunk.data)
        if size_bytes == blob.size_bytes:
            self._model = blob.sha256

    async def _report(self, run_id: str, number: int) -> None:
        counts = types_pb2.EvaluationCounts(set_name="test", model="global", correct=[1, 1], total=[2, 2])
        request = round_pb2.ReportEvaluationRequest(
            run_id=run_id, round=number, client_id=self._name, instance_token=self._token, counts=[counts]
        )
        await self._stub.ReportEvaluation(request, timeout=CALL_S)

    async def _train(self, run_id: str, number: int, *, is_first: bool) -> None:
        clients, key = self._clients, (run_id, number)
        if self._committed == key:
            clients.seen.num_asked_again += 1
        if number and self._name in clients.held:
            await clients.let_go.wait()
        async with clients.turns:
            if self._update is None or self._update[0] != key:
                self._update = key, clients.update()  # the same update again if its answer was lost
            await self._send(run_id, number, self._update[1], is_first=is_first)
            self._update, self._committed = None, key
            clients.seen.num_committed += 1

    async def _send(self, run_id: str, number: int, data: bytes, *, is_first: bool) -> None:
        blob = types_pb2.BlobRef(role=MODEL, sha256=sha256_hex(data), size_bytes=len(data))
        is_small = len(data) <= self._max_inline_bytes
        if not is_small:
            await self._upload(run_id, number, blob, data)
        payload = types_pb2.Payload(tensor_groups=[blob])
        if is_first:
            payload.int_lists[FEATURE_DIM].values.append(1)
        request = round_pb2.CommitUpdateRequest(
            run_id=run_id,
            round=number,
            client_id=self._name,
            instance_token=self._token,
            payload=payload,
            num_examples=0 if is_first else NUM_EXAMPLES,
            class_counts=() if is_first else [NUM_EXAMPLES // 2] * len(CLASSES),
            inline_blobs=[data] if is_small else [],
        )
        await self._stub.CommitUpdate(request, timeout=CALL_S)

    async def _upload(self, run_id: str, number: int, blob: types_pb2.BlobRef, data: bytes) -> None:
        header = round_pb2.BlobHeader(
            run_id=run_id, round=number, client_id=self._name, instance_token=self._token, blob=blob
        )
        status = await self._stub.GetUploadStatus(round_pb2.GetUploadStatusRequest(header=header), timeout=CALL_S)
        if not status.is_complete:
            await self._stub.UploadModel(_parts(header, data, status.offset_bytes), timeout=CALL_S)


async def _parts(header: round_pb2.BlobHeader, data: bytes, offset: int) -> AsyncIterator[round_pb2.UploadModelRequest]:
    yield round_pb2.UploadModelRequest(header=header)
    for begin in range(offset, len(data), CHUNK_BYTES):
        chunk = round_pb2.Chunk(offset_bytes=begin, data=data[begin : begin + CHUNK_BYTES])
        yield round_pb2.UploadModelRequest(chunk=chunk)


def act(control: Connection, served: Served, names: Sequence[str], num_parameters: int, index: int) -> None:
    """Act for clients, in a process of its own, until `control` closes.

    Answers None when all have joined. Then each message is answered by what was seen since the one before; a message with
    names holds these clients in their training, an empty one lets them go.
    """
    keep_freed_memory()
    asyncio.run(_act(control, Clients(served, names, num_parameters, index)))


async def _act(control: Connection, clients: Clients) -> None:
    await clients.join()
    control.send(None)
    is_readable, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(control.fileno(), is_readable.set)
    while True:
        await is_readable.wait()
        is_readable.clear()
        try:
            while control.poll():
                held = control.recv()
                if held is not None:
                    clients.held = frozenset(held)
                    (clients.let_go.clear if held else clients.let_go.set)()
                control.send(clients.seen)
                clients.seen.heartbeat_s.clear()
        except EOFError:
            break
    loop.remove_reader(control.fileno())
    await clients.leave()
