"""Messages of fedplcc.v1 to the records of shared/types.py and back, one pair of functions per message.

`x_to_proto(record)` and `x_from_proto(message)` undo each other. A message from outside is believed in nothing: a missing
or impossible field raises `MalformedRequest` whose `metadata["field"]` names it, and texts and lists are bounded. What an
update's numbers mean is not judged here but by the aggregator, which knows the run and refuses with `MalformedUpdate`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast, get_args

import numpy as np
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from shared.errors import MalformedRequest
from shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2, types_pb2
from shared.prototype_map import MAX_GLOBAL, MAX_LOCAL, MappedClient, PrototypeMap, RoundMap
from shared.readings import first_impossible
from shared.run_config import NAME_PATTERN, canonical_json
from shared.types import (
    MODEL,
    BlobRef,
    Client,
    ClientActivity,
    ClientProblem,
    CommittedUpdate,
    Comparison,
    Environment,
    Evaluation,
    EvaluationCounts,
    Event,
    Heartbeat,
    Membership,
    Payload,
    Poll,
    Rejections,
    Round,
    RoundPhase,
    Run,
    RunSpec,
    RunStatus,
    Task,
    TaskKind,
    Update,
)

MAX_TEXT = 1024
"""Most characters of a text that a peer chooses: names, sentences, versions."""
MAX_ENTRIES = 64
"""Most entries of a map or list that a peer chooses, where nothing says otherwise."""
MAX_READINGS = 32
"""Most readings of a heartbeat."""
MAX_CLASSES = 10_000
"""Most classes of a client's data, and most integers of a list."""
MAX_MODEL_NAME = 256
"""Most characters of the name of an uploaded model."""
TOKEN_CHARACTERS = (16, 128)
"""Least and most characters of an instance token."""

_YEARS_1_TO_9999_S = (-62_135_596_800, 253_402_300_799)
"""First and last second of a Timestamp, by its definition."""
_NAME = re.compile(NAME_PATTERN)
_SHA256 = re.compile(r"[0-9a-f]{64}")

Value = TypeVar("Value", bound=StrEnum)
Item = TypeVar("Item")


class _Names(Generic[Value]):
    """Members of a domain enum by number on the wire and back; `RUNNING` is `RUN_STATUS_RUNNING` there."""

    def __init__(self, kind: type[Value], wire: Any, prefix: str) -> None:
        self._number = {member: wire.Value(f"{prefix}_{member.name}") for member in kind}
        self._member = {number: member for member, number in self._number.items()}

    def number(self, member: Value | None) -> Any:
        return 0 if member is None else self._number[member]

    def member(self, number: int, field: str) -> Value:
        member = self._member.get(number)
        if member is None:
            raise _malformed(field, f"{number} is no value of it")
        return member


_STATUS = _Names(RunStatus, types_pb2.RunStatus, "RUN_STATUS")
_PHASE = _Names(RoundPhase, types_pb2.RoundPhase, "ROUND_PHASE")
_TASK = _Names(TaskKind, types_pb2.TaskKind, "TASK_KIND")
_ACTIVITY = _Names(ClientActivity, types_pb2.ClientActivity, "CLIENT_ACTIVITY")


# Blobs, payloads, tasks


def blob_to_proto(blob: BlobRef) -> types_pb2.BlobRef:
    """The message that names a blob."""
    return types_pb2.BlobRef(role=blob.role, sha256=blob.sha256, size_bytes=blob.size_bytes)


def blob_from_proto(message: types_pb2.BlobRef) -> BlobRef:
    """The blob that a message names."""
    if not _SHA256.fullmatch(message.sha256):
        raise _malformed("sha256", "a SHA-256 is 64 lowercase hexadecimal digits")
    if message.size_bytes < 1:
        raise _malformed("size_bytes", f"{message.size_bytes} is no size of a blob")
    if not message.role:
        raise _malformed("role", "a blob has a role")
    return BlobRef(_text("role", message.role), message.sha256, message.size_bytes)


