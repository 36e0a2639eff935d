import datetime

from fedplcc.shared.gen.fedplcc.v1 import types_pb2 as _types_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JoinRequest(_message.Message):
    __slots__ = ("client_id", "domain", "instance_token", "num_examples", "class_counts", "environment", "version", "display_name", "model_kind", "smallest_side")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_KIND_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_SIDE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    domain: str
    instance_token: str
    num_examples: int
    class_counts: _containers.RepeatedCompositeFieldContainer[_types_pb2.ClassCount]
    environment: _types_pb2.Environment
    version: str
    display_name: str
    model_kind: str
    smallest_side: int
    def __init__(self, client_id: _Optional[str] = ..., domain: _Optional[str] = ..., instance_token: _Optional[str] = ..., num_examples: _Optional[int] = ..., class_counts: _Optional[_Iterable[_Union[_types_pb2.ClassCount, _Mapping]]] = ..., environment: _Optional[_Union[_types_pb2.Environment, _Mapping]] = ..., version: _Optional[str] = ..., display_name: _Optional[str] = ..., model_kind: _Optional[str] = ..., smallest_side: _Optional[int] = ...) -> None: ...

class TransferLimits(_message.Message):
    __slots__ = ("max_chunk_bytes", "max_blob_bytes", "max_inline_bytes")
    MAX_CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOB_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_INLINE_BYTES_FIELD_NUMBER: _ClassVar[int]
    max_chunk_bytes: int
    max_blob_bytes: int
    max_inline_bytes: int
    def __init__(self, max_chunk_bytes: _Optional[int] = ..., max_blob_bytes: _Optional[int] = ..., max_inline_bytes: _Optional[int] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("heartbeat_interval", "lease", "limits", "last_committed", "version", "open_runs", "audit_head", "forgotten_runs", "last_release")
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LAST_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    OPEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    AUDIT_HEAD_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_RUNS_FIELD_NUMBER: _ClassVar[int]
    LAST_RELEASE_FIELD_NUMBER: _ClassVar[int]
    heartbeat_interval: _duration_pb2.Duration
    lease: _duration_pb2.Duration
    limits: TransferLimits
    last_committed: CommittedUpdate
    version: str
    open_runs: _containers.RepeatedScalarFieldContainer[str]
    audit_head: AuditHead
    forgotten_runs: _containers.RepeatedCompositeFieldContainer[ForgottenRun]
    last_release: CommittedRelease
    def __init__(self, heartbeat_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Union[TransferLimits, _Mapping]] = ..., last_committed: _Optional[_Union[CommittedUpdate, _Mapping]] = ..., version: _Optional[str] = ..., open_runs: _Optional[_Iterable[str]] = ..., audit_head: _Optional[_Union[AuditHead, _Mapping]] = ..., forgotten_runs: _Optional[_Iterable[_Union[ForgottenRun, _Mapping]]] = ..., last_release: _Optional[_Union[CommittedRelease, _Mapping]] = ...) -> None: ...

class CommittedRelease(_message.Message):
    __slots__ = ("run_id", "config_hash", "round")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    config_hash: str
    round: int
    def __init__(self, run_id: _Optional[str] = ..., config_hash: _Optional[str] = ..., round: _Optional[int] = ...) -> None: ...

class ForgottenRun(_message.Message):
    __slots__ = ("run_id", "round")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ...) -> None: ...

class AuditHead(_message.Message):
    __slots__ = ("number", "hash")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    number: int
    hash: str
    def __init__(self, number: _Optional[int] = ..., hash: _Optional[str] = ...) -> None: ...

class CommittedUpdate(_message.Message):
    __slots__ = ("run_id", "round", "sha256s")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SHA256S_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    sha256s: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., sha256s: _Optional[_Iterable[str]] = ...) -> None: ...

class SyncRoundRequest(_message.Message):
    __slots__ = ("client_id", "instance_token", "poll", "inline_blobs")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POLL_FIELD_NUMBER: _ClassVar[int]
    INLINE_BLOBS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    instance_token: str
    poll: Poll
    inline_blobs: InlineBlobs
    def __init__(self, client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., poll: _Optional[_Union[Poll, _Mapping]] = ..., inline_blobs: _Optional[_Union[InlineBlobs, _Mapping]] = ...) -> None: ...

