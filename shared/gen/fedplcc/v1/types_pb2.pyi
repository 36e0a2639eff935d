import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATUS_UNSPECIFIED: _ClassVar[RunStatus]
    RUN_STATUS_PENDING: _ClassVar[RunStatus]
    RUN_STATUS_RUNNING: _ClassVar[RunStatus]
    RUN_STATUS_PAUSED: _ClassVar[RunStatus]
    RUN_STATUS_STOPPING: _ClassVar[RunStatus]
    RUN_STATUS_STOPPED: _ClassVar[RunStatus]
    RUN_STATUS_COMPLETED: _ClassVar[RunStatus]
    RUN_STATUS_FAILED: _ClassVar[RunStatus]

class RoundPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROUND_PHASE_UNSPECIFIED: _ClassVar[RoundPhase]
    ROUND_PHASE_INITIALISING: _ClassVar[RoundPhase]
    ROUND_PHASE_COLLECTING: _ClassVar[RoundPhase]
    ROUND_PHASE_AGGREGATING: _ClassVar[RoundPhase]
    ROUND_PHASE_EVALUATING: _ClassVar[RoundPhase]
    ROUND_PHASE_COMMITTED: _ClassVar[RoundPhase]

class TaskKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_KIND_UNSPECIFIED: _ClassVar[TaskKind]
    TASK_KIND_INIT: _ClassVar[TaskKind]
    TASK_KIND_TRAIN: _ClassVar[TaskKind]
    TASK_KIND_EVALUATE: _ClassVar[TaskKind]
    TASK_KIND_WAIT: _ClassVar[TaskKind]
    TASK_KIND_STOP: _ClassVar[TaskKind]

class ClientActivity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLIENT_ACTIVITY_UNSPECIFIED: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_IDLE: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_DOWNLOADING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_INITIALISING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_TRAINING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_SUMMARISING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_UPLOADING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_EVALUATING: _ClassVar[ClientActivity]
    CLIENT_ACTIVITY_EXTRACTING: _ClassVar[ClientActivity]

class LogLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_LEVEL_UNSPECIFIED: _ClassVar[LogLevel]
    LOG_LEVEL_NONE: _ClassVar[LogLevel]
    LOG_LEVEL_ERROR: _ClassVar[LogLevel]
    LOG_LEVEL_WARNING: _ClassVar[LogLevel]
    LOG_LEVEL_INFO: _ClassVar[LogLevel]
RUN_STATUS_UNSPECIFIED: RunStatus
RUN_STATUS_PENDING: RunStatus
RUN_STATUS_RUNNING: RunStatus
RUN_STATUS_PAUSED: RunStatus
RUN_STATUS_STOPPING: RunStatus
RUN_STATUS_STOPPED: RunStatus
RUN_STATUS_COMPLETED: RunStatus
RUN_STATUS_FAILED: RunStatus
ROUND_PHASE_UNSPECIFIED: RoundPhase
ROUND_PHASE_INITIALISING: RoundPhase
ROUND_PHASE_COLLECTING: RoundPhase
ROUND_PHASE_AGGREGATING: RoundPhase
ROUND_PHASE_EVALUATING: RoundPhase
ROUND_PHASE_COMMITTED: RoundPhase
TASK_KIND_UNSPECIFIED: TaskKind
TASK_KIND_INIT: TaskKind
TASK_KIND_TRAIN: TaskKind
TASK_KIND_EVALUATE: TaskKind
TASK_KIND_WAIT: TaskKind
TASK_KIND_STOP: TaskKind
CLIENT_ACTIVITY_UNSPECIFIED: ClientActivity
CLIENT_ACTIVITY_IDLE: ClientActivity
CLIENT_ACTIVITY_DOWNLOADING: ClientActivity
CLIENT_ACTIVITY_INITIALISING: ClientActivity
CLIENT_ACTIVITY_TRAINING: ClientActivity
CLIENT_ACTIVITY_SUMMARISING: ClientActivity
CLIENT_ACTIVITY_UPLOADING: ClientActivity
CLIENT_ACTIVITY_EVALUATING: ClientActivity
CLIENT_ACTIVITY_EXTRACTING: ClientActivity
LOG_LEVEL_UNSPECIFIED: LogLevel
LOG_LEVEL_NONE: LogLevel
LOG_LEVEL_ERROR: LogLevel
LOG_LEVEL_WARNING: LogLevel
LOG_LEVEL_INFO: LogLevel

