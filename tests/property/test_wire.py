"""Whatever is in a record survives the wire, and whatever comes over the wire is a record or a refusal."""

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedplcc.shared import tensors, types
from fedplcc.shared.bounds import MAX_VALUE, RUN_ID_PATTERN
from fedplcc.shared.convert import clients
from fedplcc.shared.convert.evaluations import (
    counts_from_proto,
    counts_to_proto,
    evaluation_from_proto,
    evaluation_from_report,
    evaluation_to_proto,
    evaluation_to_report,
)
from fedplcc.shared.convert.events import event_from_proto, event_to_proto
from fedplcc.shared.convert.membership import (
    client_from_join,
    client_to_join,
    membership_from_proto,
    membership_to_proto,
)
from fedplcc.shared.convert.payloads import blob_from_proto, blob_to_proto, payload_from_proto, payload_to_proto
from fedplcc.shared.convert.prototype_maps import prototype_map_from_proto
from fedplcc.shared.convert.rounds import round_from_proto, round_to_proto
from fedplcc.shared.convert.runs import run_from_proto, run_to_proto
from fedplcc.shared.convert.tasks import poll_from_proto, poll_to_proto, task_from_proto, task_to_proto
from fedplcc.shared.convert.updates import (
    committed_from_proto,
    committed_to_proto,
    update_from_commit,
    update_to_commit,
)
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_from_proto, upload_header_to_proto
from fedplcc.shared.errors import FedplccError, MalformedRequest, MalformedUpdate
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2, types_pb2
from fedplcc.shared.reasons import Dropped, DropReason, Stated
from fedplcc.shared.types import Run

