"""Numbers at the limits of their types: every numeric field of every RPC and every key of a run, one at a time and in pairs.

    python -m tests.chaos.numeric_limits                  every method, against a real process
    python -m tests.chaos.numeric_limits --method fedavg  one method

The fields come from the descriptors of the messages and the keys from the configuration's records, so that a new one is
tried by itself. A hostile client sends each number in the middle of an honest round. It is refused by name or it counts; in
both cases the round goes on, the run completes with finite results, and what was refused has changed no byte.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from pydantic import BaseModel

from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.convert.runs import run_from_proto
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2_grpc as round_grpc
from fedplcc.shared.methods import METHODS
from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import ClientActivity, PrototypeSet, RunStatus, Task, TaskKind
from fedplcc.shared.wire.statuses import translate, translated
from fedplcc.shared.wire.tls import ClientTls
from tests.chaos.fuzz_doors import BUGS, SERVICES
from tests.support.federation.grpc_client import DEADLINE_S, GrpcClient, RunControl
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.federation.processes import Federation
from tests.support.oracles.federation_result import expected

ANN, MALLORY = NumpyClient("ann"), NumpyClient("mallory", counts=(2, 6, 7))
CLIENTS = (ANN, MALLORY)
PAIRS = 150
"""Pairs of fields that are tried in each method."""
STEPS = 60
"""Tasks after which a run of two rounds must have ended."""

_INTEGERS: Mapping[int, tuple[int, ...]] = {
    FieldDescriptor.TYPE_INT32: (2**31 - 1, -(2**31), -1, 0),
    FieldDescriptor.TYPE_INT64: (2**63 - 1, -(2**63), 2**53 + 1, -1, 0),
    FieldDescriptor.TYPE_UINT32: (2**32 - 1, 0),
    FieldDescriptor.TYPE_UINT64: (2**64 - 1, 0),
}
_BIGGEST, _SMALLEST = sys.float_info.max, 5e-324
_FLOATS = (_BIGGEST, -_BIGGEST, _BIGGEST / 2, 1e300, _SMALLEST, -0.0, math.inf, -math.inf, math.nan)
_F32 = float(np.finfo(np.float32).max)
MATERIAL = (_F32, -_F32, float(np.float32(1e-45)))
"""Numbers for the tensors of a model and of prototypes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One number of one RPC at a limit; of a tensor, the "RPC" is `MODEL` or `PROTOTYPES`."""

    rpc: str
    path: tuple[str, ...]
    value: float

    def __str__(self) -> str:
        return f"{self.rpc} {'.'.join(self.path)} = {self.value!r}"


@dataclass(slots=True)
class Report:
    """Numbers tried, answers, and what went wrong."""

    tried: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def violated(self, text: str) -> None:
        """Note a violation, once."""
        if text not in self.violations:
            self.violations.append(text)

    def text(self) -> str:
        """The figures, a line each."""
        lines = [f"{sum(self.tried.values())} cases, {len(self.violations)} violations", *self.violations, ""]
        lines += [f"  {count:6}  {name}" for name, count in sorted(self.tried.items())]
        lines += ["", "answers:", *(f"  {count:6}  {name}" for name, count in self.answers.most_common())]
        return "\n".join(lines)


# Fields of messages


def numeric_paths(message: Descriptor) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield path and type of every number in a message, of those within other messages too."""
    for found in message.fields:
        if found.message_type is not None and found.message_type.GetOptions().map_entry:
            value = found.message_type.fields_by_name["value"]
            if value.type in _INTEGERS or value.type == FieldDescriptor.TYPE_DOUBLE:
                yield (found.name,), value.type
            elif value.message_type is not None:
                yield from (((found.name, *path), kind) for path, kind in numeric_paths(value.message_type))
        elif found.message_type is not None:
            yield from (((found.name, *path), kind) for path, kind in numeric_paths(found.message_type))
        elif found.type in _INTEGERS or found.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT):
            yield (found.name,), found.type


def limits_of(service: str) -> list[Limit]:
    """Every number of every request of a service, at each limit of its type."""
    return [
        Limit(f"{service}/{method.name}", path, value)
        for method in SERVICES[service].methods
        for path, kind in numeric_paths(method.input_type)
        for value in _INTEGERS.get(kind, _FLOATS)
    ]


