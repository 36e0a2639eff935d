"""Metrics of gRPC calls, named as in go-grpc-prometheus, so that dashboards made for it work here too.

Every method has series from the start for the codes that its comment in protos/ names. Codes are written as in gRPC's
specification ("NOT_FOUND").
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from prometheus_client import Counter, Histogram

from fedplcc.aggregator.metrics.families import Families
from fedplcc.shared.codes import Code
from fedplcc.shared.wire.call_observer import CallObserver

SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 10)
"""Histogram buckets of a call's duration; few, since every method has them. A heartbeat may take one second."""

_ANY = (Code.INVALID_ARGUMENT, Code.UNAVAILABLE, Code.INTERNAL)
_OF_SERVICE: Mapping[str, tuple[Code, ...]] = MappingProxyType(
    {
        "fedplcc.v1.RoundService": (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.ALREADY_EXISTS),
        "fedplcc.v1.RunService": (Code.NOT_FOUND,),
    }
)
_UPLOAD = (Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED)
_STEERING = (Code.FAILED_PRECONDITION, Code.ALREADY_EXISTS)
_OF_METHOD: Mapping[str, tuple[Code, ...]] = MappingProxyType(
    {
        "SyncRound": (Code.DEADLINE_EXCEEDED,),
        "DownloadBlob": (Code.NOT_FOUND, Code.DEADLINE_EXCEEDED, Code.DATA_LOSS),
        "GetUploadStatus": (Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED),
        "UploadModel": _UPLOAD,
        "UploadPrototypes": _UPLOAD,
        "CommitUpdate": (Code.NOT_FOUND, Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED, Code.DATA_LOSS),
        "ReportEvaluation": (Code.NOT_FOUND, Code.FAILED_PRECONDITION),
        "CreateRun": (Code.ALREADY_EXISTS,),
        "UploadInitialModel": (Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED),
        "SteerRun": (*_STEERING, Code.RESOURCE_EXHAUSTED),
        "UpdateRun": _STEERING,
        "DeleteRun": (Code.FAILED_PRECONDITION, Code.RESOURCE_EXHAUSTED),
        "ForgetClient": (Code.FAILED_PRECONDITION,),
        "WatchRun": (Code.DEADLINE_EXCEEDED,),
        "FetchArtifact": (Code.DATA_LOSS, Code.DEADLINE_EXCEEDED),
        "GetPrototypeMap": (Code.RESOURCE_EXHAUSTED, Code.DATA_LOSS),
    }
)


def codes_of(service: str, method: str) -> tuple[str, ...]:
    """Return the names of the codes with which a method may end."""
    refusals = {*_ANY, *_OF_SERVICE.get(service, ()), *_OF_METHOD.get(method, ())}
    return ("OK", "CANCELLED", *(code.name for code in sorted(refusals)))


class _Method:
    """Series of one method, looked up once, so that a call needs no search for labels."""

    def __init__(self, calls: CallMetrics, kind: str, service: str, method: str) -> None:
        labels = (kind, service, method)
        self.started, self.seconds = calls.started.labels(*labels), calls.seconds.labels(*labels)
        self.received, self.sent = calls.received.labels(*labels), calls.sent.labels(*labels)
        self._handled, self._labels = calls.handled, labels
        self._by_code: dict[str, Counter] = {code: self._of(code) for code in codes_of(service, method)}

    def ended(self, code: str, seconds: float) -> None:
        if code not in self._by_code:
            self._by_code[code] = self._of(code)
        self._by_code[code].inc()
        self.seconds.observe(seconds)

    def _of(self, code: str) -> Counter:
        return self._handled.labels(*self._labels, code)


class CallMetrics(CallObserver):
    """Metrics of the calls to the served services."""

    def __init__(self, families: Families) -> None:
        labels, registry = ("grpc_type", "grpc_service", "grpc_method"), families.registry
        self.started = Counter("grpc_server_started_total", "RPCs started.", labels, registry=registry)
        self.handled = Counter(
            "grpc_server_handled_total", "RPCs completed, by status code.", (*labels, "grpc_code"), registry=registry
        )
        self.seconds = Histogram(
            "grpc_server_handling_seconds", "Duration of RPCs.", labels, registry=registry, buckets=SECONDS
        )
        self.received = Counter(
            "grpc_server_msg_received_total", "Messages received, of a stream each.", labels, registry=registry
        )
        self.sent = Counter("grpc_server_msg_sent_total", "Messages sent, of a stream each.", labels, registry=registry)
        self._methods: dict[str, _Method] = {}

    def serves(self, method: str, kind: str) -> None:
        """Create the series of a method."""
        service, _, name = method.lstrip("/").partition("/")
        self._methods[method] = _Method(self, kind, service, name)

    def call_started(self, method: str) -> None:
        """Count a started call."""
        self._methods[method].started.inc()

    def received_message(self, method: str) -> None:
        """Count a received message."""
        self._methods[method].received.inc()

    def sent_message(self, method: str) -> None:
        """Count a sent message."""
        self._methods[method].sent.inc()

    def ended(self, method: str, code: str, seconds: float) -> None:
        """Record the code and the duration of an ended call."""
        self._methods[method].ended(code, seconds)