def payload_to_proto(payload: Payload) -> types_pb2.Payload:
    """The message of a payload."""
    return types_pb2.Payload(
        tensor_groups=map(blob_to_proto, payload.tensor_groups),
        prototype_sets=map(blob_to_proto, payload.prototype_sets),
        scalars=payload.scalars,
        int_lists={name: types_pb2.IntList(values=values) for name, values in payload.int_lists.items()},
        metadata=payload.metadata,
    )


def payload_from_proto(message: types_pb2.Payload) -> Payload:
    """The payload of a message; roles are unique within tensor groups and within prototype sets."""
    groups = tuple(map(blob_from_proto, _limited("tensor_groups", message.tensor_groups)))
    sets = tuple(map(blob_from_proto, _limited("prototype_sets", message.prototype_sets)))
    for field, blobs in (("tensor_groups", groups), ("prototype_sets", sets)):
        if len({blob.role for blob in blobs}) < len(blobs):
            raise _malformed(field, "a role occurs twice")
    return Payload(
        tensor_groups=groups,
        prototype_sets=sets,
        scalars=_map("scalars", message.scalars),
        int_lists={
            name: tuple(_limited("int_lists", entry.values, MAX_CLASSES))
            for name, entry in _map("int_lists", message.int_lists).items()
        },
        metadata=_texts("metadata", message.metadata),
    )


def task_to_proto(task: Task) -> types_pb2.RoundTask:
    """The message of a task."""
    return types_pb2.RoundTask(
        kind=_TASK.number(task.kind),
        run=None if task.run is None else _run_spec_to_proto(task.run),
        round=task.round,
        total_rounds=task.total_rounds,
        payload=payload_to_proto(task.payload),
        detail=task.detail,
    )


def task_from_proto(message: types_pb2.RoundTask) -> Task:
    """The task of a message; only WAIT may come without a run."""
    kind = _TASK.member(message.kind, "kind")
    run = _run_spec_from_proto(message.run) if message.HasField("run") else None
    if run is None and kind is not TaskKind.WAIT:
        raise _malformed("run", f"a task {kind} names a run")
    return Task(
        kind=kind,
        run=run,
        round=_at_least(0, "round", message.round),
        total_rounds=_at_least(0, "total_rounds", message.total_rounds),
        payload=payload_from_proto(message.payload),
        detail=message.detail,
    )


def _run_spec_to_proto(run: RunSpec) -> types_pb2.RunSpec:
    return types_pb2.RunSpec(run_id=run.run_id, config_json=run.config_json, config_hash=run.config_hash)


def _run_spec_from_proto(message: types_pb2.RunSpec) -> RunSpec:
    run_id = _present("run_id", message.run_id)
    return RunSpec(run_id=run_id, config_json=message.config_json, config_hash=message.config_hash)


def poll_to_proto(poll: Poll) -> round_service_pb2.Poll:
    """The message of a poll."""
    known = None
    if poll.known is not None:
        run_id, number, kind = poll.known
        known = round_service_pb2.TaskKey(run_id=run_id, round=number, kind=_TASK.number(kind))
    return round_service_pb2.Poll(known=known, hold=_duration(poll.hold_s))


def poll_from_proto(message: round_service_pb2.Poll) -> Poll:
    """The poll of a message."""
    hold_s = message.hold.ToNanoseconds() / 1e9
    if hold_s < 0:
        raise _malformed("hold", f"{hold_s:g} s is no time to wait")
    known = None
    if message.HasField("known"):
        key = message.known
        known = (_text("run_id", key.run_id), _at_least(0, "round", key.round), _TASK.member(key.kind, "kind"))
    return Poll(known, hold_s)


# Clients


def environment_to_proto(environment: Environment) -> types_pb2.Environment:
    """The message of an environment."""
    return types_pb2.Environment(
        packages=environment.packages,
        cpu=environment.cpu,
        device=environment.device,
        platform=environment.platform,
    )


def environment_from_proto(message: types_pb2.Environment) -> Environment:
    """The environment of a message."""
    return Environment(
        packages=_texts("packages", message.packages),
        cpu=_text("cpu", message.cpu),
        device=_text("device", message.device),
        platform=_text("platform", message.platform),
    )