def bend(message: Message, path: Sequence[str], value: float) -> bool:
    """Set the number at a path; a list gets it as its first element, a map under its names, or under one of ours.

    Returns whether it could be set: a part of a union that the message does not have is left alone.
    """
    name, rest = path[0], path[1:]
    described = message.DESCRIPTOR.fields_by_name[name]
    if described.containing_oneof is not None and not message.HasField(name):
        return False
    found: Any = getattr(message, name)
    if described.message_type is not None and described.message_type.GetOptions().map_entry:
        for key in list(found) or ["limit"]:
            if rest:
                bend(found[key], rest, value)
            else:
                found[key] = value
        return True
    if described.is_repeated:
        if rest:
            return bend(found[0] if found else found.add(), rest, value)
        if found:
            found[0] = value
        else:
            found.append(value)
        return True
    if rest:
        return bend(found, rest, value)
    setattr(message, name, int(value) if isinstance(value, int) else value)
    return True


# A client that sends such numbers


class _Bender(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
):
    """Puts the armed numbers into the next request of their RPC, once each."""

    def __init__(self) -> None:
        self.armed: list[Limit] = []
        self.sent: list[Limit] = []

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, self._bent(details, request))

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(details, self._bent(details, request))

    def intercept_stream_unary(self, continuation: Any, details: Any, requests: Iterable[Any]) -> Any:
        return continuation(details, (self._bent(details, request) for request in requests))

    def _bent(self, details: Any, request: Any) -> Any:
        for limit in list(self.armed):
            if details.method.endswith(limit.rpc):
                changed = type(request)()
                changed.CopyFrom(request)
                if bend(changed, limit.path, limit.value):
                    self.armed.remove(limit)
                    self.sent.append(limit)
                    request = changed
        return request