TEXT = st.text(max_size=20)
SOME_TEXT = st.text(min_size=1, max_size=20)
NAME = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
COUNT = st.integers(0, 2**62)
NUMBER = st.integers(0, 2**31 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
FRACTION = st.floats(0, 1)
TIME = st.integers(0, 4 * 10**15).map(lambda microseconds: microseconds / 1e6)
TOKEN = st.text(min_size=16, max_size=128)

BLOB = st.builds(
    types.BlobRef,
    SOME_TEXT,
    st.binary(min_size=32, max_size=32).map(bytes.hex),
    st.integers(min_value=1, max_value=2**62),
)
BLOBS = st.lists(BLOB, max_size=3, unique_by=lambda blob: blob.role).map(tuple)
COUNTS = st.lists(COUNT, max_size=5).map(tuple)
PAYLOAD = st.builds(
    types.Payload,
    tensor_groups=BLOBS,
    prototype_sets=BLOBS,
    scalars=st.dictionaries(TEXT, FINITE, max_size=3),
    int_lists=st.dictionaries(TEXT, COUNTS, max_size=3),
    metadata=st.dictionaries(TEXT, TEXT, max_size=3),
)
BOUNDED = st.floats(-MAX_VALUE, MAX_VALUE)
READINGS = st.dictionaries(TEXT, BOUNDED, max_size=3)
PROBLEM = st.builds(types.ClientProblem, reason=TEXT, detail=TEXT, hint=TEXT, is_fatal=st.booleans())
ENVIRONMENT = st.builds(
    types.Environment, packages=st.dictionaries(TEXT, TEXT, max_size=3), cpu=TEXT, device=TEXT, platform=TEXT
)
CLIENT = st.builds(
    types.Client,
    client_id=NAME,
    domain=NAME,
    num_examples=COUNT,
    class_counts=st.dictionaries(TEXT, COUNT, max_size=4),
    environment=ENVIRONMENT,
    is_connected=st.booleans(),
    activity=st.sampled_from(types.ClientActivity),
    run_id=TEXT,
    round=NUMBER,
    progress=FRACTION,
    last_seen_at=TIME,
    problem=st.none() | PROBLEM,
    readings=READINGS,
)
HEARTBEAT = st.builds(
    types.Heartbeat,
    client_id=NAME,
    activity=st.sampled_from(types.ClientActivity),
    run_id=TEXT,
    round=NUMBER,
    progress=FRACTION,
    readings=READINGS,
    problem=st.none() | PROBLEM,
)
RUN_SPEC = st.builds(
    types.RunSpec,
    run_id=st.from_regex(RUN_ID_PATTERN.rstrip("$"), fullmatch=True),
    config_json=TEXT,
    config_hash=TEXT,
    started_by=st.from_regex(r"\A[ -~é]{0,120}\Z"),
)
TASK = st.builds(
    types.Task,
    kind=st.sampled_from(types.TaskKind),
    run=RUN_SPEC,
    round=NUMBER,
    total_rounds=NUMBER,
    payload=PAYLOAD,
    detail=TEXT,
)
UPDATE = st.builds(
    types.Update,
    client_id=NAME,
    payload=PAYLOAD,
    num_examples=st.integers(-(2**63), 2**63 - 1),
    num_excluded=COUNT,
    class_counts=COUNTS,
    losses=READINGS,
    timings=READINGS,
)
HISTOGRAMS = st.builds(
    types.ScoreHistograms, of_class=COUNTS, of_others=COUNTS, confidence=COUNTS, confidence_correct=COUNTS
)
EVALUATION_COUNTS = st.builds(types.EvaluationCounts, TEXT, TEXT, COUNTS, COUNTS, COUNTS, st.none() | HISTOGRAMS)
EVALUATION = st.builds(
    types.Evaluation,
    client_id=NAME,
    domain=NAME,
    counts=st.lists(EVALUATION_COUNTS, max_size=3).map(tuple),
    timings=READINGS,
)
COMMITTED = st.builds(types.CommittedUpdate, SOME_TEXT, NUMBER, st.lists(TEXT, max_size=3).map(tuple))
POLL = st.builds(
    types.Poll,
    st.none() | st.tuples(TEXT, NUMBER, st.sampled_from(types.TaskKind), NUMBER),
    st.integers(0, 10**12).map(lambda nanoseconds: nanoseconds / 1e9),
)
MEMBERSHIP = st.builds(
    types.Membership,
    heartbeat_interval_s=st.integers(10**7, 86_400 * 10**9).map(lambda nanoseconds: nanoseconds / 1e9),
    lease_s=st.integers(0, 10**12).map(lambda nanoseconds: nanoseconds / 1e9),
    max_chunk_bytes=st.integers(1, 2**62),
    max_blob_bytes=st.integers(1, 2**62),
    max_inline_bytes=st.integers(0, 2**62),
    last_committed=st.none() | COMMITTED,
    open_runs=st.lists(TEXT, max_size=3).map(tuple),
    version=TEXT,
    last_release=st.none() | st.builds(types.CommittedRelease, SOME_TEXT, SOME_TEXT, st.integers(1, 2**31 - 1)),
    forgotten_runs=st.lists(st.builds(types.ForgottenRun, NAME, st.integers(-1, 2**31 - 1)), max_size=3).map(tuple),
)
CLIENTS = st.lists(NAME, max_size=4).map(tuple)
ROUND = st.builds(
    types.Round,
    number=NUMBER,
    phase=st.sampled_from(types.RoundPhase),
    cohort=CLIENTS,
    model=st.none() | BLOB,
    prototypes=st.none() | BLOB,
    results_json=TEXT,
    timings_json=TEXT,
    dropped=st.dictionaries(
        NAME,
        st.builds(Dropped, st.sampled_from(DropReason).filter(lambda why: why is not DropReason.APPROVAL), TEXT),
        max_size=3,
    ),
)
RUN = st.builds(
    types.Run,
    run_id=SOME_TEXT,
    name=TEXT,
    status=st.sampled_from(types.RunStatus),
    config_json=st.just('{"run":{"seed":7}}'),
    config_hash=TEXT,
    method=TEXT,
    total_rounds=NUMBER,
    seed=st.just(7),
    roster=CLIENTS,
    current_round=st.none()
    | st.builds(types.Round, number=NUMBER, phase=st.sampled_from(types.RoundPhase), cohort=CLIENTS),
    is_pause_requested=st.booleans(),
    reason=st.none() | st.builds(Stated, SOME_TEXT),
    created_at=TIME,
    updated_at=TIME,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
EVENT = st.builds(
    types.Event,
    type=SOME_TEXT,
    run_id=TEXT,
    round=st.integers(-1, 2**31 - 1),
    client_id=TEXT,
    data=st.dictionaries(TEXT, JSON, max_size=3),
    sequence=COUNT,
    time=TIME,
)
UPLOAD_HEADER = st.builds(UploadHeader, run_id=SOME_TEXT, round=NUMBER, client_id=NAME, instance_token=TOKEN, blob=BLOB)

PAIRS: dict[str, tuple[Any, Any, Any]] = {
    "blob": (BLOB, blob_to_proto, blob_from_proto),
    "payload": (PAYLOAD, payload_to_proto, payload_from_proto),
    "task": (TASK, task_to_proto, task_from_proto),
    "poll": (POLL, poll_to_proto, poll_from_proto),
    "environment": (ENVIRONMENT, clients.environment_to_proto, clients.environment_from_proto),
    "problem": (PROBLEM, clients.problem_to_proto, clients.problem_from_proto),
    "client": (CLIENT, clients.client_to_proto, clients.client_from_proto),
    "committed": (COMMITTED, committed_to_proto, committed_from_proto),
    "membership": (MEMBERSHIP, membership_to_proto, membership_from_proto),
    "upload header": (UPLOAD_HEADER, upload_header_to_proto, upload_header_from_proto),
    "counts": (EVALUATION_COUNTS, counts_to_proto, counts_from_proto),
    "round": (ROUND, round_to_proto, round_from_proto),
    "event": (EVENT, event_to_proto, event_from_proto),
    "run": (RUN, run_to_proto, lambda message: run_from_proto(message).run),
    "heartbeat": (
        HEARTBEAT,
        lambda heartbeat: clients.heartbeat_to_proto(heartbeat, instance_token="t" * 16),
        clients.heartbeat_from_proto,
    ),
    "update": (
        UPDATE,
        lambda update: update_to_commit(update, run_id="r", round_number=3, instance_token="t" * 16),
        update_from_commit,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@given(data=st.data())
def test_a_record_survives_the_wire(name: str, data: st.DataObject) -> None:
    records, to_proto, from_proto = PAIRS[name]
    record = data.draw(records)
    message = to_proto(record)
    assert from_proto(type(message).FromString(message.SerializeToString())) == record


@given(evaluation=EVALUATION, number=NUMBER)
def test_an_evaluation_survives_the_wire_in_both_messages(evaluation: types.Evaluation, number: int) -> None:
    report = evaluation_to_report(evaluation, run_id="r", round_number=number, instance_token="t" * 16)
    assert evaluation_from_report(report, domain=evaluation.domain) == evaluation
    shown_in, shown = evaluation_from_proto(evaluation_to_proto(number, evaluation))
    assert (shown_in, shown.client_id, shown.counts) == (number, evaluation.client_id, evaluation.counts)


@given(
    client=st.builds(types.Client, client_id=NAME, domain=NAME, environment=ENVIRONMENT),
    counts=st.dictionaries(TEXT, st.integers(1, 1000), min_size=1, max_size=4),
    token=TOKEN,
)
def test_a_client_that_joins_arrives_as_it_is(client: types.Client, counts: dict[str, int], token: str) -> None:
    record = types.Client(
        client_id=client.client_id,
        domain=client.domain,
        environment=client.environment,
        num_examples=sum(counts.values()),
        class_counts=counts,
    )
    request = client_to_join(record, instance_token=token, version="1")
    assert client_from_join(request) == record
    assert request.instance_token == token


@given(run=RUN, done=CLIENTS)
def test_what_is_shown_of_a_run_besides_its_record_survives_too(run: Run, done: tuple[str, ...]) -> None:
    message = run_to_proto(run, manifest_json="{}")
    del message.done_clients[:]
    message.done_clients.extend(done)
    view = run_from_proto(message)
    assert (view.manifest_json, view.done_clients) == ("{}", done)


def refusal_of(function: Callable[[Any], Any], argument: Any) -> FedplccError | None:
    """The error that the function raises, None if it does not; anything outside the tree fails the test."""
    try:
        function(argument)
    except FedplccError as error:
        return error
    return None


NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(-(2**31), 2**31 - 1) | st.integers(0, 8),
}
PLAUSIBLE = st.sampled_from(["", "a", "digits", "0" * 64, "{}", '{"run": {}}', "[", "../../etc", "\0", "x" * 2000])


def draw_message(draw: Any, kind: type[Message], depth: int = 0) -> Any:
    """Any message of this kind: every field set, unset, repeated or doubled, with any value that its type admits."""
    message = kind()
    descriptor: Any = kind.DESCRIPTOR  # its stub names a class of the implementation beside the public one
    for field in descriptor.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            target = getattr(message, field.name)
            for _ in range(draw(st.integers(0, 2))):
                key, value = draw(PLAUSIBLE), field.message_type.fields_by_name["value"]
                if value.message_type is not None:
                    target[key].CopyFrom(draw_message(draw, GetMessageClass(value.message_type), depth + 1))
                else:
                    target[key] = draw_scalar(draw, value)
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 2))):
                if field.message_type is not None:
                    item = draw_message(draw, GetMessageClass(field.message_type), depth + 1)
                    getattr(message, field.name).append(item)
                else:
                    getattr(message, field.name).append(draw_scalar(draw, field))
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(draw_message(draw, GetMessageClass(field.message_type), depth + 1))
        else:
            setattr(message, field.name, draw_scalar(draw, field))
    return message


