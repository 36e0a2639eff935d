"""Search: one liar of four, at the extremes of every field that enters a decision.

Each lie is said through the servicer, in place of the honest call. It is refused, and the run ends in the bytes of the
undisturbed one; or it counts, and then the result stays near that of honest clients, or the run's status names the liar
within three rounds.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fedplcc.aggregator.rounds import far_updates, large_shares
from fedplcc.aggregator.rounds.machine import round_waits
from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.aggregator.servicer.wakeups import Wakeups
from fedplcc.shared.convert.clients import heartbeat_to_proto
from fedplcc.shared.convert.evaluations import evaluation_to_report
from fedplcc.shared.convert.membership import client_to_join
from fedplcc.shared.convert.updates import update_to_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_to_proto
from fedplcc.shared.errors import FedplccError, FirstModelDiffers
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.steering import StopRun
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, to_bytes
from fedplcc.shared.types import (
    LOCAL_CLUSTER,
    BlobRef,
    ClientActivity,
    ClientProblem,
    Evaluation,
    Heartbeat,
    PrototypeSet,
    Run,
    RunStatus,
    Task,
    TaskKind,
    Update,
)
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, tensor_lists

from .test_fields_that_decide import DECISIONS, NONE, fields_of, the_service

pytestmark = pytest.mark.slow

HONEST = ("bob", "cid", "dan")
LIAR, MAKER = "eve", "abe"
"""The liar as the last of four, and as the first, which makes the first model."""
ROUNDS = 3
NEAR_STEPS = 5.0
"""Honest steps by which the end of a run may be moved by a client that is not named."""
NEAR_ACCURACY = 0.25
"""Most by which it may move the mean accuracy: one of four."""
TEXTS = ("", "bob", "x" * 64, "x" * 2000)
EXTREMES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: (0, -1, 2**29, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (0, -1, 1, 2**29, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, 1e308, math.inf, math.nan),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_STRING: TEXTS,
}
EXCLUSIVE = ("Join", "CommitUpdate", "ReportEvaluation")
"""Calls of which the first that is taken counts."""


@dataclass
class Eve(NumpyClient):
    """The liar: honest in all that it computes, unless a lie about its content changes that."""

    moved_by: float = 0.0
    model_times: float = 1.0
    prototypes_times: float = 1.0
    test_images: int = 0
    first_times: float = 1.0
    first_moved_by: float = 0.0

    def trained(self, task: Task, model: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        honest = super().trained(task, model)
        times, by = np.float32(self.model_times), np.float32(self.moved_by)
        return {name: value * times + by if value.dtype == np.float32 else value for name, value in honest.items()}

    def first_model(self, seed: int = 0) -> dict[str, np.ndarray]:
        times, by = np.float32(self.first_times), np.float32(self.first_moved_by)
        made = super().first_model(seed)
        return {name: value * times + by if value.dtype == np.float32 else value for name, value in made.items()}

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        made = super().prototypes(task, kind)
        return replace(made, vectors=made.vectors * np.float32(self.prototypes_times))

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        report = super().evaluation(task, model)
        if not self.test_images:
            return report
        all_right = tuple(self.test_images for _ in self.counts)
        return replace(
            report, counts=tuple(replace(each, correct=all_right, total=all_right) for each in report.counts)
        )


class Honest(NumpyClient):
    """A client that makes the first model and its lists of tensors too, as trainers do."""

    compares = True

    def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
        update, blobs = super().work(task, model)
        if not self.compares or task.kind is not TaskKind.TRAIN or task.round != 1:
            return update, blobs
        made = to_bytes(self.first_model())
        if model != made:
            raise FirstModelDiffers("it is another one")
        lists = {"feature_dim": (FEATURE_DIM,), **tensor_lists(made)}
        return replace(update, payload=replace(update.payload, int_lists=lists)), blobs


CONTENT: dict[str, dict[str, Any]] = {
    "nearly all samples": {"counts": (2**24, 0, 0)},
    "nearly all samples, and a model turned round": {"counts": (2**24, 0, 0), "model_times": -1.0},
    "hardly a sample": {"counts": (1, 0, 0)},
    "a model far away": {"moved_by": 1e12},
    "a model that nothing can be computed with": {"moved_by": 1e30},
    "a model of zeros": {"model_times": 0.0},
    "a model turned round": {"model_times": -1.0},
    "a model far too large": {"model_times": 1e3},
    "prototypes far away": {"prototypes_times": 1e15},
    "prototypes of zeros": {"prototypes_times": 0.0},
    "prototypes turned round": {"prototypes_times": -1.0},
    "nearly all predictions": {"test_images": 30_000},
    "more predictions than can be": {"test_images": 2**28},
}
"""Lies that agree with all that the client says beside them."""
FIRST: dict[str, dict[str, Any]] = {
    "zeros": {"first_times": 0.0},
    "another one": {"first_moved_by": 0.5},
    "one far away": {"first_moved_by": 1e15},
    "one that nothing can be computed with": {"first_moved_by": 1e30},
}
"""Lies of who makes the first model."""


@dataclass(frozen=True)
class Lie:
    """A change of one call's honest request."""

    call: str
    field: str
    tells: Callable[[Message], None]


