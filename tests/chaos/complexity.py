"""Requests that cost more than their size: every REST route and every RPC at a quarter, a half and the whole of its limit.

The time of a request may at most triple when its size doubles, and no event loop may be busy with it for a second: `/livez`
and heartbeats would wait. Routes come from the OpenAPI document and RPCs from their descriptors, so that a new one is
covered by itself. Times are processor time, which a busy machine does not change.

    python -m tests.chaos.complexity                      all of them
    python -m tests.chaos.complexity --only CreateRun     those whose name has this text
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.run_service import RunServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.gateway.app import MAX_BODY_BYTES
from fedplcc.shared.convert.membership import client_to_join
from fedplcc.shared.gen.fedplcc.v1 import (
    round_service_pb2,
    round_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from fedplcc.shared.process import log
from fedplcc.shared.wire.channels import MAX_MESSAGE_BYTES, open_channel
from fedplcc.shared.wire.serving.server import RpcServer
from tests.support.federation.numpy_client import a_document
from tests.support.federation.served_gateway import ServedGateway
from tests.support.growth import MOST_A_DOUBLING, NotLinear, require_linear
from tests.support.records.read_headers import HEADERS
from tests.support.records.rest_document import rest_document

PARTS = (4, 2, 1)
"""The limit is divided by these."""
ADDRESS_BYTES = 48 << 10
"""Largest path, query or header that is sent; the HTTP parser's own limit is 64 KiB."""
MESSAGE_BYTES = MAX_MESSAGE_BYTES - 2000
"""Largest message that is sent."""
TEXTS = {
    "": "x",
    " of passwords": "://:::",
    " of commands": "\x1b",
    " of keys": "-----BEGIN A-----",
    " of signs": "\u202e",
}
"""Words of which long texts are made: what logs mask, escape and look for."""
CLOCK = time.process_time
"""Processor time of gateway, aggregator and sender, which are one process."""
MOST_BUSY_S = 1.0
"""Longest processor time that an event loop may be busy without a pause."""
MOST_ENTRIES = 1_000_000
"""Most entries of one field that the sender itself can make in reasonable time."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of request."""

    name: str
    make: Callable[[int], Any]
    """Makes the request of a size in bytes."""
    send: Callable[[Any], object]
    most_bytes: int


@dataclass(slots=True)
class Report:
    """What was sent and what was found."""

    num_sent: int = 0
    violations: list[str] = field(default_factory=list)
    busiest: tuple[float, str] = (0.0, "")

    def text(self) -> str:
        """The report in words."""
        lines = [
            f"{self.num_sent} kinds of requests",
            f"longest pause of an event loop {self.busiest[0]:.3f} s: {self.busiest[1]}",
        ]
        return "\n".join([*lines, *(f"VIOLATED {line}" for line in self.violations)])


class Served(ServedGateway):
    """A gateway and an aggregator with both its services, on one event loop."""

    async def _start_aggregator(self) -> None:
        self._wakeups = Wakeups(asyncio.get_running_loop())
        self.federation.coordinator.subscribe(self._wakeups.notify)
        self._aggregator = RpcServer("127.0.0.1", self._aggregator_port)
        self._aggregator.add(
            run_service_pb2_grpc.add_RunServiceServicer_to_server,
            RunServicer(self.federation.coordinator, self._wakeups),
            run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
        )
        self._aggregator.add(
            round_service_pb2_grpc.add_RoundServiceServicer_to_server,
            RoundServicer(self.federation.coordinator, self._wakeups, 1.0),
            round_service_pb2.DESCRIPTOR.services_by_name["RoundService"],
        )
        self._aggregator_port = await self._aggregator.start()

    @contextmanager
    def watched(self) -> Iterator[Callable[[], float]]:
        """Yield a function that returns the longest processor time between two turns of the loop since its last call."""
        longest, last = 0.0, math.inf
        handle: asyncio.Handle | None = None

        def turn() -> None:
            nonlocal longest, last, handle
            now = time.thread_time()
            longest, last = max(longest, now - last), now
            handle = self._loop.call_later(0.005, turn)

        def begin() -> None:
            nonlocal handle
            handle = self._loop.call_soon(turn)

        def found() -> float:
            nonlocal longest
            value, longest = longest, 0.0
            return value

        def end() -> None:
            if handle is not None:
                handle.cancel()

        self._loop.call_soon_threadsafe(begin)
        try:
            yield found
        finally:
            self._loop.call_soon_threadsafe(end)


