"""Messages of clients, their heartbeats and their problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedplcc.shared.convert.reading.enums import ACTIVITY, LOG_LEVEL
from fedplcc.shared.convert.reading.fields import (
    MAX_CLASSES,
    MAX_TEXT,
    at_least,
    bounded_text,
    bounded_texts,
    fraction,
    limited,
    malformed,
    message_like,
    model_kind,
    plain_name,
    shown_name,
    time_of,
    timestamp,
)
from fedplcc.shared.convert.site_logs import level_from_proto, line_to_proto, lines_from_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, types_pb2
from fedplcc.shared.readings import why_impossible
from fedplcc.shared.types import Client, ClientProblem, Environment, Heartbeat

MAX_READINGS = 32
"""Most readings in a heartbeat."""


def environment_to_proto(environment: Environment) -> types_pb2.Environment:
    """Return the message of an environment."""
    return message_like(types_pb2.Environment, environment)


def environment_from_proto(message: types_pb2.Environment) -> Environment:
    """Return the environment of a message."""
    return Environment(
        packages=bounded_texts("packages", message.packages),
        cpu=bounded_text("cpu", message.cpu),
        device=bounded_text("device", message.device),
        platform=bounded_text("platform", message.platform),
    )


def problem_to_proto(problem: ClientProblem) -> types_pb2.ClientProblem:
    """Return the message of a problem."""
    return message_like(types_pb2.ClientProblem, problem)


def problem_from_proto(message: types_pb2.ClientProblem) -> ClientProblem:
    """Return the problem of a message; long sentences are cut."""
    return ClientProblem(
        reason=bounded_text("reason", message.reason),
        detail=message.detail[:MAX_TEXT],
        hint=message.hint[:MAX_TEXT],
        is_fatal=message.is_fatal,
    )


def client_to_proto(client: Client) -> types_pb2.Client:
    """Return the message of a client."""
    return message_like(
        types_pb2.Client,
        client,
        activity=ACTIVITY.number(client.activity),
        class_counts=class_counts_to_proto(client.class_counts),
        environment=environment_to_proto(client.environment),
        last_seen_time=timestamp(client.last_seen_at),
        problem=None if client.problem is None else problem_to_proto(client.problem),
    )


def client_from_proto(message: types_pb2.Client) -> Client:
    """Return the client of a message."""
    return Client(
        client_id=plain_name("client_id", message.client_id),
        domain=plain_name("domain", message.domain),
        display_name=shown_name("display_name", message.display_name),
        model_kind=model_kind("model_kind", message.model_kind),
        num_examples=at_least(0, "num_examples", message.num_examples),
        class_counts=class_counts_from_proto(message.class_counts),
        environment=environment_from_proto(message.environment),
        is_connected=message.is_connected,
        activity=ACTIVITY.member(message.activity, "activity"),
        run_id=bounded_text("run_id", message.run_id),
        round=message.round,
        progress=fraction("progress", message.progress),
        last_seen_at=time_of("last_seen_time", message.last_seen_time),
        problem=problem_from_proto(message.problem) if message.HasField("problem") else None,
        readings=_possible_readings(message.readings),
        held_bytes=at_least(0, "held_bytes", message.held_bytes),
        is_revoked=message.is_revoked,
        smallest_side=at_least(0, "smallest_side", message.smallest_side),
    )


def heartbeat_to_proto(heartbeat: Heartbeat, *, instance_token: str) -> round_service_pb2.HeartbeatRequest:
    """Return the request of a heartbeat."""
    return message_like(
        round_service_pb2.HeartbeatRequest,
        heartbeat,
        instance_token=instance_token,
        activity=ACTIVITY.number(heartbeat.activity),
        problem=None if heartbeat.problem is None else problem_to_proto(heartbeat.problem),
        log_level=LOG_LEVEL.number(heartbeat.log_level),
        log_lines=[line_to_proto(line) for line in heartbeat.log_lines],
    )


def heartbeat_from_proto(request: round_service_pb2.HeartbeatRequest) -> Heartbeat:
    """Return the heartbeat of a request; impossible readings are left out, the rest of the heartbeat counts."""
    impossible = _impossible_readings(request.readings)
    return Heartbeat(
        client_id=request.client_id,
        activity=ACTIVITY.member(request.activity, "activity"),
        run_id=bounded_text("run_id", request.run_id),
        round=request.round,
        progress=fraction("progress", request.progress),
        readings={name: value for name, value in request.readings.items() if name not in impossible},
        left_out={name[:MAX_TEXT]: why for name, why in impossible.items()},
        problem=problem_from_proto(request.problem) if request.HasField("problem") else None,
        is_leaving=request.is_leaving,
        log_level=level_from_proto(request.log_level, "log_level"),
        log_lines=lines_from_proto(request.log_lines),
        log_lines_left_out=at_least(0, "log_lines_left_out", request.log_lines_left_out),
    )


def class_counts_to_proto(counts: Mapping[str, int]) -> list[types_pb2.ClassCount]:
    """Return the messages of a client's samples by class, in its order of classes."""
    return [types_pb2.ClassCount(class_name=name, num_examples=count) for name, count in counts.items()]


def class_counts_from_proto(messages: Iterable[types_pb2.ClassCount]) -> dict[str, int]:
    """Return a client's samples by class, in its order of classes."""
    counts: dict[str, int] = {}
    for message in limited("class_counts", messages, MAX_CLASSES):
        if message.class_name in counts:
            raise malformed("class_counts", "a class occurs twice")
        counts[bounded_text("class_name", message.class_name)] = at_least(0, "num_examples", message.num_examples)
    return counts


def _possible_readings(entries: Mapping[str, float]) -> dict[str, float]:
    """Return a client's readings as an aggregator reports them."""
    for why in _impossible_readings(entries).values():
        raise malformed("readings", why)
    return dict(entries)


def _impossible_readings(entries: Mapping[str, float]) -> dict[str, str]:
    """Return the reason for each impossible reading, by name; refuses too many readings."""
    found: dict[str, str] = {}
    for name, value in limited("readings", entries, MAX_READINGS).items():
        is_long = len(name) > MAX_TEXT
        why = f"a name is longer than {MAX_TEXT} characters" if is_long else why_impossible(name, value)
        if why is not None:
            found[name] = why
    return found
