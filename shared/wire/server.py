"""A gRPC server with health, reflection on loopback, and the interceptor of every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from shared.errors import InvalidConfig
from shared.process.resources import most_connections
from shared.wire.addresses import is_loopback, join_address, require_secure
from shared.wire.call_observer import CallObserver
from shared.wire.channels import IDLE_S, KEEPALIVE_S, SERVER_OPTIONS, with_keepalive
from shared.wire.interceptor import ErrorInterceptor

HANDSHAKE_MS = 20_000
"""Time in which a new connection must speak HTTP/2."""
_KINDS = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
"""Kind of a call, by whether the request and the answer are streams."""


class _WholeServices:
    """What generated code registers at a server: whole services, and not each of their methods once more.

    grpc.aio waits for the next call of each method registered by itself, anew with every call: 28 futures a call with our
    methods. A service as a whole is one wait for all.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler[Any, Any]]) -> None:
        """Serve the methods that these handlers know by name."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, object]) -> None:
        """Leave out handlers of single methods: they are those of `add_generic_rpc_handlers`."""


class RpcServer:
    """A grpc.aio server with the error mapping, health and, on loopback only, reflection."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        insecure: bool = False,
        observer: CallObserver | None = None,
        quiet: Sequence[str] = (),
        keepalive_s: float = KEEPALIVE_S,
        idle_s: float = IDLE_S,
    ) -> None:
        """Prepare a server.

        Args:
            host: Address to listen at.
            port: Port; 0 takes any free one.
            insecure: Whether plain text is accepted off loopback.
            observer: Observer of every call of our services.
            quiet: Short names of methods whose successes are logged at debug.
            keepalive_s: Silence after which the other end of a connection is pinged.
            idle_s: Longest time in which the reader of a stream may read nothing.

        Raises:
            InvalidConfig: Off loopback without `insecure`.
        """
        require_secure(host, insecure=insecure, what=f"serving at {host}")
        self._host, self._port = host, port
        self._names: list[str] = []
        self._observer = observer or CallObserver()
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # the stubs are older
        self._server = grpc.aio.server(
            interceptors=[ErrorInterceptor(observer=self._observer, quiet=quiet, idle_s=idle_s)],
            options=(
                *with_keepalive(SERVER_OPTIONS, keepalive_s),
                # Beyond it a new connection is closed at once: who opens thousands must not take the files of runs.
                ("grpc.max_allowed_incoming_connections", most_connections()),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
            ),
        )

    def add(self, register: Callable[[Any, Any], None], servicer: object, service: Any) -> None:
        """Serve a service: `register` is the generated `add_XServicer_to_server`, `service` its descriptor."""
        register(servicer, _WholeServices(self._server))
        self._names.append(service.full_name)
        for method in service.methods:
            kind = _KINDS[method.client_streaming, method.server_streaming]
            self._observer.serves(f"/{service.full_name}/{method.name}", kind)

    async def start(self) -> int:
        """Listen, serve and report healthy; returns the port.

        Raises:
            InvalidConfig: The port is taken, or the address is not of this machine.
        """
        health_pb2_grpc.add_HealthServicer_to_server(self._health, _WholeServices(self._server))
        if is_loopback(self._host):
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            known = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # the stubs are older
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(known, _WholeServices(self._server))
        where = join_address(self._host, self._port)
        try:
            port = self._server.add_insecure_port(where)
        except RuntimeError:
            port = 0
        if not port:
            raise InvalidConfig(f"cannot listen at {where}: the port is taken or the address is not of this machine")
        await self._server.start()
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._port = port
        return port

    async def announce_stop(self) -> None:
        """Report unhealthy, so that load balancers send no new callers."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give running calls `grace_s` seconds, then end them."""
        await self.announce_stop()
        await self._server.stop(grace_s)
