"""Messages that no honest peer sends are refused by the name of the field; the round trips are in tests/property."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from fedplcc.shared import types
from fedplcc.shared.convert.clients import (
    client_from_proto,
    client_to_proto,
    heartbeat_from_proto,
    problem_from_proto,
    problem_to_proto,
)
from fedplcc.shared.convert.events import event_from_proto
from fedplcc.shared.convert.membership import (
    client_from_join,
    client_to_join,
    membership_from_proto,
    membership_to_proto,
)
from fedplcc.shared.convert.payloads import blob_from_proto, payload_from_proto
from fedplcc.shared.convert.reading.fields import MAX_CLASSES, MAX_TEXT
from fedplcc.shared.convert.rounds import round_from_proto
from fedplcc.shared.convert.runs import run_from_proto, run_to_proto
from fedplcc.shared.convert.site_logs import line_to_proto
from fedplcc.shared.convert.tasks import task_from_proto
from fedplcc.shared.convert.updates import update_from_commit
from fedplcc.shared.convert.uploads import upload_header_from_proto
from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import Client, ClientProblem

BLOB = types_pb2.BlobRef(role="model", sha256="ab" * 32, size_bytes=1)
A_CLIENT: dict[str, Any] = {"client_id": "ann", "domain": "city", "activity": types_pb2.CLIENT_ACTIVITY_IDLE}


def a_join(**changes: Any) -> round_pb.JoinRequest:
    fields: dict[str, Any] = {
        "client_id": "ann",
        "domain": "hospital",
        "instance_token": "t" * 16,
        "num_examples": 3,
        "class_counts": [types_pb2.ClassCount(class_name="a", num_examples=3)],
    }
    return round_pb.JoinRequest(**{**fields, **changes})


def an_answer(forgotten: list[round_pb.ForgottenRun]) -> round_pb.JoinResponse:
    answer = membership_to_proto(
        types.Membership(heartbeat_interval_s=1.0, lease_s=5.0, max_chunk_bytes=1, max_blob_bytes=1)
    )
    answer.forgotten_runs.extend(forgotten)
    return answer


def a_blob(**changes: Any) -> types_pb2.BlobRef:
    blob = types_pb2.BlobRef()
    blob.CopyFrom(BLOB)
    for field, value in changes.items():
        setattr(blob, field, value)
    return blob


def a_heartbeat(**changes: Any) -> round_pb.HeartbeatRequest:
    return round_pb.HeartbeatRequest(**{"client_id": "ann", "activity": types_pb2.CLIENT_ACTIVITY_IDLE, **changes})


def a_line(**changes: Any) -> types_pb2.LogLine:
    return types_pb2.LogLine(**{"event": "connected", "level": types_pb2.LOG_LEVEL_INFO, **changes})


def an_event(**time: int) -> types_pb2.Event:
    return types_pb2.Event(type="round_opened", data_json="{}", time=Timestamp(**time))


def a_count(name: str, count: int) -> types_pb2.ClassCount:
    return types_pb2.ClassCount(class_name=name, num_examples=count)


NO_DISPLAY_NAMES = [
    "x" * 65,
    " x",
    "x ",
    "a\nb",
    "a\0",
    "\u202eevil",
    "a\u2069",
    "\u200d",
    "\u00a0",
    "\ue000",
    "\ufeffa",
]
"""Too long, spaces at an end, characters that nobody sees or that turn what follows."""


@pytest.mark.parametrize(
    "text", ["", "Klinik Köln, Haus 3", "הסורק", "شبكة", "\u0645\u06cc\u200c\u0631", "病院 2", "x" * 64, "<b>"]
)
def test_a_name_for_people_may_have_any_letters(text: str) -> None:
    assert client_from_join(a_join(display_name=text)).display_name == text
    assert client_to_proto(client_from_join(a_join(display_name=text))).display_name == text


NO_KINDS = [
    "x" * 161,
    " cnn5",
    "cnn5 ",
    "cnn5\n",
    "cnn5  a",
    "cnn5 a b",
    "4cnn",
    "cnn\0",
    "\u202ecnn5",
    "çnn",
    "<b>",
    "a/b",
]
"""Too long, other characters than names and stems have, or more than one stem."""


@pytest.mark.parametrize(
    "text",
    ["", "cnn5", "resnet10 cifar3x3", "resnet10-groupnorm cifar3x3", "timm:vit_tiny.augreg", "a.b:Net", "x" * 160],
)
def test_a_clients_own_kind_of_model_is_a_name_and_a_stem(text: str) -> None:
    assert client_from_join(a_join(model_kind=text)).model_kind == text
    assert client_to_proto(client_from_join(a_join(model_kind=text))).model_kind == text


@pytest.mark.parametrize(
    ("parse", "message", "field"),
    [
        *((client_from_join, a_join(model_kind=text), "model_kind") for text in NO_KINDS),
        *((client_from_proto, types_pb2.Client(model_kind=text, **A_CLIENT), "model_kind") for text in NO_KINDS),
        (blob_from_proto, a_blob(sha256="AB" * 32), "sha256"),
        (blob_from_proto, a_blob(sha256="ab" * 32 + "\n"), "sha256"),
        (blob_from_proto, a_blob(sha256="../../etc/passwd"), "sha256"),
        (blob_from_proto, a_blob(size_bytes=0), "size_bytes"),
        (blob_from_proto, a_blob(role=""), "role"),
        (blob_from_proto, a_blob(role="x" * 5000), "role"),
        (payload_from_proto, types_pb2.Payload(tensor_groups=[BLOB, BLOB]), "tensor_groups"),
        (payload_from_proto, types_pb2.Payload(prototype_sets=[BLOB] * 100), "prototype_sets"),
        (payload_from_proto, types_pb2.Payload(metadata={"key": "x" * 5000}), "metadata"),
        (payload_from_proto, types_pb2.Payload(scalars={str(i): 0.0 for i in range(500)}), "scalars"),
        (
            payload_from_proto,
            types_pb2.Payload(int_lists={"sizes": types_pb2.IntList(values=range(MAX_CLASSES + 1))}),
            "int_lists",
        ),
        (event_from_proto, an_event(nanos=-1), "time"),
        (event_from_proto, an_event(nanos=10**9), "time"),
        (event_from_proto, an_event(seconds=253_402_300_800), "time"),
        (task_from_proto, types_pb2.RoundTask(), "kind"),
        (task_from_proto, types_pb2.RoundTask(kind=99), "kind"),  # type: ignore[arg-type]
        (task_from_proto, types_pb2.RoundTask(kind=types_pb2.TASK_KIND_TRAIN), "run"),
        (task_from_proto, types_pb2.RoundTask(kind=types_pb2.TASK_KIND_WAIT, round=-1), "round"),
        (client_from_join, a_join(client_id=""), "client_id"),
        (client_from_join, a_join(smallest_side=-1), "smallest_side"),
        (client_from_join, a_join(smallest_side=1_000_001), "smallest_side"),
        (client_from_join, a_join(client_id="../ann"), "client_id"),
        (client_from_join, a_join(client_id="ann\n"), "client_id"),
        (client_from_join, a_join(client_id="x" * 65), "client_id"),
        (client_from_join, a_join(domain="a b"), "domain"),
        (client_from_join, a_join(instance_token="short"), "instance_token"),
        (client_from_join, a_join(instance_token="x" * 129), "instance_token"),
        (client_from_join, a_join(num_examples=0), "class_counts"),
        (client_from_join, a_join(num_examples=2**29 + 1), "num_examples"),
        (client_from_join, a_join(num_examples=4), "class_counts"),
        (client_from_join, a_join(class_counts=[a_count("a", 5), a_count("b", -2)]), "num_examples"),
        (client_from_join, a_join(class_counts=[a_count("a", 2), a_count("a", 1)]), "class_counts"),
        (client_from_join, a_join(version="x" * 5000), "version"),
        *(
            (client_from_join, a_join(environment=types_pb2.Environment(packages=packages)), "packages")
            for packages in ({str(number): "1" for number in range(33)}, {"x" * 129: "1"}, {"torch": "x" * 129})
        ),
        *(
            (client_from_join, a_join(environment=environment), name)
            for name, environment in {
                "cpu": types_pb2.Environment(cpu="x" * 257),
                "device": types_pb2.Environment(device="x" * 257),
                "platform": types_pb2.Environment(platform="x" * 257),
            }.items()
        ),
        *((client_from_join, a_join(display_name=text), "display_name") for text in NO_DISPLAY_NAMES),
        *(
            (client_from_proto, types_pb2.Client(display_name=text, **A_CLIENT), "display_name")
            for text in NO_DISPLAY_NAMES
        ),
        (heartbeat_from_proto, a_heartbeat(activity=types_pb2.CLIENT_ACTIVITY_UNSPECIFIED), "activity"),
        (heartbeat_from_proto, a_heartbeat(progress=1.5), "progress"),
        (heartbeat_from_proto, a_heartbeat(progress=math.nan), "progress"),
        (client_from_proto, types_pb2.Client(readings={"x": math.inf}, **A_CLIENT), "readings"),
        (client_from_proto, types_pb2.Client(readings={"batch_seconds": -0.1}, **A_CLIENT), "readings"),
        (client_from_proto, types_pb2.Client(readings={"x" * 2000: 1.0}, **A_CLIENT), "readings"),
        (heartbeat_from_proto, a_heartbeat(log_level=9), "log_level"),
        (heartbeat_from_proto, a_heartbeat(log_lines=[a_line()] * 21), "log_lines"),
        (heartbeat_from_proto, a_heartbeat(log_lines=[a_line(facts={"reason": "x" * 2**20})]), "log_lines"),
        (heartbeat_from_proto, a_heartbeat(log_lines=[a_line(event="x" * 2**20)]), "log_lines"),
        (heartbeat_from_proto, a_heartbeat(log_lines=[a_line(level=0)]), "log_lines.level"),
        (heartbeat_from_proto, a_heartbeat(log_lines=[a_line(time=Timestamp(seconds=2**60))]), "log_lines.time"),
        (heartbeat_from_proto, a_heartbeat(log_lines_left_out=-1), "log_lines_left_out"),
        (heartbeat_from_proto, a_heartbeat(readings={str(i): 0.0 for i in range(33)}), "readings"),
        (membership_from_proto, round_pb.JoinResponse(), "heartbeat_interval"),
        *(
            (membership_from_proto, round_pb.JoinResponse(heartbeat_interval=each), "heartbeat_interval")
            for each in (Duration(nanos=1), Duration(seconds=10**11))  # a flood; more than a thread can wait
        ),
        (membership_from_proto, an_answer([round_pb.ForgottenRun(run_id="r")] * 257), "forgotten_runs"),
        (membership_from_proto, an_answer([round_pb.ForgottenRun(round=1)]), "run_id"),
        (membership_from_proto, an_answer([round_pb.ForgottenRun(run_id="r", round=-2)]), "round"),
        (upload_header_from_proto, round_pb.BlobHeader(blob=BLOB), "run_id"),
        (upload_header_from_proto, round_pb.BlobHeader(run_id="r", round=-1, blob=BLOB), "round"),
        (update_from_commit, round_pb.CommitUpdateRequest(), "run_id"),
        (event_from_proto, types_pb2.Event(type="x", data_json="[1]"), "data_json"),
        (event_from_proto, types_pb2.Event(type="x", data_json="{"), "data_json"),
        (event_from_proto, types_pb2.Event(data_json="{}"), "type"),
        (round_from_proto, types_pb2.Round(phase=types_pb2.ROUND_PHASE_UNSPECIFIED), "phase"),
        (
            run_from_proto,
            types_pb2.Run(run_id="r", status=types_pb2.RUN_STATUS_RUNNING, round=-1, config_json='{"run": {}}'),
            "config_json",
        ),
    ],
)
def test_an_impossible_field_is_refused_by_its_name(parse: Callable[[Any], Any], message: Any, field: str) -> None:
    with pytest.raises(MalformedRequest) as refusal:
        parse(message)
    assert refusal.value.metadata == {"field": field}


def test_what_an_updates_numbers_mean_is_left_to_the_aggregator() -> None:
    request = round_pb.CommitUpdateRequest(
        run_id="r", round=1, num_examples=-5, class_counts=[-1], losses={"ce": math.nan}
    )
    update = update_from_commit(request)
    assert (update.num_examples, update.class_counts) == (-5, (-1,))
    assert math.isnan(update.losses["ce"])


def test_a_run_without_a_round_is_shown_as_round_minus_one() -> None:
    run = types.Run(
        run_id="r",
        name="n",
        status=types.RunStatus.PENDING,
        config_json='{"run":{"seed":3}}',
        config_hash="h",
        method="fedavg",
        total_rounds=2,
        seed=3,
        rejections={
            "bob": types.Rejections(count=2, reason="MALFORMED_UPDATE", check="sum", detail="é", round=7, last_at=1.5)
        },
        quarantined={"ann": "", "bob": "2 updates were refused"},
    )
    message = run_to_proto(run)
    assert (message.round, message.phase) == (-1, types_pb2.ROUND_PHASE_UNSPECIFIED)
    assert run_from_proto(message).run == run


def test_who_is_done_is_shown_by_the_phase() -> None:
    updates = {name: types.Update(client_id=name, payload=types.Payload(), num_examples=1) for name in ("bob", "ann")}
    counts = (types.EvaluationCounts("test", "global", (1,), (2,)),)
    evaluations = {"bob": types.Evaluation(client_id="bob", domain="d", counts=counts)}
    for phase, done in ((types.RoundPhase.COLLECTING, ["ann", "bob"]), (types.RoundPhase.EVALUATING, ["bob"])):
        current = types.Round(number=1, phase=phase, cohort=("ann", "bob"), updates=updates, evaluations=evaluations)
        run = types.Run(
            run_id="r",
            name="n",
            status=types.RunStatus.RUNNING,
            config_json="{}",
            config_hash="h",
            method="fedavg",
            total_rounds=2,
            seed=0,
            current_round=current,
        )
        assert list(run_to_proto(run).done_clients) == done


def test_a_long_sentence_of_a_problem_is_cut_and_not_refused() -> None:
    problem = ClientProblem(reason="INVALID_DATA", detail="x" * 5000, hint="y" * 5000)
    back = problem_from_proto(problem_to_proto(problem))
    assert len(back.detail) == len(back.hint) == MAX_TEXT


def test_records_keep_the_order_of_a_clients_classes() -> None:
    client = Client(client_id="ann", domain="d", num_examples=3, class_counts={"zebra": 1, "ant": 2})
    request = client_to_join(client, instance_token="t" * 16, version="1")
    assert list(client_from_join(request).class_counts) == ["zebra", "ant"]


NONSENSE = {
    "of a later version": ("x_watts", math.inf, "x_watts is inf, and no finite number"),
    "no number": ("batch_seconds", math.nan, "batch_seconds is nan, and not at least 0"),
    "below nothing": ("batch_seconds", -0.1, "batch_seconds is -0.1, and not at least 0"),
    "beyond any bound": ("batch_seconds", 1e300, "batch_seconds is 1e+300, and more than 3.40282e+38 in magnitude"),
    "beyond any bound, of a later version": (
        "x_watts",
        -1e39,
        "x_watts is -1e+39, and more than 3.40282e+38 in magnitude",
    ),
    "beyond its bounds": ("device_utilisation_ratio", 1.5, "device_utilisation_ratio is 1.5, and not 0 to 1"),
    "a name without end": ("x" * 2000, 1.0, "a name is longer than 1024 characters"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_an_impossible_reading_costs_nobody_a_heartbeat(name: str) -> None:
    reading, value, why = NONSENSE[name]
    heartbeat = heartbeat_from_proto(a_heartbeat(readings={reading: value, "unreadable_files": 3.0}))
    assert heartbeat.readings == {"unreadable_files": 3.0}
    assert heartbeat.left_out == {reading[:1024]: why}


def test_a_client_dropped_for_an_unknown_reason_is_refused() -> None:
    message = types_pb2.Round(round=1, phase=types_pb2.ROUND_PHASE_COLLECTING, cohort=["ann"])
    message.dropped.add(client_id="ann", reason="tired", detail="it said so")
    with pytest.raises(MalformedRequest, match="'tired' is no reason to drop a client"):
        round_from_proto(message)


def test_the_last_parts_of_the_year_9999_are_a_time() -> None:
    last = Timestamp(seconds=253_402_300_799, nanos=999_999_999)
    (line,) = heartbeat_from_proto(a_heartbeat(log_lines=[a_line(time=last)])).log_lines
    assert line_to_proto(line).time.seconds == last.seconds
