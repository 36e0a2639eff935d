"""The JSON that the gateway speaks: one frozen model per document, made from the records of shared/types.py.

Whoever writes a client in Python can validate answers with these models. Times are RFC 3339 in UTC, sizes bytes, accuracies
fractions from 0 to 1, rounds whole numbers with 0 for the one that made the first model. Documents grow: a reader ignores
the keys that it does not know.
"""

from gateway.schemas.clients import Client, ClientEnvironment, ClientList, ClientProblem
from gateway.schemas.configurations import (
    ConfigurationCheck,
    MethodChoice,
    ModelChoice,
    ModelForm,
    RunConfigurationForm,
)
from gateway.schemas.document import Document
from gateway.schemas.evaluations import Evaluation, EvaluationCounts, EvaluationPage
from gateway.schemas.events import Event, EventPage
from gateway.schemas.health import Health, Readiness
from gateway.schemas.initial_models import InitialModel
from gateway.schemas.problems import FieldProblem, Problem, ProblemKind, ProblemKinds
from gateway.schemas.prototype_maps import MappedClient, MappedPrototype, PrototypeMap, RoundSpan
from gateway.schemas.requests import REQUEST_ID, PauseRequest, QuarantineRequest, StopRequest
from gateway.schemas.rounds import Blob, DroppedClient, PrototypeCounts, Round, RoundMetrics, RoundPage
from gateway.schemas.runs import QuarantinedClient, Rejections, Run, RunLinks, RunPage

__all__ = [
    "REQUEST_ID",
    "Blob",
    "Client",
    "ClientEnvironment",
    "ClientList",
    "ClientProblem",
    "ConfigurationCheck",
    "Document",
    "DroppedClient",
    "Evaluation",
    "EvaluationCounts",
    "EvaluationPage",
    "Event",
    "EventPage",
    "FieldProblem",
    "Health",
    "InitialModel",
    "MappedClient",
    "MappedPrototype",
    "MethodChoice",
    "ModelChoice",
    "ModelForm",
    "PauseRequest",
    "Problem",
    "ProblemKind",
    "ProblemKinds",
    "PrototypeCounts",
    "PrototypeMap",
    "QuarantineRequest",
    "QuarantinedClient",
    "Readiness",
    "Rejections",
    "Round",
    "RoundMetrics",
    "RoundPage",
    "RoundSpan",
    "Run",
    "RunConfigurationForm",
    "RunLinks",
    "RunPage",
    "StopRequest",
]