def draw_scalar(draw: Any, field: FieldDescriptor) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return draw(PLAUSIBLE | TEXT) if field.type == FieldDescriptor.TYPE_STRING else draw(st.binary(max_size=8))
    return draw(NUMBERS[field.cpp_type])


PARSERS: list[tuple[Any, Any]] = [
    (types_pb2.BlobRef, blob_from_proto),
    (types_pb2.Payload, payload_from_proto),
    (types_pb2.RoundTask, task_from_proto),
    (round_service_pb2.Poll, poll_from_proto),
    (types_pb2.Client, clients.client_from_proto),
    (types_pb2.EvaluationCounts, counts_from_proto),
    (types_pb2.Run, run_from_proto),
    (types_pb2.Round, round_from_proto),
    (types_pb2.Event, event_from_proto),
    (round_service_pb2.JoinRequest, client_from_join),
    (round_service_pb2.JoinResponse, membership_from_proto),
    (round_service_pb2.HeartbeatRequest, clients.heartbeat_from_proto),
    (round_service_pb2.CommittedUpdate, committed_from_proto),
    (round_service_pb2.BlobHeader, upload_header_from_proto),
    (round_service_pb2.CommitUpdateRequest, update_from_commit),
    (round_service_pb2.ReportEvaluationRequest, lambda request: evaluation_from_report(request, domain="d")),
    (run_service_pb2.ClientEvaluation, evaluation_from_proto),
    (run_service_pb2.GetPrototypeMapResponse, prototype_map_from_proto),
]


