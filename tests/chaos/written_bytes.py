"""What calls leave behind: of every RPC of members and every operation of REST, said again and again with another content.

Database and logs grow by a constant, by far less than was received, and by what a call is there to keep: who repeats any
call for an hour cannot fill the aggregator's disk. Files of uploads have limits of their own.

    python -m tests.chaos.written_bytes                    a thousand calls of each
    python -m tests.chaos.written_bytes --calls 50         as many
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import io
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.gateway.app import create_app
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.process.log import set_up, stay_quiet
from fedplcc.shared.tensors import to_bytes
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.hosts.memory_folder import memory_folder

CALLS, RUNS, INSTANCE = 1000, 8, 40
"""Calls of one kind, open runs that they name in turn, and calls after which a member's trainer is another instance."""
CONSTANT_BYTES = 512 << 10
"""Most bytes that database and log grow by in an hour, whatever comes."""
A_BYTE = 0.25
"""Most bytes that they grow by for each byte received, besides."""


def database_bytes(folder: Path) -> int:
    """Bytes of the database's pages in use, once its log is written back."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def text(number: int, size: int = 1000) -> str:
    """Return a text that no call before had."""
    return (f"{number} " * size)[:size]


# -- RPCs of members ----------------------------------------------------------------------------------------------------


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
        return text(self.number, size)

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


def problem_of_rpc(
    federation: LocalFederation,
    folder: Path,
    name: str,
    num_calls: int,
    servicer_type: type[RoundServicer] = RoundServicer,
) -> str:
    """Make the calls of one RPC; return what is wrong with what they wrote, empty if nothing."""
    runs = [federation.create(run={"name": f"run-{number}"}).run_id for number in range(RUNS)]
    before, received = database_bytes(folder), 0

    async def calls() -> None:
        nonlocal received
        servicer = servicer_type(federation.coordinator, Wakeups(asyncio.get_running_loop()), 1.0)
        for number in range(num_calls):
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
    if written <= CONSTANT_BYTES + A_BYTE * received:
        return ""
    return f"{num_calls} calls of {name} sent {received:,} bytes and left {written:,} in the database"


# -- Operations of REST -------------------------------------------------------------------------------------------------


KEPT_A_BYTE = 6.0
"""The same where a request's content is there to be kept: as a document, as an event and in the log."""
KEEPING = frozenset({"create_run", "update_run"})
AN_ACT_BYTES = 2048
"""Most bytes that one change which is taken leaves besides: history, audit and log say who did what."""

OPERATIONS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    operation["operationId"]: (method, path, operation)
    for path, item in create_app(GatewaySettings()).openapi()["paths"].items()
    for method, operation in item.items()
}