def problem_to_proto(problem: ClientProblem) -> types_pb2.ClientProblem:
    """The message of a problem."""
    return types_pb2.ClientProblem(
        reason=problem.reason, detail=problem.detail, hint=problem.hint, is_fatal=problem.is_fatal
    )


def problem_from_proto(message: types_pb2.ClientProblem) -> ClientProblem:
    """The problem of a message; long sentences are cut."""
    return ClientProblem(
        reason=_text("reason", message.reason),
        detail=message.detail[:MAX_TEXT],
        hint=message.hint[:MAX_TEXT],
        is_fatal=message.is_fatal,
    )


def client_to_proto(client: Client) -> types_pb2.Client:
    """The message of a client."""
    return types_pb2.Client(
        client_id=client.client_id,
        domain=client.domain,
        is_connected=client.is_connected,
        activity=_ACTIVITY.number(client.activity),
        run_id=client.run_id,
        round=client.round,
        progress=client.progress,
        num_examples=client.num_examples,
        class_counts=_class_counts_to_proto(client.class_counts),
        environment=environment_to_proto(client.environment),
        last_seen_time=_timestamp(client.last_seen_at),
        problem=None if client.problem is None else problem_to_proto(client.problem),
        readings=client.readings,
    )


def client_from_proto(message: types_pb2.Client) -> Client:
    """The client of a message."""
    return Client(
        client_id=_name("client_id", message.client_id),
        domain=_name("domain", message.domain),
        num_examples=_at_least(0, "num_examples", message.num_examples),
        class_counts=_class_counts_from_proto(message.class_counts),
        environment=environment_from_proto(message.environment),
        is_connected=message.is_connected,
        activity=_ACTIVITY.member(message.activity, "activity"),
        run_id=_text("run_id", message.run_id),
        round=message.round,
        progress=_fraction("progress", message.progress),
        last_seen_at=_seconds("last_seen_time", message.last_seen_time),
        problem=problem_from_proto(message.problem) if message.HasField("problem") else None,
        readings=_readings(message.readings),
    )


def client_to_join(client: Client, *, instance_token: str, version: str) -> round_service_pb2.JoinRequest:
    """The request in which a trainer says who it is and what it has."""
    return round_service_pb2.JoinRequest(
        client_id=client.client_id,
        domain=client.domain,
        instance_token=instance_token,
        num_examples=client.num_examples,
        class_counts=_class_counts_to_proto(client.class_counts),
        environment=environment_to_proto(client.environment),
        version=version,
    )


def client_from_join(request: round_service_pb2.JoinRequest) -> Client:
    """The client that asks to join; its token and version are checked with it and read from the request."""
    shortest, longest = TOKEN_CHARACTERS
    if not shortest <= len(request.instance_token) <= longest:
        raise _malformed("instance_token", f"an instance token has {shortest} to {longest} characters")
    _text("version", request.version)
    client = Client(
        client_id=_name("client_id", request.client_id),
        domain=_name("domain", request.domain),
        num_examples=_at_least(1, "num_examples", request.num_examples),
        class_counts=_class_counts_from_proto(request.class_counts),
        environment=environment_from_proto(request.environment),
    )
    if sum(client.class_counts.values()) != client.num_examples:
        raise _malformed("class_counts", "the class counts do not sum to num_examples")
    return client


def heartbeat_to_proto(heartbeat: Heartbeat, *, instance_token: str) -> round_service_pb2.HeartbeatRequest:
    """The request of a heartbeat."""
    return round_service_pb2.HeartbeatRequest(
        client_id=heartbeat.client_id,
        instance_token=instance_token,
        activity=_ACTIVITY.number(heartbeat.activity),
        run_id=heartbeat.run_id,
        round=heartbeat.round,
        progress=heartbeat.progress,
        readings=heartbeat.readings,
        problem=None if heartbeat.problem is None else problem_to_proto(heartbeat.problem),
    )


