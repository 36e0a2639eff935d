"""A trainer's answers to a container's health check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fedplcc.shared.errors import InvalidConfig
from fedplcc.trainer.health import HealthServer, serve_health


class Trainer:
    is_well = False


@pytest.fixture
def trainer() -> Trainer:
    return Trainer()


@pytest.fixture
def served(trainer: Trainer) -> Iterator[HealthServer]:
    server = serve_health(lambda: trainer.is_well, port=0)
    yield server
    server.close()


def check(served: HealthServer, service: str = "", method: str = "Check") -> Any:
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = getattr(stub, method)(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return next(answer) if method == "Watch" else answer.status


@pytest.mark.parametrize("service", ["", "fedplcc.trainer"])
def test_the_answer_is_that_of_the_moment_it_is_asked_for(served: HealthServer, trainer: Trainer, service: str) -> None:
    assert check(served, service) == health_pb2.HealthCheckResponse.NOT_SERVING
    trainer.is_well = True
    assert check(served, service) == health_pb2.HealthCheckResponse.SERVING
    trainer.is_well = False
    assert check(served, service) == health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.mark.parametrize(
    ("service", "method", "code"),
    [("fedplcc.v1.RoundService", "Check", grpc.StatusCode.NOT_FOUND), ("", "Watch", grpc.StatusCode.UNIMPLEMENTED)],
)
def test_what_a_trainer_does_not_have_is_refused_by_name(
    served: HealthServer, service: str, method: str, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        check(served, service, method)
    assert refused.value.code() is code


def test_a_taken_port_is_told_with_the_flag_that_changes_it(served: HealthServer) -> None:
    with pytest.raises(InvalidConfig, match=rf"127\.0\.0\.1:{served.port}.*--health-port"):
        serve_health(lambda: True, served.port)