# REST


def _pairs(key: Callable[[int], str], value: str) -> Callable[[int], bytes]:
    def text(size: int) -> bytes:
        entry = len(f'"{key(10**6)}":{value},')
        return ("{" + ",".join(f'"{key(n)}":{value}' for n in range(max(1, size // entry))) + "}").encode()

    return text


def _in_run(unit: str) -> Callable[[int], bytes]:
    return lambda size: ('{"run":{"clients":[' + ",".join([unit] * ((size - 100) // (len(unit) + 1))) + "]}}").encode()


def _in_a_whole(section: str, key: str) -> Callable[[int], bytes]:
    def text(size: int) -> bytes:
        values = [f"n{number:05}" for number in range((size - 2000) // 9)]
        document = a_document()
        document[section] = {**document.get(section, {}), key: values}
        if key == "clients":
            document["run"].pop("min_clients", None)
        return json.dumps(document, separators=(",", ":")).encode()

    return text


BODIES: Mapping[str, Callable[[int], bytes]] = {
    "unknown sections": _pairs(lambda n: f"s{n:06}", "0"),
    "a key at the end again": lambda size: _pairs(lambda n: f"s{n:06}", "0")(size - 20)[:-1] + b',"s000000":0}',
    "unknown keys": lambda size: b'{"run":' + _pairs(lambda n: f"k{n:06}", "0")(size - 20) + b"}",
    "keys of a method": lambda size: (
        b'{"run":{"method":"fedplcc"},"method":' + _pairs(lambda n: f"k{n:06}", "0")(size - 60) + b"}"
    ),
    "wrong clients": _in_run("0"),
    "equal clients": _in_run('"ann"'),
    "many clients": _in_a_whole("run", "clients"),
    "many classes": _in_a_whole("data", "classes"),
    "lists": _in_run("[]"),
    "nests": lambda size: b'{"a":' + b"[" * (size // 2 - 10) + b"]" * (size // 2 - 10) + b"}",
    "a long text": lambda size: b'{"reason":"' + b"x" * (size - 20) + b'"}',
    "escapes": lambda size: b'{"reason":"' + b"\\\\" * (size // 2 - 20) + b'"}',
    "digits": lambda size: b'{"now":' + b"1" * (size - 20) + b"}",
    "half of a text": lambda size: b'{"reason":"' + b'\\"' * (size // 2 - 10),
}


def rest_cases(served: ServedGateway, run_id: str) -> Iterator[Case]:
    """Every route with each of its parameters, a long unknown one, many headers, and every body."""
    document = rest_document()
    known = {"run_id": run_id, "client_id": "ann", "number": "1", "sha256": "0" * 64}
    known |= {"code": "INTERNAL", "receiver": "nobody"}

    def sender(method: str, path: str) -> Callable[[Mapping[str, Any]], object]:
        def send(request: Mapping[str, Any]) -> object:
            if "headers_text" in request:
                return _send_plainly(served, method, path, request["headers_text"])
            return served.http.request(method, request.get("path", path), **request["options"])

        return send

    for template, item in document["paths"].items():
        path = template.format(**{name: known[name] for name in known if f"{{{name}}}" in template})
        for method, operation in item.items():
            name = f"{method.upper()} {template}"
            send = sender(method.upper(), path)
            if operation["operationId"] == "get_events":  # as pages: a stream does not end
                path = f"{path}?after=0"
            read = (
                [{"in": "header", "name": header} for header in HEADERS]
                if operation["operationId"] == "get_run"
                else []
            )
            for parameter in (*operation.get("parameters", ()), {"in": "query", "name": "no-such-parameter"}, *read):
                yield from _of_parameter(name, template, path, known, parameter, send)
            yield Case(f"{name}: many headers", _many_headers, send, ADDRESS_BYTES)
            if "requestBody" in operation or method == "post":
                for kind, make in BODIES.items():
                    yield Case(f"{name}: body of {kind}", _with_body(path, make), send, MAX_BODY_BYTES)


def _of_parameter(
    name: str,
    template: str,
    path: str,
    known: Mapping[str, str],
    parameter: Mapping[str, Any],
    send: Callable[[Any], object],
) -> Iterator[Case]:
    what, where = parameter["name"], parameter["in"]
    joint = "&" if "?" in path else "?"
    makers: dict[str, Callable[[int], Any]] = {}
    for kind, text in TEXTS.items():
        makers[f"long{kind}"] = _long(quote(text, safe=":"), template, path, known, what, where, joint)
    if where == "query":
        makers["digits"] = lambda size: {"path": f"{path}{joint}{what}={'1' * size}", "options": {}}
        unit = f"{what}=a1&"
        makers["again and again"] = lambda size: {"path": f"{path}{joint}{unit * (size // len(unit))}", "options": {}}
    for kind, make in makers.items():
        yield Case(f"{name}: {where} {what} {kind}", make, send, ADDRESS_BYTES)


def _long(
    unit: str, template: str, path: str, known: Mapping[str, str], what: str, where: str, joint: str
) -> Callable[[int], Any]:
    def make(size: int) -> Any:
        text = unit * (size // len(unit))
        if where == "path":
            return {"path": template.format(**{**known, what: text}), "options": {}}
        if where == "query":
            return {"path": f"{path}{joint}{what}={text}", "options": {}}
        return {"path": path, "options": {"headers": {what: text}}}

    return make


def _many_headers(size: int) -> Any:
    return {"headers_text": "".join(f"x-{number:05}: a\r\n" for number in range(size // 16))}


def _send_plainly(served: ServedGateway, method: str, path: str, headers: str) -> bytes:
    """Send a request without a client, whose own work with many headers grows with the square of their number."""
    url = httpx.URL(served.url)
    head = f"{method} {path} HTTP/1.1\r\nHost: {url.host}:{url.port}\r\nConnection: close\r\n{headers}\r\n"
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(65536), b""))


def _with_body(path: str, make: Callable[[int], bytes]) -> Callable[[int], Any]:
    headers = {"Content-Type": "application/json"}
    return lambda size: {"path": path, "options": {"content": make(size), "headers": headers}}


# RPC


def rpc_cases(served: ServedGateway, run_id: str) -> Iterator[Case]:
    """Every RPC with each of its fields, also of the messages within, filled up to the largest message."""
    channel = open_channel(served.settings.aggregator)
    ann = served.federation.clients["ann"]
    known = {"client_id": "ann", "instance_token": ann.token, "run_id": run_id}
    join = client_to_join(ann.record, instance_token=ann.token, version="1")
    for pb2, service in ((round_service_pb2, "RoundService"), (run_service_pb2, "RunService")):
        for method in pb2.DESCRIPTOR.services_by_name[service].methods:
            send = _caller(channel, method)
            for path in _paths(method.input_type, ()):
                name = f"{method.name}: {'.'.join(each.name for each in path)}"
                base = join if method.name == "Join" else None
                texts = (
                    TEXTS if path[-1].type == FieldDescriptor.TYPE_STRING and not path[-1].is_repeated else {"": "x"}
                )
                for kind, text in texts.items():
                    yield Case(f"{name}{kind}", _filled(method, path, known, base, text), send, MESSAGE_BYTES)


def _caller(channel: grpc.Channel, method: MethodDescriptor) -> Callable[[bytes], object]:
    name = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(name)  # bytes in and out

    def send(data: bytes) -> None:
        with suppress(grpc.RpcError):
            answer = call(iter([data]) if method.client_streaming else data)
            if method.server_streaming:
                next(iter(answer), None)
                answer.cancel()

    return send


def _paths(message: Any, above: tuple[FieldDescriptor, ...]) -> Iterator[tuple[FieldDescriptor, ...]]:
    """The fields of a message that can be long, and those of its messages."""
    for each in message.fields:
        path = (*above, each)
        if each.is_repeated or each.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            yield path
        if each.message_type is not None and len(path) < 4 and not each.message_type.GetOptions().map_entry:
            yield from _paths(each.message_type, path)


def _filled(
    method: MethodDescriptor, path: Sequence[FieldDescriptor], known: Mapping[str, str], base: Any, text: str
) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        message = GetMessageClass(method.input_type)()
        if base is not None:
            message.CopyFrom(base)
        for name, value in known.items():
            if name in method.input_type.fields_by_name:
                setattr(message, name, value)
        inner = message
        for each in path[:-1]:
            inner = getattr(inner, each.name).add() if each.is_repeated else getattr(inner, each.name)
            inner.SetInParent()
        _fill(inner, path[-1], size - 1000, text)
        data: bytes = message.SerializeToString()
        return data

    return make


def _fill(message: Any, last: FieldDescriptor, size: int, text: str) -> None:
    if last.is_repeated and last.message_type is not None and last.message_type.GetOptions().map_entry:
        table = getattr(message, last.name)
        value = last.message_type.fields_by_name["value"]
        for number in range(min(size // 16, MOST_ENTRIES)):
            if value.message_type is not None:
                table[f"k{number:06}"].SetInParent()
            else:
                table[f"k{number:06}"] = "v" if value.cpp_type == FieldDescriptor.CPPTYPE_STRING else 1
    elif last.is_repeated and last.message_type is not None:
        for _ in range(min(size // 2, MOST_ENTRIES)):
            getattr(message, last.name).add()
    elif last.is_repeated:
        is_text = last.cpp_type == FieldDescriptor.CPPTYPE_STRING
        entries = ["a"] * min(size // 3, MOST_ENTRIES) if is_text else [1] * min(size, MOST_ENTRIES)
        getattr(message, last.name).extend(entries)
    else:
        is_bytes = last.type == FieldDescriptor.TYPE_BYTES
        setattr(message, last.name, b"x" * size if is_bytes else text * (size // len(text.encode())))


# Both


def examine(choose: Callable[[int, str], bool], report: Report, folder: Path) -> None:
    """Send the chosen cases, by their place and name, and add what is wrong to the report."""
    with Served(folder) as served, served.watched() as longest_pause:
        run_id = served.create()
        served.federation.join()
        cases = [*rest_cases(served, run_id), *rpc_cases(served, run_id)]
        for case in (case for place, case in enumerate(cases) if choose(place, case.name)):
            report.num_sent += 1
            requests = [case.make(case.most_bytes // part) for part in PARTS]
            longest_pause()
            try:
                require_linear(_patient(case.send), requests, lambda: CLOCK())
            except NotLinear as error:
                report.violations.append(f"{case.name}: {error}")
            pause = longest_pause()
            report.busiest = max(report.busiest, (pause, case.name))
            if pause > MOST_BUSY_S:
                report.violations.append(f"{case.name}: the event loop was busy for {pause:.2f} s")
            assert served.http.get("/livez").status_code == 200


def _patient(send: Callable[[Any], object]) -> Callable[[Any], object]:
    def sent(request: Any) -> None:
        with suppress(httpx.TransportError, httpx.InvalidURL):  # a request that the parser itself refuses, or httpx
            send(request)

    return sent


def main(arguments: Sequence[str] | None = None) -> int:
    """Send all cases, or those that are named; returns 1 if any takes too long."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.complexity", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name has this text")
    chosen = parser.parse_args(arguments)
    log.set_up("error")
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        examine(lambda _place, name: chosen.only in name, report, Path(folder))
    print(f"complexity: at most {MOST_A_DOUBLING:g} times the time for twice the size\n{report.text()}")
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
