"""Health service of a trainer (grpc.health.v1), on loopback only: only the trainer's own container asks for it.

Every answer is computed when it is asked for. Only `Check` is served; `Watch` is answered with UNIMPLEMENTED, as the
protocol allows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.wire.addresses import join_address
from fedplcc.shared.wire.channels import SERVER_OPTIONS

HOST = "127.0.0.1"
SERVICES = ("", "fedplcc.trainer")
"""Service names that may be asked for: the process or the trainer, which are the same here."""
MAX_CALLS = 8
"""Calls that may wait at the same time; more are refused."""
GRACE_S = 1.0
"""Time that answers in progress have when the trainer ends."""

_Status = health_pb2.HealthCheckResponse


@dataclass(frozen=True, slots=True)
class HealthServer:
    """A health service that is running."""

    server: grpc.Server
    port: int

    def close(self) -> None:
        """Stop serving."""
        self.server.stop(GRACE_S).wait()


def serve_health(is_well: Callable[[], bool], port: int) -> HealthServer:
    """Serve grpc.health.v1 from a thread: SERVING while `is_well()` holds. Port 0 stands for any free port.

    Raises:
        InvalidConfig: The port is taken.
    """

    def check(request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in SERVICES:
            context.abort(grpc.StatusCode.NOT_FOUND, f"a trainer has no service {request.service[:100]!r}")
        return _Status(status=_Status.SERVING if is_well() else _Status.NOT_SERVING)

    handler = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=health_pb2.HealthCheckRequest.FromString,
        response_serializer=_Status.SerializeToString,
    )
    server = grpc.server(
        ThreadPoolExecutor(1, "health"),
        handlers=[grpc.method_handlers_generic_handler(health.SERVICE_NAME, {"Check": handler})],
        options=SERVER_OPTIONS,
        maximum_concurrent_rpcs=MAX_CALLS,
    )
    where = join_address(HOST, port)
    try:
        bound = server.add_insecure_port(where)
    except RuntimeError:
        bound = 0
    if not bound:
        raise InvalidConfig(f"cannot serve health at {where}: the port is taken; choose another with --health-port")
    server.start()
    return HealthServer(server, bound)
