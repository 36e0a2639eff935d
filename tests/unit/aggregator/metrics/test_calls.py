"""gRPC calls under go-grpc-prometheus' names: every method and code that is known is there before the first call."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.calls import CallMetrics, codes_of
from fedplcc.shared import errors
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2
from tests.support import ROOT

SERVICES = {
    service.full_name: (service, path)
    for service, path in (
        (round_service_pb2.DESCRIPTOR.services_by_name["RoundService"], "round_service.proto"),
        (run_service_pb2.DESCRIPTOR.services_by_name["RunService"], "run_service.proto"),
    )
}
METHODS = [(name, method.name) for name, (service, _) in SERVICES.items() for method in service.methods]
JOIN = "/fedplcc.v1.RoundService/Join"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def calls(registry: CollectorRegistry) -> CallMetrics:
    return AggregatorMetrics(registry).calls


def value(
    registry: CollectorRegistry, name: str, method: str = JOIN, kind: str = "unary", **labels: str
) -> float | None:
    service, _, last = method.strip("/").partition("/")
    names = {"grpc_type": kind, "grpc_service": service, "grpc_method": last, **labels}
    return registry.get_sample_value(f"grpc_server_{name}", names)


def reasons_of(service: str, method: str) -> set[str]:
    """The reasons that the comments of a service and of its method name, but for those that an argument is named after."""
    text = (ROOT / "protos" / "fedplcc" / "v1" / SERVICES[service][1]).read_text()
    of_service = re.search(r"((?:^//.*\n)+)service ", text, re.MULTILINE)
    of_method = re.search(rf"((?:^  //.*\n)+)  rpc {method}\(", text, re.MULTILINE)
    assert of_service is not None
    assert of_method is not None
    return set(re.findall(r"[A-Z_]{5,}", of_service[1] + of_method[1])) & errors.BY_REASON.keys()


@pytest.mark.parametrize(("service", "method"), METHODS)
def test_the_codes_that_a_methods_comment_names_are_there_from_the_start(service: str, method: str) -> None:
    named = {errors.BY_REASON[reason].code.name for reason in reasons_of(service, method)}
    assert named
    assert named <= set(codes_of(service, method))
    assert {"OK", "CANCELLED"} < set(codes_of(service, method))


def test_a_method_that_is_served_has_its_series_before_the_first_call(
    registry: CollectorRegistry, calls: CallMetrics
) -> None:
    assert value(registry, "started_total") is None
    calls.serves(JOIN, "unary")
    for name in ("started_total", "msg_received_total", "msg_sent_total", "handling_seconds_count"):
        assert value(registry, name) == 0
    assert value(registry, "handled_total", grpc_code="ALREADY_EXISTS") == 0
    assert value(registry, "handling_seconds_bucket", le="1.0") == 0, "the limit for a heartbeat"


def test_a_call_is_counted_with_its_messages_its_code_and_its_seconds(
    registry: CollectorRegistry, calls: CallMetrics
) -> None:
    upload = "/fedplcc.v1.RoundService/UploadModel"
    calls.serves(JOIN, "unary")
    calls.serves(upload, "client_stream")
    calls.call_started(upload)
    for _ in range(3):
        calls.received_message(upload)
    assert value(registry, "started_total", upload, "client_stream") == 1
    assert value(registry, "handled_total", upload, "client_stream", grpc_code="OK") == 0
    calls.sent_message(upload)
    calls.ended(upload, "OK", 0.25)
    calls.call_started(upload)
    calls.ended(upload, "UNKNOWN", 4.0)
    assert value(registry, "msg_received_total", upload, "client_stream") == 3
    assert value(registry, "msg_sent_total", upload, "client_stream") == 1
    assert value(registry, "handled_total", upload, "client_stream", grpc_code="OK") == 1
    assert value(registry, "handled_total", upload, "client_stream", grpc_code="UNKNOWN") == 1, "though nobody knew it"
    assert value(registry, "handling_seconds_sum", upload, "client_stream") == 4.25
    assert value(registry, "started_total") == 0
