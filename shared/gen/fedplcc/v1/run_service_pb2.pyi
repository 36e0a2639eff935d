import datetime

from fedplcc.shared.gen.fedplcc.v1 import types_pb2 as _types_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_ORDER_UNSPECIFIED: _ClassVar[RunOrder]
    RUN_ORDER_NEWEST: _ClassVar[RunOrder]
    RUN_ORDER_OLDEST: _ClassVar[RunOrder]
    RUN_ORDER_UPDATED: _ClassVar[RunOrder]
    RUN_ORDER_NAME: _ClassVar[RunOrder]
    RUN_ORDER_STATUS: _ClassVar[RunOrder]
    RUN_ORDER_METHOD: _ClassVar[RunOrder]
    RUN_ORDER_ROUNDS: _ClassVar[RunOrder]
    RUN_ORDER_MEAN: _ClassVar[RunOrder]
    RUN_ORDER_WORST: _ClassVar[RunOrder]
    RUN_ORDER_TOOK: _ClassVar[RunOrder]

class RunShow(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_SHOW_UNSPECIFIED: _ClassVar[RunShow]
    RUN_SHOW_CURRENT: _ClassVar[RunShow]
    RUN_SHOW_ARCHIVED: _ClassVar[RunShow]
    RUN_SHOW_DELETED: _ClassVar[RunShow]
    RUN_SHOW_ALL: _ClassVar[RunShow]

class ArtifactKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ARTIFACT_KIND_UNSPECIFIED: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_MODEL: _ClassVar[ArtifactKind]
    ARTIFACT_KIND_PROTOTYPES: _ClassVar[ArtifactKind]
RUN_ORDER_UNSPECIFIED: RunOrder
RUN_ORDER_NEWEST: RunOrder
RUN_ORDER_OLDEST: RunOrder
RUN_ORDER_UPDATED: RunOrder
RUN_ORDER_NAME: RunOrder
RUN_ORDER_STATUS: RunOrder
RUN_ORDER_METHOD: RunOrder
RUN_ORDER_ROUNDS: RunOrder
RUN_ORDER_MEAN: RunOrder
RUN_ORDER_WORST: RunOrder
RUN_ORDER_TOOK: RunOrder
RUN_SHOW_UNSPECIFIED: RunShow
RUN_SHOW_CURRENT: RunShow
RUN_SHOW_ARCHIVED: RunShow
RUN_SHOW_DELETED: RunShow
RUN_SHOW_ALL: RunShow
ARTIFACT_KIND_UNSPECIFIED: ArtifactKind
ARTIFACT_KIND_MODEL: ArtifactKind
ARTIFACT_KIND_PROTOTYPES: ArtifactKind

class CreateRunRequest(_message.Message):
    __slots__ = ("request_id", "config_json")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    config_json: str
    def __init__(self, request_id: _Optional[str] = ..., config_json: _Optional[str] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _types_pb2.Run
    def __init__(self, run: _Optional[_Union[_types_pb2.Run, _Mapping]] = ...) -> None: ...

class InitialModelHeader(_message.Message):
    __slots__ = ("blob", "name")
    BLOB_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    blob: _types_pb2.BlobRef
    name: str
    def __init__(self, blob: _Optional[_Union[_types_pb2.BlobRef, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class UploadInitialModelRequest(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: InitialModelHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[InitialModelHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadInitialModelResponse(_message.Message):
    __slots__ = ("is_stored",)
    IS_STORED_FIELD_NUMBER: _ClassVar[int]
    is_stored: bool
    def __init__(self, is_stored: bool = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _types_pb2.Run
    def __init__(self, run: _Optional[_Union[_types_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "wants_summaries", "statuses", "method", "name", "tags", "since_time", "order", "show", "is_reversed")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WANTS_SUMMARIES_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    SHOW_FIELD_NUMBER: _ClassVar[int]
    IS_REVERSED_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    wants_summaries: bool
    statuses: _containers.RepeatedScalarFieldContainer[_types_pb2.RunStatus]
    method: str
    name: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    since_time: _timestamp_pb2.Timestamp
    order: RunOrder
    show: RunShow
    is_reversed: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., wants_summaries: bool = ..., statuses: _Optional[_Iterable[_Union[_types_pb2.RunStatus, str]]] = ..., method: _Optional[str] = ..., name: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., order: _Optional[_Union[RunOrder, str]] = ..., show: _Optional[_Union[RunShow, str]] = ..., is_reversed: bool = ...) -> None: ...

class RunSummary(_message.Message):
    __slots__ = ("run_id", "name", "status", "method", "round", "total_rounds", "phase", "num_clients", "is_pause_requested", "reason", "create_time", "update_time", "config_hash", "tags", "is_archived", "is_deleted", "mean_accuracy", "worst_accuracy", "worst_domain", "score")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TOTAL_ROUNDS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLIENTS_FIELD_NUMBER: _ClassVar[int]
    IS_PAUSE_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    IS_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    MEAN_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    WORST_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    WORST_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    name: str
    status: _types_pb2.RunStatus
    method: str
    round: int
    total_rounds: int
    phase: _types_pb2.RoundPhase
    num_clients: int
    is_pause_requested: bool
    reason: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    config_hash: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    is_archived: bool
    is_deleted: bool
    mean_accuracy: float
    worst_accuracy: float
    worst_domain: str
    score: str
    def __init__(self, run_id: _Optional[str] = ..., name: _Optional[str] = ..., status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., method: _Optional[str] = ..., round: _Optional[int] = ..., total_rounds: _Optional[int] = ..., phase: _Optional[_Union[_types_pb2.RoundPhase, str]] = ..., num_clients: _Optional[int] = ..., is_pause_requested: bool = ..., reason: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., config_hash: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., is_archived: bool = ..., is_deleted: bool = ..., mean_accuracy: _Optional[float] = ..., worst_accuracy: _Optional[float] = ..., worst_domain: _Optional[str] = ..., score: _Optional[str] = ...) -> None: ...

class RunCount(_message.Message):
    __slots__ = ("status", "runs")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    status: _types_pb2.RunStatus
    runs: int
    def __init__(self, status: _Optional[_Union[_types_pb2.RunStatus, str]] = ..., runs: _Optional[int] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token", "summaries", "total", "totals")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SUMMARIES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Run]
    next_page_token: str
    summaries: _containers.RepeatedCompositeFieldContainer[RunSummary]
    total: int
    totals: _containers.RepeatedCompositeFieldContainer[RunCount]
    def __init__(self, runs: _Optional[_Iterable[_Union[_types_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., summaries: _Optional[_Iterable[_Union[RunSummary, _Mapping]]] = ..., total: _Optional[int] = ..., totals: _Optional[_Iterable[_Union[RunCount, _Mapping]]] = ...) -> None: ...

class ListRoundsRequest(_message.Message):
    __slots__ = ("run_id", "after_round", "page_size")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_ROUND_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_round: int
    page_size: int
    def __init__(self, run_id: _Optional[str] = ..., after_round: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListRoundsResponse(_message.Message):
    __slots__ = ("rounds", "has_more")
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    rounds: _containers.RepeatedCompositeFieldContainer[_types_pb2.Round]
    has_more: bool
    def __init__(self, rounds: _Optional[_Iterable[_Union[_types_pb2.Round, _Mapping]]] = ..., has_more: bool = ...) -> None: ...

class ListEvaluationsRequest(_message.Message):
    __slots__ = ("run_id", "round", "page_size", "page_token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    page_size: int
    page_token: str
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ClientEvaluation(_message.Message):
    __slots__ = ("round", "client_id", "domain", "counts")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    round: int
    client_id: str
    domain: str
    counts: _containers.RepeatedCompositeFieldContainer[_types_pb2.EvaluationCounts]
    def __init__(self, round: _Optional[int] = ..., client_id: _Optional[str] = ..., domain: _Optional[str] = ..., counts: _Optional[_Iterable[_Union[_types_pb2.EvaluationCounts, _Mapping]]] = ...) -> None: ...

class ListEvaluationsResponse(_message.Message):
    __slots__ = ("evaluations", "next_page_token")
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    evaluations: _containers.RepeatedCompositeFieldContainer[ClientEvaluation]
    next_page_token: str
    def __init__(self, evaluations: _Optional[_Iterable[_Union[ClientEvaluation, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SteerRunRequest(_message.Message):
    __slots__ = ("run_id", "request_id", "pause", "resume", "stop", "extend", "quarantine", "release", "admit", "retire", "advance")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    RETIRE_FIELD_NUMBER: _ClassVar[int]
    ADVANCE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    request_id: str
    pause: PauseRun
    resume: ResumeRun
    stop: StopRun
    extend: ExtendRun
    quarantine: QuarantineClient
    release: ReleaseClient
    admit: AdmitClient
    retire: RetireClient
    advance: AdvanceStage
    def __init__(self, run_id: _Optional[str] = ..., request_id: _Optional[str] = ..., pause: _Optional[_Union[PauseRun, _Mapping]] = ..., resume: _Optional[_Union[ResumeRun, _Mapping]] = ..., stop: _Optional[_Union[StopRun, _Mapping]] = ..., extend: _Optional[_Union[ExtendRun, _Mapping]] = ..., quarantine: _Optional[_Union[QuarantineClient, _Mapping]] = ..., release: _Optional[_Union[ReleaseClient, _Mapping]] = ..., admit: _Optional[_Union[AdmitClient, _Mapping]] = ..., retire: _Optional[_Union[RetireClient, _Mapping]] = ..., advance: _Optional[_Union[AdvanceStage, _Mapping]] = ...) -> None: ...

class SteerRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _types_pb2.Run
    def __init__(self, run: _Optional[_Union[_types_pb2.Run, _Mapping]] = ...) -> None: ...

class PauseRun(_message.Message):
    __slots__ = ("now",)
    NOW_FIELD_NUMBER: _ClassVar[int]
    now: bool
    def __init__(self, now: bool = ...) -> None: ...

class ResumeRun(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopRun(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ExtendRun(_message.Message):
    __slots__ = ("rounds",)
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    rounds: int
    def __init__(self, rounds: _Optional[int] = ...) -> None: ...

class QuarantineClient(_message.Message):
    __slots__ = ("client_id", "reason")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    reason: str
    def __init__(self, client_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ReleaseClient(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class AdmitClient(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class RetireClient(_message.Message):
    __slots__ = ("client_id", "forgets")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    FORGETS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    forgets: bool
    def __init__(self, client_id: _Optional[str] = ..., forgets: bool = ...) -> None: ...

class AdvanceStage(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunTags(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tags: _Optional[_Iterable[str]] = ...) -> None: ...

class UpdateRunRequest(_message.Message):
    __slots__ = ("run_id", "tags", "notes", "is_archived", "request_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    IS_ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    tags: RunTags
    notes: str
    is_archived: bool
    request_id: str
    def __init__(self, run_id: _Optional[str] = ..., tags: _Optional[_Union[RunTags, _Mapping]] = ..., notes: _Optional[str] = ..., is_archived: bool = ..., request_id: _Optional[str] = ...) -> None: ...

class UpdateRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _types_pb2.Run
    def __init__(self, run: _Optional[_Union[_types_pb2.Run, _Mapping]] = ...) -> None: ...

class DeleteRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class DeleteRunResponse(_message.Message):
    __slots__ = ("freed_bytes",)
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    freed_bytes: int
    def __init__(self, freed_bytes: _Optional[int] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "after_sequence", "follow", "page_size", "before_sequence", "newest_first", "types", "client_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_sequence: int
    follow: bool
    page_size: int
    before_sequence: int
    newest_first: bool
    types: _containers.RepeatedScalarFieldContainer[str]
    client_id: str
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., follow: bool = ..., page_size: _Optional[int] = ..., before_sequence: _Optional[int] = ..., newest_first: bool = ..., types: _Optional[_Iterable[str]] = ..., client_id: _Optional[str] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _types_pb2.Event
    def __init__(self, event: _Optional[_Union[_types_pb2.Event, _Mapping]] = ...) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "log")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    log: ClientLogQuery
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., log: _Optional[_Union[ClientLogQuery, _Mapping]] = ...) -> None: ...

class ClientLogQuery(_message.Message):
    __slots__ = ("client_id", "after", "level")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    after: int
    level: _types_pb2.LogLevel
    def __init__(self, client_id: _Optional[str] = ..., after: _Optional[int] = ..., level: _Optional[_Union[_types_pb2.LogLevel, str]] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("clients", "next_page_token", "log")
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[_types_pb2.Client]
    next_page_token: str
    log: ClientLog
    def __init__(self, clients: _Optional[_Iterable[_Union[_types_pb2.Client, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., log: _Optional[_Union[ClientLog, _Mapping]] = ...) -> None: ...

class ClientLog(_message.Message):
    __slots__ = ("level", "lines", "left_out")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    level: _types_pb2.LogLevel
    lines: _containers.RepeatedCompositeFieldContainer[KeptLogLine]
    left_out: int
    def __init__(self, level: _Optional[_Union[_types_pb2.LogLevel, str]] = ..., lines: _Optional[_Iterable[_Union[KeptLogLine, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class KeptLogLine(_message.Message):
    __slots__ = ("number", "line")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    number: int
    line: _types_pb2.LogLine
    def __init__(self, number: _Optional[int] = ..., line: _Optional[_Union[_types_pb2.LogLine, _Mapping]] = ...) -> None: ...

class ForgetClientRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class ForgetClientResponse(_message.Message):
    __slots__ = ("client",)
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    client: _types_pb2.Client
    def __init__(self, client: _Optional[_Union[_types_pb2.Client, _Mapping]] = ...) -> None: ...

class FetchArtifactRequest(_message.Message):
    __slots__ = ("run_id", "round", "kind", "offset_bytes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    kind: ArtifactKind
    offset_bytes: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ..., kind: _Optional[_Union[ArtifactKind, str]] = ..., offset_bytes: _Optional[int] = ...) -> None: ...

class FetchArtifactResponse(_message.Message):
    __slots__ = ("blob", "data")
    BLOB_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    blob: _types_pb2.BlobRef
    data: bytes
    def __init__(self, blob: _Optional[_Union[_types_pb2.BlobRef, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class GetPrototypeMapRequest(_message.Message):
    __slots__ = ("run_id", "round")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    round: int
    def __init__(self, run_id: _Optional[str] = ..., round: _Optional[int] = ...) -> None: ...

class MappedPrototype(_message.Message):
    __slots__ = ("x", "y", "class_id", "client", "weight", "share", "nearest")
    X_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    CLASS_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    NEAREST_FIELD_NUMBER: _ClassVar[int]
    x: float
    y: float
    class_id: int
    client: int
    weight: float
    share: float
    nearest: int
    def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ..., class_id: _Optional[int] = ..., client: _Optional[int] = ..., weight: _Optional[float] = ..., share: _Optional[float] = ..., nearest: _Optional[int] = ...) -> None: ...

class MappedClient(_message.Message):
    __slots__ = ("client_id", "domain", "is_kept")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    IS_KEPT_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    domain: str
    is_kept: bool
    def __init__(self, client_id: _Optional[str] = ..., domain: _Optional[str] = ..., is_kept: bool = ...) -> None: ...

class RoundSpan(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class GetPrototypeMapResponse(_message.Message):
    __slots__ = ("round", "prototypes", "clients", "comparison", "explained", "left_out_global", "left_out_local", "rounds", "aligned_from")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PROTOTYPES_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    EXPLAINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_GLOBAL_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_LOCAL_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    ALIGNED_FROM_FIELD_NUMBER: _ClassVar[int]
    round: int
    prototypes: _containers.RepeatedCompositeFieldContainer[MappedPrototype]
    clients: _containers.RepeatedCompositeFieldContainer[MappedClient]
    comparison: str
    explained: float
    left_out_global: int
    left_out_local: int
    rounds: _containers.RepeatedCompositeFieldContainer[RoundSpan]
    aligned_from: int
    def __init__(self, round: _Optional[int] = ..., prototypes: _Optional[_Iterable[_Union[MappedPrototype, _Mapping]]] = ..., clients: _Optional[_Iterable[_Union[MappedClient, _Mapping]]] = ..., comparison: _Optional[str] = ..., explained: _Optional[float] = ..., left_out_global: _Optional[int] = ..., left_out_local: _Optional[int] = ..., rounds: _Optional[_Iterable[_Union[RoundSpan, _Mapping]]] = ..., aligned_from: _Optional[int] = ...) -> None: ...
