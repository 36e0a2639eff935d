"""Frozen records of the domain: runs, rounds, updates, clients, tasks and events.

Values only: no clock, no I/O. Counts are integers, sizes bytes, times seconds since the epoch (UTC).
"""

from __future__ import annotations

from fedplcc.shared.types.clients import (
    AuditHead,
    Client,
    ClientActivity,
    ClientLog,
    ClientProblem,
    CommittedRelease,
    CommittedUpdate,
    Environment,
    ForgottenRun,
    Heartbeat,
    LogLevel,
    LogLine,
    Membership,
)
from fedplcc.shared.types.evaluations import (
    ALONE_MODEL,
    BALANCED_SET,
    GLOBAL_MODEL,
    HISTOGRAM_SETS,
    LOCAL_MODEL,
    POOLED_MODEL,
    TEST_SET,
    VALIDATION_SET,
    Evaluation,
    EvaluationCounts,
    Reliability,
    ScoreHistograms,
    attacked_set,
    own_set,
    stage_set,
)
from fedplcc.shared.types.events import (
    Event,
    EventQuery,
)
from fedplcc.shared.types.payloads import (
    BATCH_NORM,
    CLASS_MEAN,
    ENCODED,
    FEATURE_DIM,
    GLOBAL_CLUSTER,
    HEAD,
    LOCAL_CLUSTER,
    MODEL,
    PARAMETERS,
    PUBLIC_DATA,
    STAGE_DATA,
    START,
    STREAM_PLACE,
    TENSOR_LISTS,
    BlobRef,
    Comparison,
    FloatArray,
    IntArray,
    Payload,
    PrototypeSet,
)
from fedplcc.shared.types.runs import (
    BEST,
    LAST,
    AskedAgain,
    PrototypeCounts,
    Rejections,
    Retired,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
    result_blobs,
    state_blobs,
)
from fedplcc.shared.types.tasks import (
    Poll,
    RunSpec,
    TakenInline,
    Task,
    TaskKey,
    TaskKind,
)