def heartbeat_from_proto(request: round_service_pb2.HeartbeatRequest) -> Heartbeat:
    """The heartbeat of a request."""
    return Heartbeat(
        client_id=request.client_id,
        activity=_ACTIVITY.member(request.activity, "activity"),
        run_id=_text("run_id", request.run_id),
        round=request.round,
        progress=_fraction("progress", request.progress),
        readings=_readings(request.readings),
        problem=problem_from_proto(request.problem) if request.HasField("problem") else None,
    )


def committed_to_proto(committed: CommittedUpdate) -> round_service_pb2.CommittedUpdate:
    """The message that names a committed update."""
    return round_service_pb2.CommittedUpdate(run_id=committed.run_id, round=committed.round, sha256s=committed.sha256s)


def committed_from_proto(message: round_service_pb2.CommittedUpdate) -> CommittedUpdate:
    """The committed update that a message names."""
    return CommittedUpdate(_present("run_id", message.run_id), message.round, tuple(message.sha256s))


def membership_to_proto(membership: Membership) -> round_service_pb2.JoinResponse:
    """The answer to a trainer that is in."""
    return round_service_pb2.JoinResponse(
        heartbeat_interval=_duration(membership.heartbeat_interval_s),
        lease=_duration(membership.lease_s),
        limits=round_service_pb2.TransferLimits(
            max_chunk_bytes=membership.max_chunk_bytes, max_blob_bytes=membership.max_blob_bytes
        ),
        last_committed=None if membership.last_committed is None else committed_to_proto(membership.last_committed),
        version=membership.version,
        open_runs=None if membership.open_runs is None else round_service_pb2.OpenRuns(run_ids=membership.open_runs),
    )


def membership_from_proto(response: round_service_pb2.JoinResponse) -> Membership:
    """The terms on which a trainer is in."""
    interval = response.heartbeat_interval.ToNanoseconds() / 1e9
    if interval <= 0:
        raise _malformed("heartbeat_interval", f"{interval} s is no interval")
    return Membership(
        heartbeat_interval_s=interval,
        lease_s=response.lease.ToNanoseconds() / 1e9,
        max_chunk_bytes=_at_least(1, "max_chunk_bytes", response.limits.max_chunk_bytes),
        max_blob_bytes=_at_least(1, "max_blob_bytes", response.limits.max_blob_bytes),
        last_committed=committed_from_proto(response.last_committed) if response.HasField("last_committed") else None,
        version=_text("version", response.version),
        open_runs=tuple(response.open_runs.run_ids) if response.HasField("open_runs") else None,
    )


# Uploads, updates, evaluations


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadHeader:
    """What an upload is for, and by whom."""

    run_id: str
    round: int
    client_id: str
    instance_token: str
    blob: BlobRef


def upload_header_to_proto(header: UploadHeader) -> round_service_pb2.BlobHeader:
    """The message that opens an upload."""
    return round_service_pb2.BlobHeader(
        run_id=header.run_id,
        round=header.round,
        client_id=header.client_id,
        instance_token=header.instance_token,
        blob=blob_to_proto(header.blob),
    )


def upload_header_from_proto(message: round_service_pb2.BlobHeader) -> UploadHeader:
    """What an upload says that it is for; who sends it is checked against the sessions, not here."""
    return UploadHeader(
        run_id=_present("run_id", message.run_id),
        round=_at_least(0, "round", message.round),
        client_id=message.client_id,
        instance_token=message.instance_token,
        blob=blob_from_proto(message.blob),
    )


def initial_model_to_proto(blob: BlobRef, name: str) -> run_service_pb2.InitialModelHeader:
    """The message that opens the upload of a model to begin with."""
    return run_service_pb2.InitialModelHeader(blob=blob_to_proto(blob), name=name)