@pytest.mark.parametrize(("kind", "parse"), PARSERS, ids=[kind.DESCRIPTOR.name for kind, _ in PARSERS])
@given(data=st.data())
def test_any_message_is_a_record_or_a_named_refusal(
    kind: type[Message], parse: Callable[[Any], Any], data: st.DataObject
) -> None:
    refusal = refusal_of(parse, draw_message(data.draw, kind))
    assert refusal is None or (type(refusal) is MalformedRequest and refusal.metadata["field"])


FLOATS = arrays.arrays(
    np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=st.floats(width=32)
)
INTEGERS = arrays.arrays(
    np.int64,
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    elements=st.integers(-(2**63), 2**63 - 1),
)
TENSOR_NAME = st.text(min_size=1, max_size=10).filter(str.isprintable).filter(lambda name: name != "__metadata__")
MODEL = st.dictionaries(TENSOR_NAME, FLOATS | INTEGERS, min_size=1, max_size=5)


@given(model=MODEL, chunk_bytes=st.integers(1, 400), block_elements=st.integers(1, 100))
def test_tensors_survive_any_chunk_and_block_size(
    model: dict[str, np.ndarray], chunk_bytes: int, block_elements: int
) -> None:
    data = tensors.to_bytes(model)
    received = b"".join(piece for _, piece in tensors.chunks(data, chunk_bytes))
    assert received == data
    back = tensors.from_bytes(received)
    assert {name: (array.dtype, array.shape, array.tobytes()) for name, array in back.items()} == {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in model.items()
    }
    file = io.BytesIO(data)
    table = tensors.read_header(file)
    for entry in table.entries:
        blocks = [block.tobytes() for block in tensors.read_blocks(file, entry, block_elements)]
        assert b"".join(blocks) == model[entry.name].tobytes()
        assert entry.num_elements == math.prod(entry.shape) == model[entry.name].size


@given(model=MODEL, data=st.data())
def test_altered_bytes_are_tensors_or_a_named_refusal(model: dict[str, np.ndarray], data: st.DataObject) -> None:
    altered = bytearray(tensors.to_bytes(model))
    for _ in range(data.draw(st.integers(1, 3))):
        altered[data.draw(st.integers(0, len(altered) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(altered[: data.draw(st.integers(0, len(altered)))])
    for blob in (bytes(altered), cut):
        refusal = refusal_of(tensors.from_bytes, blob)
        assert refusal is None or type(refusal) is MalformedUpdate
        assert refusal is None or refusal.metadata["check"] in {"header", "dtype", "shape", "offsets"}


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_prototype_set_or_a_named_refusal(data: bytes) -> None:
    refusal = refusal_of(tensors.prototypes_from_bytes, data)
    assert refusal is None or type(refusal) is MalformedUpdate


@given(rows=st.integers(0, 5), dim=st.integers(0, 4), data=st.data())
def test_a_prototype_set_survives_the_wire(rows: int, dim: int, data: st.DataObject) -> None:
    prototypes = types.PrototypeSet(
        data.draw(arrays.arrays(np.float32, (rows, dim), elements=st.floats(width=32, allow_nan=False))),
        data.draw(arrays.arrays(np.int64, rows)),
        data.draw(arrays.arrays(np.float32, rows, elements=st.floats(width=32, allow_nan=False))),
        data.draw(arrays.arrays(np.int64, rows)),
    )
    back = tensors.prototypes_from_bytes(tensors.prototypes_to_bytes(prototypes))
    for field in ("vectors", "class_ids", "weights", "group_ids"):
        np.testing.assert_array_equal(getattr(back, field), getattr(prototypes, field))