@dataclass
class Said:
    """What the liar says in one run: each lie once, until one is taken, which it then repeats.

    Attributes:
        lies: Lies that wait for their call.
        taken: The one that was taken in place of the honest call.
        refused: Those that were not.
    """

    lies: list[Lie] = field(default_factory=list)
    taken: Lie | None = None
    refused: list[Lie] = field(default_factory=list)


class Stage:
    """A federation whose liar speaks through the servicer."""

    def __init__(self, folder: Path, runner: asyncio.Runner, liar: str = LIAR) -> None:
        self.runner, self.liar = runner, liar
        clients = [
            *(Honest(name, domain="lab" if name != "bob" else "ward") for name in HONEST),
            Eve(liar, domain="ward"),
        ]
        self.federation = LocalFederation(folder, clients)
        self.federation.is_inline = True
        self.eve = clients[-1]
        self.servicer = RoundServicer(
            self.federation.coordinator, Wakeups(runner.get_loop()), 1.0, idle_s=5.0, max_hold_s=0.0
        )
        self.said, self.stands_still = Said(), False

    def close(self) -> None:
        self.federation.close()

    # The liar's calls

    def call(self, name: str, *parts: Message) -> None:
        """Make a call as the server does, and take its whole answer."""

        async def made() -> None:
            async def stream() -> AsyncIterator[Message]:
                for part in parts:
                    yield part

            answer = getattr(self.servicer, name)(stream() if name.startswith("Upload") else parts[0], None)
            if not hasattr(answer, "__aiter__"):
                await answer
                return
            async for _ in answer:
                pass

        self.runner.run(made())

    def say(self, name: str, *honest: Message) -> None:
        """Make a call with each lie that waits for it, and honestly where none of them is taken."""
        said = self.said
        waiting = [lie for lie in said.lies if lie.call == name] if said.taken is None else []
        if said.taken is not None and said.taken.call == name:
            waiting = [said.taken]
        for lie in waiting:
            parts = [type(part).FromString(part.SerializeToString()) for part in honest]
            for part in parts:
                lie.tells(part)
            if lie is not said.taken:
                said.lies.remove(lie)
            if self.is_taken(name, *parts) and name in EXCLUSIVE:
                said.taken = lie
                return
            said.refused.append(lie)
        if name in EXCLUSIVE and (said.taken is None or said.taken.call != name):
            self.is_taken(name, *honest)

    def is_taken(self, name: str, *parts: Message) -> bool:
        """Make a call; return whether it was not refused."""
        try:
            self.call(name, *parts)
        except FedplccError:
            return False
        return True

    def join(self) -> None:
        self.say("Join", client_to_join(self.eve.record, instance_token=self.eve.token, version="1.0"))

    def work(self) -> None:
        """Let the liar do its task, with every call that a member can make."""
        eve, federation = self.eve, self.federation
        who: dict[str, Any] = {"client_id": eve.client_id, "instance_token": eve.token}
        try:
            task = federation.task(eve)
        except FedplccError:
            return  # it has become somebody else
        known = round_pb.TaskKey(run_id="", kind=types_pb2.TASK_KIND_WAIT)
        self.say("SyncRound", round_pb.SyncRoundRequest(**who, poll=round_pb.Poll(known=known)))
        if task.run is None or task.kind in (TaskKind.WAIT, TaskKind.STOP):
            return
        run_id, number = task.run.run_id, task.round
        problem = ClientProblem(reason="UNREADABLE_FILES", detail="2 files", hint="mend them")
        beat = Heartbeat(
            client_id=eve.client_id,
            activity=ClientActivity.TRAINING,
            run_id=run_id,
            round=number,
            progress=0.5,
            problem=problem,
        )
        self.say("Heartbeat", heartbeat_to_proto(beat, instance_token=eve.token))
        for blob in task.payload.blobs:
            self.say("DownloadBlob", round_pb.DownloadBlobRequest(**who, sha256=blob.sha256))
        model = federation.fetch(eve, task)
        if task.kind is TaskKind.EVALUATE:
            assert model is not None
            report = eve.evaluation(task, model)
            request = evaluation_to_report(report, run_id=run_id, round_number=number, instance_token=eve.token)
            self.say("ReportEvaluation", request)
            return
        update, blobs = eve.work(task, model)
        self._send(run_id, number, update, blobs)

    def _send(self, run_id: str, number: int, update: Update, blobs: dict[BlobRef, bytes]) -> None:
        for blob, data in blobs.items():
            named = UploadHeader(
                run_id=run_id, round=number, client_id=self.eve.client_id, instance_token=self.eve.token, blob=blob
            )
            header = upload_header_to_proto(named)
            self.say("GetUploadStatus", round_pb.GetUploadStatusRequest(header=header))
            chunk = round_pb.Chunk(offset_bytes=0, data=data)
            if blob in update.payload.prototype_sets:
                prototypes = round_pb.UploadPrototypesRequest
                self.say("UploadPrototypes", prototypes(header=header), prototypes(chunk=chunk))
            else:
                part = round_pb.UploadModelRequest
                self.say("UploadModel", part(header=header), part(chunk=chunk))
        inline = list(blobs.values())
        self.say(
            "CommitUpdate",
            update_to_commit(
                update, run_id=run_id, round_number=number, instance_token=self.eve.token, inline_blobs=inline
            ),
        )

    # Runs

    def run(self, said: Said) -> Run:
        """A run to its end, or to where it stands still."""
        federation = self.federation
        self.said = said
        for name in HONEST:
            federation.coordinator.join(federation.clients[name].record, federation.clients[name].token)
        self.join()
        if federation.coordinator._sessions.find(self.liar) is None:
            federation.coordinator.join(self.eve.record, self.eve.token)
        run_id = federation.create("fedplcc", run={"rounds": ROUNDS, "clients": [*HONEST, self.liar]}).run_id
        for _ in range(4 * ROUNDS + 4):
            before = federation.coordinator.get_run(run_id)
            for name in HONEST:
                self.honestly(federation.clients[name])
            self.work()
            while federation.coordinator.work():
                pass
            federation.coordinator.tick()
            after = federation.coordinator.get_run(run_id)
            self.stands_still = after == before
            if self.stands_still or (said.taken is not None and self.names(after)):
                break
        return federation.coordinator.get_run(run_id)

    def honestly(self, client: NumpyClient) -> None:
        task = self.federation.task(client)
        try:
            self.federation.perform(client, task)
        except FirstModelDiffers as error:
            assert task.run is not None
            problem = ClientProblem(reason=error.reason, detail=error.detail, is_fatal=True)
            said = {"run_id": task.run.run_id, "round": task.round, "problem": problem}
            self.federation.heartbeat(client, activity=ClientActivity.DOWNLOADING, **said)

    def end(self, run: Run) -> None:
        if not run.status.is_final:
            self.federation.coordinator.steer(run.run_id, StopRun())
        self.federation.clock.now += 10_000.0
        self.federation.coordinator.tick()

    def model(self, run: Run) -> dict[str, np.ndarray]:
        assert run.model is not None
        return from_bytes(self.federation.coordinator._blobs.read(run.model.sha256))

    def prototype_norm(self, run: Run) -> float:
        """The largest norm of the global prototypes of a run."""
        assert run.prototypes is not None
        vectors = prototypes_from_bytes(self.federation.coordinator._blobs.read(run.prototypes.sha256)).vectors
        return float(np.linalg.norm(vectors.astype(np.float64), axis=1).max())

    def names(self, run: Run) -> bool:
        """Whether the status of a run names the liar; that a run waits for it says something where nothing moves."""
        warnings = [each.sentence for each in self.federation.coordinator.warnings(run)]
        reason = "" if run.reason is None else sentence_of(run.reason)
        dropped = () if run.current_round is None else run.current_round.dropped
        awaited = round_waits.waited_for(run) if self.stands_still and run.status is RunStatus.RUNNING else ()
        who = {*run.rejections, *run.quarantined, *dropped, *awaited}
        return self.liar in who or any(self.liar in sentence for sentence in (*warnings, reason))

    def fault(self, said: Said, run: Run, reference: Reference) -> str:
        """Return how a lie decided for all without a word; empty if it did not."""
        lines = self.federation.metrics_lines(run.run_id)
        if said.taken is None and not self.names(run):
            return "" if lines == reference.lines else "refused lies changed the result"
        if self.names(run):
            return ""
        if run.status is not RunStatus.COMPLETED:
            return f"the run is {run.status} and names nobody"
        far = distance(self.model(run), reference.model)
        if not far <= NEAR_STEPS * reference.step:
            return f"the model is {far:g} away, where a step is {reference.step:g}"
        largest = self.prototype_norm(run)
        if not largest <= NEAR_STEPS * reference.prototype_norm:
            return f"a prototype has norm {largest:g}, where the largest is {reference.prototype_norm:g}"
        apart = max(abs(mean_of(line) - mean_of(other)) for line, other in zip(lines, reference.lines, strict=True))
        return "" if apart <= NEAR_ACCURACY else f"the mean accuracy is {apart:g} away"