class LogLine(_message.Message):
    __slots__ = ("time", "level", "event", "run_id", "round", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TIME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    level: LogLevel
    event: str
    run_id: str
    round: int
    facts: _containers.ScalarMap[str, str]
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., level: _Optional[_Union[LogLevel, str]] = ..., event: _Optional[str] = ..., run_id: _Optional[str] = ..., round: _Optional[int] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class BlobRef(_message.Message):
    __slots__ = ("role", "sha256", "size_bytes")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    role: str
    sha256: str
    size_bytes: int
    def __init__(self, role: _Optional[str] = ..., sha256: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class IntList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("tensor_groups", "prototype_sets", "scalars", "int_lists", "metadata", "encoded")
    class ScalarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class IntListsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: IntList
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[IntList, _Mapping]] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TENSOR_GROUPS_FIELD_NUMBER: _ClassVar[int]
    PROTOTYPE_SETS_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    INT_LISTS_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    tensor_groups: _containers.RepeatedCompositeFieldContainer[BlobRef]
    prototype_sets: _containers.RepeatedCompositeFieldContainer[BlobRef]
    scalars: _containers.ScalarMap[str, float]
    int_lists: _containers.MessageMap[str, IntList]
    metadata: _containers.ScalarMap[str, str]
    encoded: BlobRef
    def __init__(self, tensor_groups: _Optional[_Iterable[_Union[BlobRef, _Mapping]]] = ..., prototype_sets: _Optional[_Iterable[_Union[BlobRef, _Mapping]]] = ..., scalars: _Optional[_Mapping[str, float]] = ..., int_lists: _Optional[_Mapping[str, IntList]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., encoded: _Optional[_Union[BlobRef, _Mapping]] = ...) -> None: ...

class RunSpec(_message.Message):
    __slots__ = ("run_id", "config_json", "config_hash", "started_by")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    STARTED_BY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    config_json: str
    config_hash: str
    started_by: str
    def __init__(self, run_id: _Optional[str] = ..., config_json: _Optional[str] = ..., config_hash: _Optional[str] = ..., started_by: _Optional[str] = ...) -> None: ...

class RoundTask(_message.Message):
    __slots__ = ("kind", "run", "round", "total_rounds", "payload", "detail", "missing_sha256s", "times_asked")
    KIND_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    MISSING_SHA256S_FIELD_NUMBER: _ClassVar[int]
    TIMES_ASKED_FIELD_NUMBER: _ClassVar[int]
    kind: TaskKind
    run: RunSpec
    round: int
    total_rounds: int
    payload: Payload
    detail: str
    missing_sha256s: _containers.RepeatedScalarFieldContainer[str]
    times_asked: int
    def __init__(self, kind: _Optional[_Union[TaskKind, str]] = ..., run: _Optional[_Union[RunSpec, _Mapping]] = ..., round: _Optional[int] = ..., total_rounds: _Optional[int] = ..., payload: _Optional[_Union[Payload, _Mapping]] = ..., detail: _Optional[str] = ..., missing_sha256s: _Optional[_Iterable[str]] = ..., times_asked: _Optional[int] = ...) -> None: ...

class ClassCount(_message.Message):
    __slots__ = ("class_name", "num_examples")
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    num_examples: int
    def __init__(self, class_name: _Optional[str] = ..., num_examples: _Optional[int] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("packages", "cpu", "device", "platform")
    class PackagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    packages: _containers.ScalarMap[str, str]
    cpu: str
    device: str
    platform: str
    def __init__(self, packages: _Optional[_Mapping[str, str]] = ..., cpu: _Optional[str] = ..., device: _Optional[str] = ..., platform: _Optional[str] = ...) -> None: ...

class ClientProblem(_message.Message):
    __slots__ = ("reason", "detail", "hint", "is_fatal")
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    IS_FATAL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    detail: str
    hint: str
    is_fatal: bool
    def __init__(self, reason: _Optional[str] = ..., detail: _Optional[str] = ..., hint: _Optional[str] = ..., is_fatal: bool = ...) -> None: ...

class ScoreHistograms(_message.Message):
    __slots__ = ("of_class", "of_others", "confidence", "confidence_correct")
    OF_CLASS_FIELD_NUMBER: _ClassVar[int]
    OF_OTHERS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_CORRECT_FIELD_NUMBER: _ClassVar[int]
    of_class: _containers.RepeatedScalarFieldContainer[int]
    of_others: _containers.RepeatedScalarFieldContainer[int]
    confidence: _containers.RepeatedScalarFieldContainer[int]
    confidence_correct: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, of_class: _Optional[_Iterable[int]] = ..., of_others: _Optional[_Iterable[int]] = ..., confidence: _Optional[_Iterable[int]] = ..., confidence_correct: _Optional[_Iterable[int]] = ...) -> None: ...

class EvaluationCounts(_message.Message):
    __slots__ = ("set_name", "model", "correct", "total", "confusion", "histograms")
    SET_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CORRECT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    CONFUSION_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAMS_FIELD_NUMBER: _ClassVar[int]
    set_name: str
    model: str
    correct: _containers.RepeatedScalarFieldContainer[int]
    total: _containers.RepeatedScalarFieldContainer[int]
    confusion: _containers.RepeatedScalarFieldContainer[int]
    histograms: ScoreHistograms
    def __init__(self, set_name: _Optional[str] = ..., model: _Optional[str] = ..., correct: _Optional[_Iterable[int]] = ..., total: _Optional[_Iterable[int]] = ..., confusion: _Optional[_Iterable[int]] = ..., histograms: _Optional[_Union[ScoreHistograms, _Mapping]] = ...) -> None: ...

class Client(_message.Message):
    __slots__ = ("client_id", "domain", "is_connected", "activity", "run_id", "round", "progress", "num_examples", "class_counts", "environment", "last_seen_time", "problem", "readings", "held_bytes", "display_name", "model_kind", "is_revoked", "smallest_side")
    class ReadingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    NUM_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_TIME_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    READINGS_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_KIND_FIELD_NUMBER: _ClassVar[int]
    IS_REVOKED_FIELD_NUMBER: _ClassVar[int]
    SMALLEST_SIDE_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    domain: str
    is_connected: bool
    activity: ClientActivity
    run_id: str
    round: int
    progress: float
    num_examples: int
    class_counts: _containers.RepeatedCompositeFieldContainer[ClassCount]
    environment: Environment
    last_seen_time: _timestamp_pb2.Timestamp
    problem: ClientProblem
    readings: _containers.ScalarMap[str, float]
    held_bytes: int
    display_name: str
    model_kind: str
    is_revoked: bool
    smallest_side: int
    def __init__(self, client_id: _Optional[str] = ..., domain: _Optional[str] = ..., is_connected: bool = ..., activity: _Optional[_Union[ClientActivity, str]] = ..., run_id: _Optional[str] = ..., round: _Optional[int] = ..., progress: _Optional[float] = ..., num_examples: _Optional[int] = ..., class_counts: _Optional[_Iterable[_Union[ClassCount, _Mapping]]] = ..., environment: _Optional[_Union[Environment, _Mapping]] = ..., last_seen_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., problem: _Optional[_Union[ClientProblem, _Mapping]] = ..., readings: _Optional[_Mapping[str, float]] = ..., held_bytes: _Optional[int] = ..., display_name: _Optional[str] = ..., model_kind: _Optional[str] = ..., is_revoked: bool = ..., smallest_side: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "name", "status", "method", "config_json", "config_hash", "total_rounds", "round", "phase", "roster", "cohort", "done_clients", "is_pause_requested", "reason", "create_time", "update_time", "manifest_json", "rejections", "quarantined", "best_round", "tags", "notes", "is_archived", "warnings", "server_state_bytes", "retired")
    class ServerStateBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    DONE_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSE_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_JSON_FIELD_NUMBER: _ClassVar[int]
    REJECTIONS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    BEST_ROUND_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    IS_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    SERVER_STATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    name: str
    status: RunStatus
    method: str
    config_json: str
    config_hash: str
    total_rounds: int
    round: int
    phase: RoundPhase
    roster: _containers.RepeatedScalarFieldContainer[str]
    cohort: _containers.RepeatedScalarFieldContainer[str]
    done_clients: _containers.RepeatedScalarFieldContainer[str]
    is_pause_requested: bool
    reason: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    manifest_json: str
    rejections: _containers.RepeatedCompositeFieldContainer[Rejections]
    quarantined: _containers.RepeatedCompositeFieldContainer[QuarantinedClient]
    best_round: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    notes: str
    is_archived: bool
    warnings: _containers.RepeatedCompositeFieldContainer[RunWarning]
    server_state_bytes: _containers.ScalarMap[str, int]
    retired: _containers.RepeatedCompositeFieldContainer[RetiredClient]
    def __init__(self, run_id: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[_Union[RunStatus, str]] = ..., method: _Optional[str] = ..., config_json: _Optional[str] = ..., config_hash: _Optional[str] = ..., total_rounds: _Optional[int] = ..., round: _Optional[int] = ..., phase: _Optional[_Union[RoundPhase, str]] = ..., roster: _Optional[_Iterable[str]] = ..., cohort: _Optional[_Iterable[str]] = ..., done_clients: _Optional[_Iterable[str]] = ..., is_pause_requested: bool = ..., reason: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., manifest_json: _Optional[str] = ..., rejections: _Optional[_Iterable[_Union[Rejections, _Mapping]]] = ..., quarantined: _Optional[_Iterable[_Union[QuarantinedClient, _Mapping]]] = ..., best_round: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., notes: _Optional[str] = ..., is_archived: bool = ..., warnings: _Optional[_Iterable[_Union[RunWarning, _Mapping]]] = ..., server_state_bytes: _Optional[_Mapping[str, int]] = ..., retired: _Optional[_Iterable[_Union[RetiredClient, _Mapping]]] = ...) -> None: ...

class RunWarning(_message.Message):
    __slots__ = ("kind", "round", "sentence", "keys")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    round: int
    sentence: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, kind: _Optional[str] = ..., round: _Optional[int] = ..., sentence: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...

class Rejections(_message.Message):
    __slots__ = ("client_id", "count", "reason", "check", "detail", "round", "last_time")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAST_TIME_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    count: int
    reason: str
    check: str
    detail: str
    round: int
    last_time: _timestamp_pb2.Timestamp
    def __init__(self, client_id: _Optional[str] = ..., count: _Optional[int] = ..., reason: _Optional[str] = ..., check: _Optional[str] = ..., detail: _Optional[str] = ..., round: _Optional[int] = ..., last_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class QuarantinedClient(_message.Message):
    __slots__ = ("client_id", "reason")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    reason: str
    def __init__(self, client_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RetiredClient(_message.Message):
    __slots__ = ("client_id", "round", "is_forgotten")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    IS_FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    round: int
    is_forgotten: bool
    def __init__(self, client_id: _Optional[str] = ..., round: _Optional[int] = ..., is_forgotten: bool = ...) -> None: ...

class DroppedClient(_message.Message):
    __slots__ = ("client_id", "reason", "detail")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    reason: str
    detail: str
    def __init__(self, client_id: _Optional[str] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("round", "phase", "cohort", "model", "prototypes", "metrics_json", "timings_json", "dropped")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROTOTYPES_FIELD_NUMBER: _ClassVar[int]
    METRICS_JSON_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_JSON_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    round: int
    phase: RoundPhase
    cohort: _containers.RepeatedScalarFieldContainer[str]
    model: BlobRef
    prototypes: BlobRef
    metrics_json: str
    timings_json: str
    dropped: _containers.RepeatedCompositeFieldContainer[DroppedClient]
    def __init__(self, round: _Optional[int] = ..., phase: _Optional[_Union[RoundPhase, str]] = ..., cohort: _Optional[_Iterable[str]] = ..., model: _Optional[_Union[BlobRef, _Mapping]] = ..., prototypes: _Optional[_Union[BlobRef, _Mapping]] = ..., metrics_json: _Optional[str] = ..., timings_json: _Optional[str] = ..., dropped: _Optional[_Iterable[_Union[DroppedClient, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "time", "type", "run_id", "round", "client_id", "data_json")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    type: str
    run_id: str
    round: int
    client_id: str
    data_json: str
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., type: _Optional[str] = ..., run_id: _Optional[str] = ..., round: _Optional[int] = ..., client_id: _Optional[str] = ..., data_json: _Optional[str] = ...) -> None: ...
