"""Messages of Join: a trainer's request and its membership."""

from __future__ import annotations

from fedplcc.shared.bounds import MAX_EXAMPLES, MAX_FORGOTTEN_RUNS, MAX_SIDE
from fedplcc.shared.convert.clients import (
    class_counts_from_proto,
    class_counts_to_proto,
    environment_from_proto,
    environment_to_proto,
)
from fedplcc.shared.convert.reading.fields import (
    at_least,
    at_most,
    bounded_text,
    duration,
    limited,
    malformed,
    message_like,
    model_kind,
    plain_name,
    present,
    seconds_of,
    shown_name,
)
from fedplcc.shared.convert.updates import committed_from_proto, committed_to_proto
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, types_pb2
from fedplcc.shared.identity.audit_chain import checked_head
from fedplcc.shared.types import Client, CommittedRelease, Environment, ForgottenRun, Membership

INTERVALS_S = 0.01, 86_400.0
"""Shortest and longest time between two heartbeats that an aggregator may ask for."""
TOKEN_CHARACTERS = (16, 128)
"""Fewest and most characters of an instance token."""
MAX_PACKAGES = 32
"""Most packages of an environment."""
MAX_PACKAGE_TEXT = 128
"""Most characters of a package's name, and of its version."""
MAX_MACHINE_TEXT = 256
"""Most characters of a processor, device or platform."""


def client_to_join(client: Client, *, instance_token: str, version: str) -> round_service_pb2.JoinRequest:
    """Return the request with which a trainer joins for a client."""
    return message_like(
        round_service_pb2.JoinRequest,
        client,
        instance_token=instance_token,
        class_counts=class_counts_to_proto(client.class_counts),
        environment=environment_to_proto(client.environment),
        version=version,
    )


def client_from_join(request: round_service_pb2.JoinRequest) -> Client:
    """Return the client of a request to join; also checks the request's token and version."""
    shortest, longest = TOKEN_CHARACTERS
    if not shortest <= len(request.instance_token) <= longest:
        raise malformed("instance_token", f"an instance token has {shortest} to {longest} characters")
    bounded_text("version", request.version)
    client = Client(
        client_id=plain_name("client_id", request.client_id),
        domain=plain_name("domain", request.domain),
        display_name=shown_name("display_name", request.display_name),
        model_kind=model_kind("model_kind", request.model_kind),
        num_examples=at_most(MAX_EXAMPLES, "num_examples", at_least(0, "num_examples", request.num_examples)),
        class_counts=class_counts_from_proto(request.class_counts),
        environment=_environment(request.environment),
        smallest_side=at_most(MAX_SIDE, "smallest_side", at_least(0, "smallest_side", request.smallest_side)),
    )
    if client.class_counts and sum(client.class_counts.values()) != client.num_examples:
        raise malformed("class_counts", "the class counts do not sum to num_examples")
    return client


def _environment(message: types_pb2.Environment) -> Environment:
    """Return the environment of a request to join; it goes into the history of every run, so that it must be short."""
    for name, version in limited("packages", message.packages, MAX_PACKAGES).items():
        if max(len(name), len(version)) > MAX_PACKAGE_TEXT:
            raise malformed("packages", f"a name or a version is longer than {MAX_PACKAGE_TEXT} characters")
    for field in ("cpu", "device", "platform"):
        if len(getattr(message, field)) > MAX_MACHINE_TEXT:
            raise malformed(field, f"it is longer than {MAX_MACHINE_TEXT} characters")
    return environment_from_proto(message)


def membership_to_proto(membership: Membership) -> round_service_pb2.JoinResponse:
    """Return the answer of a membership."""
    head, release = membership.audit_head, membership.last_release
    return round_service_pb2.JoinResponse(
        heartbeat_interval=duration(membership.heartbeat_interval_s),
        lease=duration(membership.lease_s),
        limits=message_like(round_service_pb2.TransferLimits, membership),
        last_committed=None if membership.last_committed is None else committed_to_proto(membership.last_committed),
        version=membership.version,
        open_runs=membership.open_runs,
        audit_head=None if head is None else message_like(round_service_pb2.AuditHead, head),
        forgotten_runs=[
            message_like(round_service_pb2.ForgottenRun, forgotten) for forgotten in membership.forgotten_runs
        ],
        last_release=None if release is None else message_like(round_service_pb2.CommittedRelease, release),
    )


def membership_from_proto(response: round_service_pb2.JoinResponse) -> Membership:
    """Return the membership of an answer."""
    interval = seconds_of(response.heartbeat_interval)
    if not INTERVALS_S[0] <= interval <= INTERVALS_S[1]:
        raise malformed("heartbeat_interval", f"{interval:g} s is not {INTERVALS_S[0]:g} to {INTERVALS_S[1]:g} s")
    return Membership(
        heartbeat_interval_s=interval,
        lease_s=seconds_of(response.lease),
        max_chunk_bytes=at_least(1, "max_chunk_bytes", response.limits.max_chunk_bytes),
        max_blob_bytes=at_least(1, "max_blob_bytes", response.limits.max_blob_bytes),
        max_inline_bytes=at_least(0, "max_inline_bytes", response.limits.max_inline_bytes),
        last_committed=committed_from_proto(response.last_committed) if response.HasField("last_committed") else None,
        version=bounded_text("version", response.version),
        open_runs=tuple(response.open_runs),
        audit_head=checked_head(response.audit_head.number, response.audit_head.hash)
        if response.HasField("audit_head")
        else None,
        forgotten_runs=tuple(
            ForgottenRun(present("run_id", forgotten.run_id), at_least(-1, "round", forgotten.round))
            for forgotten in limited("forgotten_runs", response.forgotten_runs, MAX_FORGOTTEN_RUNS)
        ),
        last_release=_release(response.last_release) if response.HasField("last_release") else None,
    )


def _release(message: round_service_pb2.CommittedRelease) -> CommittedRelease:
    run_id, config_hash = present("run_id", message.run_id), present("config_hash", message.config_hash)
    return CommittedRelease(run_id, config_hash, at_least(1, "round", message.round))
