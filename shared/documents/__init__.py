"""The JSON documents of the REST interface: a frozen model for each, made from the records of shared/types.

Clients in Python can validate answers with these models. Times are RFC 3339 in UTC, sizes are bytes, accuracies are
fractions from 0 to 1, rounds are whole numbers; round 0 makes the first model. Documents may get more keys; readers ignore
unknown keys.
"""

from fedplcc.shared.documents.audit import AuditEntry, AuditPage
from fedplcc.shared.documents.callers import (
    Caller,
    ConsoleSessionRequest,
    SignOnOffer,
    SignOnPoll,
    SignOnPollRequest,
    TerminalSignOn,
)
from fedplcc.shared.documents.clients import (
    Client,
    ClientEnvironment,
    ClientLog,
    ClientLogLine,
    ClientPage,
    ClientProblem,
)
from fedplcc.shared.documents.configurations import (
    ConfigurationCheck,
    MethodChoice,
    ModelChoice,
    ModelForm,
    RecipeChoice,
    RunConfigurationForm,
)
from fedplcc.shared.documents.document import Document
from fedplcc.shared.documents.evaluations import Evaluation, EvaluationCounts, EvaluationPage
from fedplcc.shared.documents.events import Event, EventPage
from fedplcc.shared.documents.health import Health, Readiness
from fedplcc.shared.documents.initial_models import InitialModel
from fedplcc.shared.documents.messages import MessageReceiver, MessageReceivers, MessageTest
from fedplcc.shared.documents.problems import FieldProblem, Problem, ProblemKind, ProblemKinds
from fedplcc.shared.documents.prototype_maps import MappedClient, MappedPrototype, PrototypeMap, RoundSpan
from fedplcc.shared.documents.requests import (
    REQUEST_ID,
    ExtendRequest,
    PauseRequest,
    QuarantineRequest,
    RunChange,
    StopRequest,
)
from fedplcc.shared.documents.rounds import Blob, DroppedClient, PrototypeCounts, Round, RoundMetrics, RoundPage
from fedplcc.shared.documents.runs import (
    DeletedRun,
    QuarantinedClient,
    Rejections,
    RoundBytes,
    Run,
    RunLinks,
    RunPage,
    RunSummary,
    RunTotals,
)
