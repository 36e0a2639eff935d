"""What a member's calls leave behind: of every RPC, said again and again with another content, far less than was received.

A member that repeats any call for an hour cannot fill the aggregator's disk: the database grows by a constant, not by what
it sends. Files of uploads have limits of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from aggregator.servicer.round_service import RoundServicer
from aggregator.servicer.wakeups import Wakeups
from shared.errors import FedplccError
from shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from shared.gen.fedplcc.v1 import types_pb2
from shared.types import Event
from tests.support.federation.in_process import LocalFederation
from tests.support.oracles.database_bytes import database_bytes

CALLS, RUNS, INSTANCE = 200, 8, 40
"""Calls of one RPC, open runs of the member, and calls after which its trainer is another instance."""
AN_HOUR_BYTES = 512 << 10
"""Most bytes by which the database grows in an hour, whatever comes."""
A_BYTE = 0.25
"""Most bytes that it grows by for each byte received, besides."""


@dataclass(frozen=True, slots=True)
class Call:
    """The n-th call of a member, who names one of its runs and itself."""

    number: int
    run_id: str
    token: str

    @property
    def who(self) -> dict[str, Any]:
        return {"client_id": "ann", "instance_token": self.token}

    @property
    def task(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "round": self.number % 3, **self.who}

    def text(self, size: int = 1000) -> str:
        return (f"{self.number} " * size)[:size]

    def numbers(self) -> dict[str, float]:
        return {f"{name} {self.number} {'x' * 50}": self.number for name in range(60)}

    def blob(self) -> types_pb2.BlobRef:
        data = self.text().encode()
        return types_pb2.BlobRef(role="model", sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))

    def upload(self, part: Callable[..., Message]) -> list[Message]:
        header = round_pb.BlobHeader(**self.task, blob=self.blob())
        return [part(header=header), part(chunk=round_pb.Chunk(data=self.text(900).encode()))]


def a_join(call: Call) -> Message:
    packages = {f"{name}-" + "x" * 100: f"{call.number}-" + "y" * 100 for name in range(32)}
    return round_pb.JoinRequest(
        **call.who,
        domain=f"domain-{call.number}",
        num_examples=12,
        class_counts=[types_pb2.ClassCount(class_name=f"a-{call.number}", num_examples=12)],
        environment=types_pb2.Environment(packages=packages, cpu=call.text(256), platform=call.text(256)),
        version=call.text(),
    )


def a_heartbeat(call: Call) -> Message:
    said = call.text()
    return round_pb.HeartbeatRequest(
        **call.task,
        activity=types_pb2.CLIENT_ACTIVITY_TRAINING,
        readings={f"reading {number} {call.number}": 1.0 for number in range(32)},
        problem=types_pb2.ClientProblem(reason=said, detail=said, hint=said, is_fatal=True),
    )


CHANGED: Mapping[str, Callable[[Call], Message | Sequence[Message]]] = {
    "Join": a_join,
    "SyncRound": lambda call: round_pb.SyncRoundRequest(
        **call.who, poll=round_pb.Poll(known=round_pb.TaskKey(run_id=call.text(), kind=types_pb2.TASK_KIND_TRAIN))
    ),
    "Heartbeat": a_heartbeat,
    "DownloadBlob": lambda call: round_pb.DownloadBlobRequest(**call.who, sha256=call.blob().sha256),
    "GetUploadStatus": lambda call: round_pb.GetUploadStatusRequest(
        header=round_pb.BlobHeader(**call.task, blob=call.blob())
    ),
    "UploadModel": lambda call: call.upload(round_pb.UploadModelRequest),
    "UploadPrototypes": lambda call: call.upload(round_pb.UploadPrototypesRequest),
    "CommitUpdate": lambda call: round_pb.CommitUpdateRequest(
        **call.task, num_examples=call.number, losses=call.numbers(), timings=call.numbers()
    ),
    "ReportEvaluation": lambda call: round_pb.ReportEvaluationRequest(
        **call.task,
        counts=[types_pb2.EvaluationCounts(set_name=call.text(), model="global", correct=[1], total=[call.number])],
        timings=call.numbers(),
    ),
}
"""How the content of each RPC's request is made for its n-th call."""


def test_each_rpc_of_members_is_looked_at() -> None:
    (service,) = round_pb.DESCRIPTOR.services_by_name.values()
    assert set(CHANGED) == {method.name for method in service.methods}


class Planted(RoundServicer):
    """A servicer with the fault that is searched for: a call whose whole request becomes an event."""

    async def Join(self, request: round_pb.JoinRequest, context: Any) -> round_pb.JoinResponse:
        with self._coordinator._store.transaction() as transaction:
            transaction.add_event(Event(type="client_joined", data={"all": str(request)}))
        return await super().Join(request, context)


async def said(servicer: RoundServicer, name: str, request: Message | Sequence[Message]) -> None:
    """Make a call as the server does, and take its whole answer; a refusal is one too."""

    async def parts() -> AsyncIterator[Message]:
        for part in request if isinstance(request, Sequence) else ():
            yield part

    answer = getattr(servicer, name)(parts() if isinstance(request, Sequence) else request, None)
    try:
        if hasattr(answer, "__aiter__"):
            async for _ in answer:
                pass
        else:
            await answer
    except FedplccError:
        pass


def measured(federation: LocalFederation, folder: Path, name: str, servicer_type: type[RoundServicer]) -> str:
    """Make the calls of one RPC; return what is wrong with what they wrote, empty if nothing."""
    runs = [federation.create(run={"name": f"run-{number}"}).run_id for number in range(RUNS)]
    before, received = database_bytes(folder), 0

    async def calls() -> None:
        nonlocal received
        servicer = servicer_type(federation.coordinator, Wakeups(asyncio.get_running_loop()), 1.0)
        for number in range(CALLS):
            token = f"instance-token-of-ann-{number // INSTANCE}"
            if number % INSTANCE == 0:
                federation.clock.now += 100
                federation.coordinator.tick()
                federation.coordinator.join(federation.clients["ann"].record, token)
                federation.coordinator.task("ann", token)
            request = CHANGED[name](Call(number, runs[number % RUNS], token))
            received += sum(part.ByteSize() for part in (request if isinstance(request, Sequence) else [request]))
            await said(servicer, name, request)

    asyncio.run(calls())
    written = database_bytes(folder) - before
    if written <= AN_HOUR_BYTES + A_BYTE * received:
        return ""
    return f"{CALLS} calls of {name} sent {received:,} bytes and left {written:,} in the database"


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_what_a_call_leaves_is_bounded(federation: LocalFederation, folder: Path, name: str) -> None:
    assert measured(federation, folder, name, RoundServicer) == ""


def test_a_call_that_writes_down_its_request_is_found(federation: LocalFederation, folder: Path) -> None:
    assert measured(federation, folder, "Join", Planted).startswith(f"{CALLS} calls of Join sent")