class InlineBlobs(_message.Message):
    __slots__ = ("max_bytes", "held_sha256s")
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    HELD_SHA256S_FIELD_NUMBER: _ClassVar[int]
    max_bytes: int
    held_sha256s: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, max_bytes: _Optional[int] = ..., held_sha256s: _Optional[_Iterable[str]] = ...) -> None: ...

class Poll(_message.Message):
    __slots__ = ("known", "hold")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    known: TaskKey
    hold: _duration_pb2.Duration
    def __init__(self, known: _Optional[_Union[TaskKey, _Mapping]] = ..., hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TaskKey(_message.Message):
    __slots__ = ("run_id", "round", "kind", "times_asked")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIMES_ASKED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    kind: _types_pb2.TaskKind
    times_asked: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., kind: _Optional[_Union[_types_pb2.TaskKind, str]] = ..., times_asked: _Optional[int] = ...) -> None: ...

class SyncRoundResponse(_message.Message):
    __slots__ = ("task", "end", "inline_blobs")
    TASK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    INLINE_BLOBS_FIELD_NUMBER: _ClassVar[int]
    task: _types_pb2.RoundTask
    end: StreamEnd
    inline_blobs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, task: _Optional[_Union[_types_pb2.RoundTask, _Mapping]] = ..., end: _Optional[_Union[StreamEnd, _Mapping]] = ..., inline_blobs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class StreamEnd(_message.Message):
    __slots__ = ("reason",)
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[StreamEnd.Reason]
        REASON_SUPERSEDED: _ClassVar[StreamEnd.Reason]
        REASON_SHUTTING_DOWN: _ClassVar[StreamEnd.Reason]
        REASON_LEASE_EXPIRED: _ClassVar[StreamEnd.Reason]
        REASON_POLL_ANSWERED: _ClassVar[StreamEnd.Reason]
    REASON_UNSPECIFIED: StreamEnd.Reason
    REASON_SUPERSEDED: StreamEnd.Reason
    REASON_SHUTTING_DOWN: StreamEnd.Reason
    REASON_LEASE_EXPIRED: StreamEnd.Reason
    REASON_POLL_ANSWERED: StreamEnd.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: StreamEnd.Reason
    def __init__(self, reason: _Optional[_Union[StreamEnd.Reason, str]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("client_id", "instance_token", "activity", "run_id", "round", "progress", "readings", "problem", "is_leaving", "log_level", "log_lines", "log_lines_left_out")
    class ReadingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    LOG_LEVEL_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_FIELD_NUMBER: _ClassVar[int]
    LOG_LINES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    instance_token: str
    activity: _types_pb2.ClientActivity
    run_id: str
    round: int
    progress: float
    readings: _containers.ScalarMap[str, float]
    problem: _types_pb2.ClientProblem
    is_leaving: bool
    log_level: _types_pb2.LogLevel
    log_lines: _containers.RepeatedCompositeFieldContainer[_types_pb2.LogLine]
    log_lines_left_out: int
    def __init__(self, client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., activity: _Optional[_Union[_types_pb2.ClientActivity, str]] = ..., run_id: _Optional[str] = ..., round: _Optional[int] = ..., progress: _Optional[float] = ..., readings: _Optional[_Mapping[str, float]] = ..., problem: _Optional[_Union[_types_pb2.ClientProblem, _Mapping]] = ..., is_leaving: bool = ..., log_level: _Optional[_Union[_types_pb2.LogLevel, str]] = ..., log_lines: _Optional[_Iterable[_Union[_types_pb2.LogLine, _Mapping]]] = ..., log_lines_left_out: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("directive",)
    class Directive(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DIRECTIVE_UNSPECIFIED: _ClassVar[HeartbeatResponse.Directive]
        DIRECTIVE_CONTINUE: _ClassVar[HeartbeatResponse.Directive]
        DIRECTIVE_STOP: _ClassVar[HeartbeatResponse.Directive]
    DIRECTIVE_UNSPECIFIED: HeartbeatResponse.Directive
    DIRECTIVE_CONTINUE: HeartbeatResponse.Directive
    DIRECTIVE_STOP: HeartbeatResponse.Directive
    DIRECTIVE_FIELD_NUMBER: _ClassVar[int]
    directive: HeartbeatResponse.Directive
    def __init__(self, directive: _Optional[_Union[HeartbeatResponse.Directive, str]] = ...) -> None: ...

class DownloadBlobRequest(_message.Message):
    __slots__ = ("client_id", "instance_token", "sha256", "offset_bytes")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    instance_token: str
    sha256: str
    offset_bytes: int
    def __init__(self, client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., sha256: _Optional[str] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class DownloadBlobResponse(_message.Message):
    __slots__ = ("chunk",)
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    chunk: Chunk
    def __init__(self, chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("offset_bytes", "data")
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    data: bytes
    def __init__(self, offset_bytes: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class BlobHeader(_message.Message):
    __slots__ = ("run_id", "round", "client_id", "instance_token", "blob")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    client_id: str
    instance_token: str
    blob: _types_pb2.BlobRef
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., blob: _Optional[_Union[_types_pb2.BlobRef, _Mapping]] = ...) -> None: ...

class GetUploadStatusRequest(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ...) -> None: ...

class GetUploadStatusResponse(_message.Message):
    __slots__ = ("offset_bytes", "is_complete")
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    is_complete: bool
    def __init__(self, offset_bytes: _Optional[int] = ..., is_complete: bool = ...) -> None: ...

class UploadModelRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    chunk: Chunk
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class UploadModelResponse(_message.Message):
    __slots__ = ("offset_bytes",)
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    def __init__(self, offset_bytes: _Optional[int] = ...) -> None: ...

class UploadPrototypesRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: BlobHeader
    chunk: Chunk
    def __init__(self, header: _Optional[_Union[BlobHeader, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ...) -> None: ...

class UploadPrototypesResponse(_message.Message):
    __slots__ = ("offset_bytes",)
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    offset_bytes: int
    def __init__(self, offset_bytes: _Optional[int] = ...) -> None: ...

class CommitUpdateRequest(_message.Message):
    __slots__ = ("run_id", "round", "client_id", "instance_token", "payload", "num_examples", "num_excluded", "class_counts", "losses", "timings", "inline_blobs")
    class LossesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    NUM_EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    INLINE_BLOBS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    client_id: str
    instance_token: str
    payload: _types_pb2.Payload
    num_examples: int
    num_excluded: int
    class_counts: _containers.RepeatedScalarFieldContainer[int]
    losses: _containers.ScalarMap[str, float]
    timings: _containers.ScalarMap[str, float]
    inline_blobs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., payload: _Optional[_Union[_types_pb2.Payload, _Mapping]] = ..., num_examples: _Optional[int] = ..., num_excluded: _Optional[int] = ..., class_counts: _Optional[_Iterable[int]] = ..., losses: _Optional[_Mapping[str, float]] = ..., timings: _Optional[_Mapping[str, float]] = ..., inline_blobs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommitUpdateResponse(_message.Message):
    __slots__ = ("committed",)
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    committed: CommittedUpdate
    def __init__(self, committed: _Optional[_Union[CommittedUpdate, _Mapping]] = ...) -> None: ...

class ReportEvaluationRequest(_message.Message):
    __slots__ = ("run_id", "round", "client_id", "instance_token", "counts", "timings")
    class TimingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    client_id: str
    instance_token: str
    counts: _containers.RepeatedCompositeFieldContainer[_types_pb2.EvaluationCounts]
    timings: _containers.ScalarMap[str, float]
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., client_id: _Optional[str] = ..., instance_token: _Optional[str] = ..., counts: _Optional[_Iterable[_Union[_types_pb2.EvaluationCounts, _Mapping]]] = ..., timings: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ReportEvaluationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
