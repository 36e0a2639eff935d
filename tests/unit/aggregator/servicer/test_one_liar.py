"""Search: one liar of four, at the extremes of every field that enters a decision.

Each lie is said through the servicer, in place of the honest call. It is refused, and the run ends in the bytes of the
undisturbed one; or it counts, and then the result stays near that of honest clients, or the run's status names the liar
within three rounds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fedplcc.aggregator.rounds import far_updates, large_shares
from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.shared import types
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.steering import StopRun
from tests.support.federation.liar import (
    LIAR,
    MAKER,
    ROUNDS,
    Honest,
    Lie,
    Reference,
    Said,
    Stage,
    distance,
)

from .test_fields_that_decide import DECISIONS, NONE, fields_of, the_service

pytestmark = pytest.mark.slow

TEXTS = ("", "bob", "x" * 64, "x" * 2000)
EXTREMES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: (0, -1, 2**29, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: (0, -1, 1, 2**29, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, 1e308, math.inf, math.nan),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_STRING: TEXTS,
}
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
    assert run.status is types.RunStatus.COMPLETED
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