def initial_model_from_proto(message: run_service_pb2.InitialModelHeader) -> tuple[BlobRef, str]:
    """The model that such a message announces, and what people call it."""
    blob = blob_from_proto(message.blob)
    if blob.role != MODEL:
        raise _malformed("role", f"{blob.role!r} is not the role {MODEL!r}")
    if len(message.name) > MAX_MODEL_NAME or not message.name.isprintable():
        raise _malformed("name", f"it is not up to {MAX_MODEL_NAME} printable characters")
    return blob, message.name


def update_to_commit(
    update: Update, *, run_id: str, round_number: int, instance_token: str
) -> round_service_pb2.CommitUpdateRequest:
    """The request that makes an update part of a round."""
    return round_service_pb2.CommitUpdateRequest(
        run_id=run_id,
        round=round_number,
        client_id=update.client_id,
        instance_token=instance_token,
        payload=payload_to_proto(update.payload),
        num_examples=update.num_examples,
        num_excluded=update.num_excluded,
        class_counts=update.class_counts,
        losses=update.losses,
        timings=update.timings,
    )


def update_from_commit(request: round_service_pb2.CommitUpdateRequest) -> Update:
    """The update of a request, its numbers as they came; its number of prototypes is found by whoever reads them."""
    _present("run_id", request.run_id)
    _at_least(0, "round", request.round)
    return Update(
        client_id=request.client_id,
        payload=payload_from_proto(request.payload),
        num_examples=request.num_examples,
        num_excluded=request.num_excluded,
        class_counts=tuple(_limited("class_counts", request.class_counts, MAX_CLASSES)),
        losses=_map("losses", request.losses),
        timings=_map("timings", request.timings),
    )


def counts_to_proto(counts: EvaluationCounts) -> types_pb2.EvaluationCounts:
    """The message of one evaluation set's counts."""
    return types_pb2.EvaluationCounts(
        set_name=counts.set_name, model=counts.model, correct=counts.correct, total=counts.total
    )


def counts_from_proto(message: types_pb2.EvaluationCounts) -> EvaluationCounts:
    """The counts of one evaluation set, as they came."""
    correct = _limited("correct", message.correct, MAX_CLASSES)
    total = _limited("total", message.total, MAX_CLASSES)
    return EvaluationCounts(
        _text("set_name", message.set_name), _text("model", message.model), tuple(correct), tuple(total)
    )


def evaluation_to_report(
    evaluation: Evaluation, *, run_id: str, round_number: int, instance_token: str
) -> round_service_pb2.ReportEvaluationRequest:
    """The request that reports an evaluation; the aggregator knows the client's domain."""
    return round_service_pb2.ReportEvaluationRequest(
        run_id=run_id,
        round=round_number,
        client_id=evaluation.client_id,
        instance_token=instance_token,
        counts=map(counts_to_proto, evaluation.counts),
        timings=evaluation.timings,
    )


def evaluation_from_report(request: round_service_pb2.ReportEvaluationRequest, *, domain: str) -> Evaluation:
    """The evaluation of a request, of a client of this domain."""
    _present("run_id", request.run_id)
    _at_least(0, "round", request.round)
    return Evaluation(
        client_id=request.client_id,
        domain=domain,
        counts=tuple(map(counts_from_proto, _limited("counts", request.counts))),
        timings=_map("timings", request.timings),
    )


def evaluation_to_proto(round_number: int, evaluation: Evaluation) -> run_service_pb2.ClientEvaluation:
    """The message of one client's counts in one round; timings stay behind."""
    return run_service_pb2.ClientEvaluation(
        round=round_number,
        client_id=evaluation.client_id,
        domain=evaluation.domain,
        counts=map(counts_to_proto, evaluation.counts),
    )


def evaluation_from_proto(message: run_service_pb2.ClientEvaluation) -> tuple[int, Evaluation]:
    """The round, and one client's counts in it."""
    counts = tuple(map(counts_from_proto, message.counts))
    return message.round, Evaluation(client_id=message.client_id, domain=message.domain, counts=counts)


# Prototype maps