class HostileTensors(NumpyClient):
    """A client whose tensors can be told to hold one number."""

    extreme: tuple[str, float] | None = None

    def trained(self, task: Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """See `NumpyClient.trained`."""
        made = super().trained(task, model)
        if self.extreme is not None and self.extreme[0] == "model":
            made = {name: np.full_like(value, self.extreme[1]) if value.dtype == np.float32 else value
                    for name, value in made.items()}  # fmt: skip
        return made

    def prototypes(self, task: Task, kind: str | None = None) -> PrototypeSet:
        """See `NumpyClient.prototypes`."""
        made = super().prototypes(task, kind)
        if self.extreme is not None and self.extreme[0] == "prototypes":
            vectors = np.full_like(made.vectors, self.extreme[1])
            made = PrototypeSet.of(vectors, made.class_ids.tolist(), made.weights.tolist())
        return made


class HostileClient(GrpcClient):
    """A client over gRPC that sends the armed numbers in the middle of honest work."""

    def __init__(self, address: str, tls: ClientTls | None) -> None:
        super().__init__(address, HostileTensors(MALLORY.client_id, counts=MALLORY.counts), tls=tls)
        self.bender = _Bender()
        self.stub = round_grpc.RoundServiceStub(grpc.intercept_channel(self.channel, self.bender))


def task_of(client: GrpcClient) -> Task:
    """The client's present task, by a poll."""
    request = round_service_pb2.SyncRoundRequest(client_id=client.client_id, instance_token=client.token)
    request.poll.hold.FromNanoseconds(0)
    with translated():
        for response in client.stub.SyncRound(request, timeout=DEADLINE_S):
            if response.HasField("task"):
                return task_from_proto(response.task)
    raise AssertionError("a poll brings the present task")


# Cases


class Bench:
    """An aggregator's process with an honest and a hostile client."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.report, self._stack = report, ExitStack()
        self.federation = self._stack.enter_context(Federation(folder))
        self.process = self.federation.start_aggregator("--heartbeat-interval-s", "30", "--keep-models", "1")
        self.control = RunControl(self.federation.address, tls=self.federation.operator_tls)
        self._stack.callback(self.control.close)
        ann, mallory = (self.federation.client_tls(client.client_id) for client in (ANN, MALLORY))
        self.ann = GrpcClient(self.federation.address, ANN, tls=ann)
        self.mallory = HostileClient(self.federation.address, mallory)
        for client in (self.ann, self.mallory):
            self._stack.callback(client.close)
            client.join()

    def close(self) -> None:
        """End the process; its log must hold no stack trace."""
        log = self.process.log()
        self._stack.close()
        crashed = [line for line in log.splitlines() if "Traceback" in line or "crashed" in line]
        if crashed:
            self.report.violated(f"{len(crashed)} stack traces in the log, the first: {crashed[0][:1500]}")

    def in_a_round(self, method: str, limits: Sequence[Limit], sections: Mapping[str, Any] | None = None) -> None:
        """Send these numbers in one run of a method, and judge what came of it."""
        what = f"{method}: {' and '.join(map(str, limits))}"
        self.report.tried[f"{method}, {'alone' if len(limits) == 1 else 'in pairs'}"] += 1
        document = a_document(method, clients=("ann", "mallory"), **(sections or {}))
        run_id = self.control.create(document).run_id
        bender, client = self.mallory.bender, self.mallory.client
        assert isinstance(client, HostileTensors)
        bender.sent.clear()
        wire = [limit for limit in limits if "/" in limit.rpc]
        tensors = [limit for limit in limits if "/" not in limit.rpc]
        was_refused, known = False, len(self.report.violations)
        for _ in range(STEPS):
            if self._status(run_id).is_final or len(self.report.violations) > known:
                break
            self._act(self.ann, what)
            task = self._task()
            is_work = task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE)
            if is_work and wire:
                bender.armed, wire = wire, []
                was_refused |= not self._call(what, self.mallory.join)
                was_refused |= not self._call(what, self._beat, task)
                was_refused |= not self._call(what, self._task)
            if tensors and task.kind is TaskKind.TRAIN:
                client.extreme = (tensors[0].rpc, tensors[0].value)
                tensors = []
            was_refused |= not self._act(self.mallory, what)
            client.extreme = None
        bender.armed = []
        self._judge(run_id, document, what, was_refused=was_refused, has_sent=bool(bender.sent))

    def _judge(self, run_id: str, document: Mapping[str, Any], what: str, *, was_refused: bool, has_sent: bool) -> None:
        status = self._status(run_id)
        if status is not RunStatus.COMPLETED:
            self.report.violated(f"{what}: the run is {status}")
            self._call(what, self.control.steer, run_id, StopRun())
            return
        lines = self.control.metrics_lines(run_id)
        try:
            results = [json.loads(line, parse_constant=_not_finite) for line in lines]
        except ValueError as error:
            self.report.violated(f"{what}: {error}")
            return
        right = expected(parse_run_config(document), CLIENTS)
        if was_refused and has_sent and results[-1]["model_sha256"] != right.models[-1]:
            self.report.violated(f"{what}: it was refused, and yet the model is another one")

    def of_run_service(self, run_id: str) -> None:
        """Send every number of every request of RunService."""
        for limit in limits_of("RunService"):
            self.report.tried["RunService"] += 1
            method = SERVICES["RunService"].methods_by_name[limit.rpc.split("/")[1]]
            request = getattr(run_service_pb2, method.input_type.name)()
            if "run_id" in method.input_type.fields_by_name:
                request.run_id = run_id
            bend(request, limit.path, limit.value)
            self._call(str(limit), self._first_answer, getattr(self.control.stub, method.name), request, method)

    def of_configuration(self, method: str) -> None:
        """Run a method with every numeric key at the limits of what it accepts."""
        for number, (section, key, value) in enumerate(configuration_limits(method)):
            what = f"{method}: {section}.{key} = {value!r}"
            self.report.tried[f"{method}, configuration"] += 1
            document = a_document(method, clients=("ann", "mallory"))
            document[section] = {**document.get(section, {}), key: value}
            if not self._call(what, self.control.create, document, f"{method} {number}"):
                continue
            run_id = self.control.create(document, f"{method} {number}").run_id  # the same run again
            for _ in range(8):
                if self._status(run_id).is_final:
                    break
                self._act(self.ann, what)
                self._act(self.mallory, what)
            self._call(what, self.control.steer, run_id, StopRun())
            for client in (self.ann, self.mallory):
                task_of(client)
                client.heartbeat()
            status = self._status(run_id)
            if not status.is_final:
                self.report.violated(f"{what}: a stop leaves the run {status}")

    def _first_answer(self, call: Any, request: Any, method: Any) -> None:
        try:
            if method.client_streaming:
                answers = call(iter([request]), timeout=DEADLINE_S)
            else:
                answers = call(request, timeout=DEADLINE_S)
            if method.server_streaming:
                next(iter(answers), None)
                answers.cancel()
        except grpc.RpcError as error:
            raise translate(error) from error

    def _task(self) -> Task:
        return task_of(self.mallory)

    def _beat(self, task: Task) -> None:
        assert task.run is not None
        self.mallory.heartbeat(ClientActivity.TRAINING, task.run.run_id, task.round, 0.5)

    def _act(self, client: GrpcClient, what: str) -> bool:
        """Let a client do its present task; a refused one it does again, honestly."""
        task = task_of(client)
        if task.kind in (TaskKind.INIT, TaskKind.TRAIN, TaskKind.EVALUATE):
            return self._call(what, client.perform, task)
        client.heartbeat()
        return True

    def _call(self, what: str, call: Callable[..., object], *arguments: Any) -> bool:
        """Make a call; whether it was taken. A refusal must have a name that is no bug's."""
        try:
            call(*arguments)
        except FedplccError as error:
            self.report.answers[f"{error.reason} {error.metadata.get('check', '')}".rstrip()] += 1
            if error.code.name in BUGS:
                self.report.violated(f"{what}: {error.code.name} {error.reason}: {error.detail}")
            return False
        self.report.answers["OK"] += 1
        return True

    def _status(self, run_id: str) -> RunStatus:
        return run_from_proto(self.control.get(run_id)).run.status


def _not_finite(name: str) -> float:
    raise ValueError(f"the results hold {name}")


def configuration_limits(method: str) -> Iterator[tuple[str, str, float]]:
    """Yield section, key and value of every numeric key of a run, at the limits of its type and at one."""
    sections: dict[str, type[BaseModel]] = {
        name: found.annotation
        for name, found in RunConfig.model_fields.items()
        if isinstance(found.annotation, type) and issubclass(found.annotation, BaseModel)
    }
    sections["method"] = type(parse_run_config(a_document(method)).method)
    for section, kind in sections.items():
        for key, described in kind.model_json_schema()["properties"].items():
            types = {described.get("type"), *(part.get("type") for part in described.get("anyOf", ()))}
            values: tuple[float, ...] = ()
            if "integer" in types:
                values = (2**31 - 1, 2**63 - 1, 10**30, -1, 0, 1)
            elif "number" in types:
                values = (_BIGGEST, -_BIGGEST, _SMALLEST, -1.0, 0.0, 1.0)
            yield from ((section, key, value) for value in values)


def pairs_of(limits: Sequence[Limit], count: int, seed: int) -> list[tuple[Limit, Limit]]:
    """So many pairs of numbers in different fields, drawn without repetition."""
    pairs = [
        (one, other)
        for one, other in itertools.combinations(limits, 2)
        if (one.rpc, one.path) != (other.rpc, other.path)
    ]
    return random.Random(seed).sample(pairs, min(count, len(pairs)))


def search(
    bench: Bench, methods: Sequence[str], *, pairs: int, seed: int = 0, every: int = 1, configuration: bool = True
) -> None:
    """Try everything in these methods.

    Args:
        bench: The federation.
        methods: Names of methods.
        pairs: Pairs of numbers for each method.
        seed: The pairs follow from it.
        every: Take one of so many single numbers, for a sample.
        configuration: Whether keys of the configuration are tried too.
    """
    wire = limits_of("RoundService")
    for method in methods:
        tensors = [Limit(kind, (), value) for kind in ("model", "prototypes") for value in MATERIAL]
        for limit in [*wire, *tensors][::every]:
            bench.in_a_round(method, [limit])
        for pair in pairs_of(wire, pairs, seed):
            bench.in_a_round(method, pair)
        if configuration:
            bench.of_configuration(method)
    run_id = bench.control.create(a_document("fedplcc", clients=("ann",))).run_id
    bench.of_run_service(run_id)
    bench.control.steer(run_id, StopRun())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the search; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--method", action="append", choices=sorted(METHODS), help="only this method; may be repeated")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of fields for each method")
    parser.add_argument("--seed", type=int, default=0, help="the pairs follow from it")
    options = parser.parse_args(arguments)
    report = Report()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        bench = Bench(Path(folder), report)
        try:
            search(bench, options.method or sorted(METHODS), pairs=options.pairs, seed=options.seed)
        finally:
            bench.close()
    print(report.text())
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