@dataclass(frozen=True)
class Reference:
    """The undisturbed run."""

    lines: list[str]
    model: dict[str, np.ndarray]
    step: float
    prototype_norm: float


def mean_of(line: str) -> float:
    return float(json.loads(line)["accuracy"]["mean"])


def distance(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    floats = [name for name, value in one.items() if value.dtype == np.float32]
    return float(np.sqrt(sum(np.square(one[name].astype(np.float64) - other[name]).sum() for name in floats)))


def found(message: Message, name: str) -> Iterator[Message]:
    """Yield the parts of a message, itself among them, that are of a type; of a map's entries, what has the map."""
    here = message.DESCRIPTOR.full_name.removeprefix("fedplcc.v1.")
    if name == here or name.rpartition(".")[0] == here:
        yield message
    for each, value in message.ListFields():
        if each.message_type is None or each.message_type.GetOptions().map_entry:
            continue
        for part in value if each.is_repeated else [value]:
            if isinstance(part, Message):
                yield from found(part, name)


def lies_in(call: str) -> list[Lie]:
    """Return the extremes of each field of a call that enters a decision."""
    method = the_service().methods_by_name[call]
    fields = sorted(each for each in fields_of(method.input_type, set()) if decides(*each))
    return [Lie(call, f"{message}.{name}", tells) for message, name in fields for tells in extremes(message, name)]


def decides(message: str, name: str) -> bool:
    """Whether a field enters a decision, by the table."""
    rows = (names for decision, names in DECISIONS.items() if decision != NONE)
    return any({f"{message}.{name}", f"*.{name}"} & set(names) for names in rows)


def extremes(message: str, name: str) -> Iterator[Callable[[Message], None]]:
    """Yield changes of a request to the extremes of a field."""
    descriptor = round_pb.DESCRIPTOR.pool.FindMessageTypeByName(f"fedplcc.v1.{message}")
    described = descriptor.fields_by_name[name]

    def at(change: Callable[[Any], None]) -> Callable[[Message], None]:
        def tell(request: Message) -> None:
            for part in [*found(request, message)]:
                change(part)

        return tell

    if descriptor.GetOptions().map_entry:
        around = descriptor.containing_type
        assert around is not None
        owner = next(each for each in around.fields if each.message_type is descriptor)
        for key in TEXTS if name == "key" else ("named",):
            yield at(partial(_put, name=owner.name, key=key))
        return
    if described.is_repeated or described.message_type is not None:
        yield at(lambda part: part.ClearField(name))
    if described.is_repeated and not (described.message_type and described.message_type.GetOptions().map_entry):
        yield at(lambda part: getattr(part, name).extend([*getattr(part, name)]))
    if described.message_type is not None:
        return
    if described.type == FieldDescriptor.TYPE_BYTES:
        values: Sequence[Any] = (b"", b"x" * 100)
    elif described.enum_type is not None:
        values = [each.number for each in described.enum_type.values]
    else:
        values = EXTREMES[described.cpp_type]
    for value in values:
        yield at(partial(_fill if described.is_repeated else setattr_of, name=name, value=value))


def setattr_of(part: Any, name: str, value: Any) -> None:
    setattr(part, name, value)


def _put(part: Any, name: str, key: str) -> None:
    entries = getattr(part, name)
    value = entries[key]
    if isinstance(value, Message):
        value.values.extend([2**62, -1])  # type: ignore[attr-defined]
    else:
        entries[key] = 1e308 if isinstance(value, float) else "x"


def _fill(part: Any, name: str, value: Any) -> None:
    values = getattr(part, name)
    values[:] = [value] * len(values)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        made = Stage(tmp_path_factory.mktemp("state"), runner, request.param)
        yield made
        made.close()


@pytest.fixture(scope="module")
def reference(stage: Stage) -> Reference:
    run = stage.run(Said())
    assert run.status is RunStatus.COMPLETED
    assert not stage.names(run)
    model = stage.model(run)
    step = distance(model, stage.federation.clients["bob"].first_model()) / ROUNDS
    return Reference(stage.federation.metrics_lines(run.run_id), model, step, stage.prototype_norm(run))


def faults(stage: Stage, reference: Reference, lies: Sequence[Lie]) -> list[str]:
    """Let the liar tell each lie; return how lies decided for all."""
    wrong, waiting = [], list(lies)
    while waiting:
        said, num_waiting = Said(waiting), len(waiting)
        run = stage.run(said)
        fault = stage.fault(said, run, reference)
        if fault:
            told = [said.taken] if said.taken is not None else said.refused
            wrong.append(f"{', '.join(dict.fromkeys(f'{lie.call}: {lie.field}' for lie in told))}: {fault}")
        stage.end(run)
        if len(waiting) == num_waiting:
            return [*wrong, f"nobody makes the call of {waiting[0]}"]
    return wrong


def fault_of_content(stage: Stage, reference: Reference, lies: dict[str, Any]) -> str:
    """Let the liar be so in a run; return how it decided for all."""
    honest = {name: getattr(stage.eve, name) for name in lies}
    said = Said(taken=Lie("", "", lambda request: None))
    try:
        for name, value in lies.items():
            setattr(stage.eve, name, value)
        run = stage.run(said)
        fault = stage.fault(said, run, reference)
        stage.end(run)
    finally:
        for name, value in honest.items():
            setattr(stage.eve, name, value)
    return fault


of_maker = pytest.mark.parametrize("stage", [MAKER], indirect=True)
of_other = pytest.mark.parametrize("stage", [LIAR], indirect=True)


@pytest.mark.parametrize(
    ("stage", "call"),
    [*((LIAR, method.name) for method in the_service().methods), (MAKER, "CommitUpdate")],
    indirect=["stage"],
)
def test_no_field_of_one_liar_decides_for_all(
    stage: Stage, reference: Reference, call: str, covered: Callable[[str], None]
) -> None:
    lies = lies_in(call)
    assert faults(stage, reference, lies) == []
    covered(f"{call}: {len(lies)} lies about {len({lie.field for lie in lies})} fields")


@of_other
@pytest.mark.parametrize("lie", CONTENT)
def test_no_content_of_one_liar_decides_for_all(stage: Stage, reference: Reference, lie: str) -> None:
    assert fault_of_content(stage, reference, CONTENT[lie]) == ""


@of_maker
@pytest.mark.parametrize("lie", FIRST)
def test_no_first_model_of_one_liar_decides_for_all(stage: Stage, reference: Reference, lie: str) -> None:
    assert fault_of_content(stage, reference, FIRST[lie]) == ""


# Planted: members of the kind, which the search finds


@of_maker
def test_a_first_model_that_nobody_compares_is_found(
    stage: Stage, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Honest, "compares", False)
    assert "away, where a step is" in fault_of_content(stage, reference, FIRST["one far away"])


@of_other
@pytest.mark.parametrize(
    ("lie", "says"),
    [
        ("nearly all samples, and a model turned round", "the model is"),
        ("nearly all predictions", "the mean accuracy is"),
    ],
)
def test_a_large_share_without_a_word_is_found(
    stage: Stage, reference: Reference, monkeypatch: pytest.MonkeyPatch, lie: str, says: str
) -> None:
    monkeypatch.setattr(large_shares, "LARGE", 2.0)
    assert fault_of_content(stage, reference, CONTENT[lie]).startswith(says)


@of_other
@pytest.mark.parametrize(
    ("lie", "says"), [("a model far away", "the model is"), ("prototypes far away", "a prototype has")]
)
def test_a_far_update_without_a_word_is_found(
    stage: Stage, reference: Reference, monkeypatch: pytest.MonkeyPatch, lie: str, says: str
) -> None:
    monkeypatch.setattr(far_updates, "FAR", math.inf)
    assert fault_of_content(stage, reference, CONTENT[lie]).startswith(says)


class Planted(RoundServicer):
    """A servicer with the fault that is searched for: a field of a member ends the run of all."""

    async def Heartbeat(self, request: round_pb.HeartbeatRequest, context: Any) -> round_pb.HeartbeatResponse:
        answer = await super().Heartbeat(request, context)
        if request.activity == types_pb2.CLIENT_ACTIVITY_IDLE:
            self._coordinator.steer(request.run_id, StopRun())
        return answer


@of_other
def test_a_planted_field_that_decides_is_found(
    stage: Stage, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = Planted(stage.federation.coordinator, stage.servicer._wakeups, 1.0)
    monkeypatch.setattr(stage, "servicer", planted)
    (fault,) = faults(stage, reference, lies_in("Heartbeat"))
    assert "Heartbeat: HeartbeatRequest.activity" in fault