def prototype_map_to_proto(found: RoundMap) -> run_service_pb2.GetPrototypeMapResponse:
    """The message of a round's prototype map."""
    drawn = found.drawn
    columns = (drawn.class_ids_N, drawn.owners_N, drawn.weights_N, drawn.shares_N, drawn.nearest_N)
    return run_service_pb2.GetPrototypeMapResponse(
        round=found.number,
        prototypes=(
            run_service_pb2.MappedPrototype(
                x=x, y=y, class_id=class_id, client=owner, weight=weight, share=share, nearest=nearest
            )
            for (x, y), class_id, owner, weight, share, nearest in zip(
                drawn.places_N2.tolist(), *(column.tolist() for column in columns), strict=True
            )
        ),
        clients=(
            run_service_pb2.MappedClient(client_id=client.client_id, domain=client.domain, is_kept=client.is_kept)
            for client in found.clients
        ),
        comparison=found.comparison,
        explained=drawn.explained,
        left_out_global=drawn.left_out_global,
        left_out_local=drawn.left_out_local,
        rounds=(run_service_pb2.RoundSpan(first=first, last=last) for first, last in found.rounds),
        aligned_from=found.aligned_from,
    )


def prototype_map_from_proto(message: run_service_pb2.GetPrototypeMapResponse) -> RoundMap:
    """The prototype map of a message: its numbers are finite, and its places point into its lists."""
    if message.comparison not in get_args(Comparison):
        raise _malformed("comparison", "it is neither cosine nor distance")
    entries, clients = _limited("prototypes", message.prototypes, MAX_GLOBAL + MAX_LOCAL), message.clients
    for entry in entries:
        if not (math.isfinite(entry.x) and math.isfinite(entry.y)):
            raise _malformed("x", "a place is NaN or infinite")
        if not (math.isfinite(entry.weight) and entry.weight > 0):
            raise _malformed("weight", "it is not a positive number")
        _fraction("share", entry.share)
        _at_least(0, "class_id", entry.class_id)
        if not -1 <= entry.client < len(clients) or not -1 <= entry.nearest < len(entries):
            raise _malformed("client", "it points to nothing")
    for span in message.rounds:
        _at_least(span.first, "rounds", span.last)
    drawn = PrototypeMap(
        places_N2=np.array([(entry.x, entry.y) for entry in entries], dtype=np.float64).reshape(-1, 2),
        class_ids_N=np.array([entry.class_id for entry in entries], dtype=np.int64),
        owners_N=np.array([entry.client for entry in entries], dtype=np.int64),
        weights_N=np.array([entry.weight for entry in entries], dtype=np.float64),
        shares_N=np.array([entry.share for entry in entries], dtype=np.float64),
        nearest_N=np.array([entry.nearest for entry in entries], dtype=np.int64),
        owners=tuple(client.client_id for client in clients),
        explained=_fraction("explained", message.explained),
        left_out_global=_at_least(0, "left_out_global", message.left_out_global),
        left_out_local=_at_least(0, "left_out_local", message.left_out_local),
    )
    return RoundMap(
        number=_at_least(1, "round", message.round),
        drawn=drawn,
        clients=tuple(
            MappedClient(_text("client_id", client.client_id), _text("domain", client.domain), client.is_kept)
            for client in clients
        ),
        comparison=cast(Comparison, message.comparison),
        aligned_from=_at_least(1, "aligned_from", message.aligned_from),
        rounds=tuple((span.first, span.last) for span in message.rounds),
    )