BODIES: Mapping[str, Callable[[int], Any]] = {
    "create_run": lambda number: a_document(run={"name": f"run-{number}"}),
    "check_run_configuration": lambda number: {**a_document(run={"name": text(number)}), text(number, 100): {}},
    "update_run": lambda number: {"notes": text(number), "tags": [f"tag-{number}-{tag}" for tag in range(8)]},
    "pause_run": lambda number: {"now": True},
    "stop_run": lambda number: {"reason": text(number, 400)},
    "extend_run": lambda number: {"rounds": 5 + number},
    "quarantine_client": lambda number: {"reason": text(number, 400)},
    "put_model": lambda number: to_bytes(NumpyClient("ann").first_model(number)),
    "open_console_session": lambda number: {"code": text(number, 64)},
    "poll_terminal_sign_on": lambda number: {"handle": text(number, 64)},
}
"""How the body of each operation that takes one is made for its n-th request."""
BEFORE = {"resume_run": "pause_run", "release_client": "quarantine_client"}
"""Operations that undo another one, which is done first."""
REFUSED = frozenset(
    {
        *("delete_run", "extend_run", "advance_stage", "forget_client", "open_console_session", "end_session"),
        *("begin_terminal_sign_on", "poll_terminal_sign_on", "test_message_receiver"),
    }
)
"""Changes that nobody may make of an open run, or without a code, a session, a provider or a receiver: they leave what a
refusal leaves."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an operation: the n-th, about one of the open runs, with another content than all before.

    Every second one names a client that there is and has no query, so that it is taken; the others differ in every part.
    """

    name: str
    number: int
    run_id: str

    def send(self, served: ServedGateway) -> tuple[int, bool]:
        """Send it and take the answer; returns the bytes sent, without other headers, and whether it was taken."""
        method, path, operation = OPERATIONS[self.name]
        body = BODIES[self.name](self.number) if self.name in BODIES else None
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        is_known = self.number % 2 == 0
        client_id = ("ann", "bob")[self.number // 2 % 2] if is_known else f"ann-{self.number}"
        names = {"run_id": self.run_id, "client_id": client_id, "number": "0", "code": text(self.number, 40)}
        names["receiver"] = text(self.number, 40)
        names["sha256"] = hashlib.sha256(content).hexdigest()
        query, headers = dict[str, str](), {"Content-Type": "application/json"}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "query" and not is_known:
                query[parameter["name"]] = text(self.number, 200)
            elif parameter["in"] == "header":
                headers[parameter["name"]] = f"{self.name}-{self.run_id}-{self.number}"
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        answer = served.http.request(method, path.format(**names), params=query, headers=headers, content=content)
        return sum(map(len, (str(answer.request.url), *headers.values()))) + len(content), answer.is_success


Served = tuple[ServedGateway, Path]


def problem_of_rest(
    name: str, served: Served, num_calls: int, plant: Callable[[ServedGateway, Asked], None] = lambda *_: None
) -> str:
    """Send the requests of one operation; return what is wrong with what they wrote, empty if nothing."""
    gateway, folder = served
    gateway.federation.join()
    runs = [gateway.create(run={"name": f"open-{number}"}) for number in range(RUNS)]
    before, received, lines, taken = database_bytes(folder), 0, io.StringIO(), Counter[str]()
    set_up("info", stream=lines)
    for number in range(num_calls):
        for each in filter(None, (BEFORE.get(name), name)):
            asked = Asked(each, number, runs[number % RUNS])
            size_bytes, is_taken = asked.send(gateway)
            received += size_bytes
            taken[each] += is_taken
        plant(gateway, asked)
    written = database_bytes(folder) - before + len(lines.getvalue())
    stay_quiet()
    for run_id in runs:
        gateway.http.post(f"/v1/runs/{run_id}/stop", json={})
    is_change = OPERATIONS[name][0] != "get"
    if is_change and bool(taken[name]) == (name in REFUSED):
        return f"{taken[name]} of {num_calls} requests of {name} were taken"
    if (
        written
        <= CONSTANT_BYTES
        + (KEPT_A_BYTE if name in KEEPING else A_BYTE) * received
        + AN_ACT_BYTES * is_change * taken.total()
    ):
        return ""
    return f"{num_calls} requests of {name} sent {received:,} bytes and left {written:,}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make calls of every kind; returns 1 if one leaves too much."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.written_bytes", description=(__doc__ or "").splitlines()[0]
    )
    stay_quiet()
    parser.add_argument("--calls", type=int, default=CALLS, metavar="N", help=f"calls of each kind; {CALLS} by default")
    num_calls, wrong = parser.parse_args(arguments).calls, list[str]()
    for name in CHANGED:
        with memory_folder() as path, LocalFederation(Path(path), map(NumpyClient, ("ann", "bob"))) as federation:
            federation.join()
            wrong.append(problem_of_rpc(federation, Path(path), name, num_calls))
    with memory_folder() as path, ServedGateway(Path(path)) as gateway:
        wrong.extend(problem_of_rest(name, (gateway, Path(path)), num_calls) for name in OPERATIONS)
    wrong = list(filter(None, wrong))
    print(
        "\n".join([f"{len(CHANGED)} RPCs and {len(OPERATIONS)} operations of REST, {num_calls} calls of each", *wrong])
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