# Runs, rounds, events


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as it is shown to people.

    Attributes:
        run: The run. Its round has number, phase and cohort; blobs, updates and reports are not shown, and its seed is the
            configuration's.
        done_clients: Clients whose part in the present phase is done, sorted.
        manifest_json: Content of run.json.
    """

    run: Run
    done_clients: tuple[str, ...] = ()
    manifest_json: str = ""


def run_to_proto(run: Run, *, manifest_json: str = "") -> types_pb2.Run:
    """The message of a run; `manifest_json` is the content of its run.json."""
    current = run.round
    return types_pb2.Run(
        run_id=run.run_id,
        name=run.name,
        status=_STATUS.number(run.status),
        method=run.method,
        config_json=run.config_json,
        config_hash=run.config_hash,
        total_rounds=run.total_rounds,
        round=run.round_number,
        phase=_PHASE.number(current.phase if current else None),
        roster=run.roster,
        cohort=current.cohort if current else (),
        done_clients=current.done_clients if current else (),
        is_pause_requested=run.is_pause_requested,
        reason=run.reason,
        create_time=_timestamp(run.created_at),
        update_time=_timestamp(run.updated_at),
        manifest_json=manifest_json,
        rejections=[_rejections_to_proto(*entry) for entry in sorted(run.rejections.items())],
        quarantined=[
            types_pb2.QuarantinedClient(client_id=client_id, reason=reason)
            for client_id, reason in sorted(run.quarantined.items())
        ],
    )


def _rejections_to_proto(client_id: str, refused: Rejections) -> types_pb2.Rejections:
    return types_pb2.Rejections(
        client_id=client_id,
        count=refused.count,
        reason=refused.reason,
        check=refused.check,
        detail=refused.detail,
        round=refused.round,
        last_time=_timestamp(refused.last_at),
    )


def _rejections_from_proto(message: types_pb2.Rejections) -> Rejections:
    return Rejections(
        count=_at_least(1, "count", message.count),
        reason=message.reason,
        check=message.check,
        detail=message.detail,
        round=message.round,
        last_at=_seconds("last_time", message.last_time),
    )


def run_from_proto(message: types_pb2.Run) -> RunView:
    """The run of a message, as far as it is shown."""
    current = None
    if message.round >= 0:
        phase = _PHASE.member(message.phase, "phase")
        current = Round(number=message.round, phase=phase, cohort=tuple(message.cohort))
    run = Run(
        run_id=_present("run_id", message.run_id),
        name=message.name,
        status=_STATUS.member(message.status, "status"),
        config_json=message.config_json,
        config_hash=message.config_hash,
        method=message.method,
        total_rounds=message.total_rounds,
        seed=_seed(message.config_json),
        roster=tuple(message.roster),
        round=current,
        is_pause_requested=message.is_pause_requested,
        reason=message.reason,
        created_at=_seconds("create_time", message.create_time),
        updated_at=_seconds("update_time", message.update_time),
        rejections={entry.client_id: _rejections_from_proto(entry) for entry in message.rejections},
        quarantined={client.client_id: client.reason for client in message.quarantined},
    )
    return RunView(run=run, done_clients=tuple(message.done_clients), manifest_json=message.manifest_json)


def round_to_proto(current: Round) -> types_pb2.Round:
    """The message of a round; updates, reports and times of phases stay behind."""
    return types_pb2.Round(
        round=current.number,
        phase=_PHASE.number(current.phase),
        cohort=current.cohort,
        model=None if current.model is None else blob_to_proto(current.model),
        prototypes=None if current.prototypes is None else blob_to_proto(current.prototypes),
        metrics_json=current.metrics_json,
        timings_json=current.timings_json,
        dropped=[_dropped_to_proto(*entry) for entry in sorted(current.dropped.items())],
    )


def _dropped_to_proto(client_id: str, why: str) -> types_pb2.DroppedClient:
    reason, _, detail = why.partition(": ")
    return types_pb2.DroppedClient(client_id=client_id, reason=reason, detail=detail)


def round_from_proto(message: types_pb2.Round) -> Round:
    """The round of a message, as far as it is shown."""
    return Round(
        number=_at_least(0, "round", message.round),
        phase=_PHASE.member(message.phase, "phase"),
        cohort=tuple(message.cohort),
        model=blob_from_proto(message.model) if message.HasField("model") else None,
        prototypes=blob_from_proto(message.prototypes) if message.HasField("prototypes") else None,
        metrics_json=message.metrics_json,
        timings_json=message.timings_json,
        dropped={client.client_id: f"{client.reason}: {client.detail}" for client in message.dropped},
    )


def event_to_proto(event: Event) -> types_pb2.Event:
    """The message of an entry of the history."""
    return types_pb2.Event(
        sequence=event.sequence,
        time=_timestamp(event.time),
        type=event.type,
        run_id=event.run_id,
        round=event.round,
        client_id=event.client_id,
        data_json=canonical_json(dict(event.data)),
    )


def event_from_proto(message: types_pb2.Event) -> Event:
    """The entry of the history that a message holds."""
    return Event(
        type=_present("type", message.type),
        run_id=message.run_id,
        round=message.round,
        client_id=message.client_id,
        data=_json_object("data_json", message.data_json),
        sequence=message.sequence,
        time=_seconds("time", message.time),
    )


# Fields


def _malformed(field: str, problem: str) -> MalformedRequest:
    return MalformedRequest(f"{field}: {problem}", field=field)


def _at_least(least: int, field: str, value: int) -> int:
    if value < least:
        raise _malformed(field, f"{value} is less than {least}")
    return value


def _fraction(field: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise _malformed(field, "it is not a number from 0 to 1")
    return value


def _present(field: str, text: str) -> str:
    if not text:
        raise _malformed(field, "it is missing")
    return _text(field, text)


def _text(field: str, text: str) -> str:
    if len(text) > MAX_TEXT:
        raise _malformed(field, f"it is longer than {MAX_TEXT} characters")
    return text


def _name(field: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _malformed(
            field, "it is not 1 to 64 letters, digits, '.', '_' or '-' that begin with a letter or a digit"
        )
    return text


def _limited(field: str, entries: Any, most: int = MAX_ENTRIES) -> Any:
    if len(entries) > most:
        raise _malformed(field, f"it has more than {most} entries")
    return entries


def _map(field: str, entries: Mapping[str, Item]) -> dict[str, Item]:
    return {_text(field, name): value for name, value in _limited(field, entries, 2 * MAX_ENTRIES).items()}


def _texts(field: str, entries: Mapping[str, str]) -> dict[str, str]:
    return {name: _text(field, text) for name, text in _map(field, entries).items()}


def _finite_map(field: str, entries: Mapping[str, float], most: int) -> dict[str, float]:
    _limited(field, entries, most)
    if not all(math.isfinite(value) for value in entries.values()):
        raise _malformed(field, "a value is NaN or infinite")
    return _map(field, entries)


def _readings(entries: Mapping[str, float]) -> dict[str, float]:
    """The readings of a client; those that this version does not know may be anything finite."""
    readings = _finite_map("readings", entries, MAX_READINGS)
    fault = first_impossible(readings)
    if fault is not None:
        raise _malformed("readings", fault)
    return readings


def _class_counts_to_proto(counts: Mapping[str, int]) -> list[types_pb2.ClassCount]:
    return [types_pb2.ClassCount(class_name=name, num_examples=count) for name, count in counts.items()]


def _class_counts_from_proto(messages: Iterable[types_pb2.ClassCount]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for message in _limited("class_counts", messages, MAX_CLASSES):
        if message.class_name in counts:
            raise _malformed("class_counts", "a class occurs twice")
        counts[_text("class_name", message.class_name)] = _at_least(0, "num_examples", message.num_examples)
    return counts


def _json_object(field: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(field, "it is not JSON") from error
    if not isinstance(value, dict):
        raise _malformed(field, "it is not a JSON object")
    return value


def _seed(config_json: str) -> int:
    section = _json_object("config_json", config_json).get("run")
    seed = section.get("seed") if isinstance(section, dict) else None
    if not isinstance(seed, int):
        raise _malformed("config_json", "it has no run.seed")
    return seed


def _timestamp(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMicroseconds(round(seconds * 1e6))
    return stamp


def _seconds(field: str, stamp: Timestamp) -> float:
    first, last = _YEARS_1_TO_9999_S
    if not (first <= stamp.seconds <= last and 0 <= stamp.nanos < 10**9):
        raise _malformed(field, "it is no time in the years 1 to 9999")
    return stamp.ToMicroseconds() / 1e6


def _duration(seconds: float) -> Duration:
    span = Duration()
    span.FromNanoseconds(round(seconds * 1e9))
    return span
