"""A gRPC server with TLS, health and the interceptor of every call; in plain text on loopback also reflection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.wire.addresses import join_address, require_secure
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.channels import IDLE_S, KEEPALIVE_S, MAX_MESSAGE_BYTES, SERVER_OPTIONS, with_keepalive
from fedplcc.shared.wire.serving.caller import Callers
from fedplcc.shared.wire.serving.connections import FIRST_CALL_S, Connections
from fedplcc.shared.wire.serving.interceptor import ErrorInterceptor
from fedplcc.shared.wire.tls import ServerTls

MAX_STREAMS = 64
"""Calls of one connection that are open at once. A trainer has a few, a gateway more connections as it needs them. So many a
connection can put into the line below before one of its calls is looked at."""
MAX_IN_LINE = 4096
"""Calls of all connections that wait to be taken. Beyond it gRPC cancels some, whoever makes them; beyond its double all."""
UNREAD_BYTES = 256 << 10
"""Bytes that a peer may send ahead of what a call reads, in each stream and in all of a connection: as many as are under way
at 50 Mbit/s and 40 ms there and back, besides the message that is read."""
HEALTH_HOST = "127.0.0.1"
"""Where a health port of its own listens, in plain text, for the check of a container."""
MAX_HEALTH_CALLS = 8
"""Calls of the health port that may wait at the same time; more are refused."""
_KINDS = {
    (False, False): "unary",
    (True, False): "client_stream",
    (False, True): "server_stream",
    (True, True): "bidi_stream",
}
"""Kind of a call, by whether the request and the answer are streams."""


class _Health(health.aio.HealthServicer):  # type: ignore[name-defined,misc]  # the stubs are older
    """Health by `Check` alone: a `Watch` would stay open for whoever reaches the port, without a certificate."""

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802  # the RPC's name
        """Refuse; the protocol has clients take this for healthy, or ask with Check."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "ask with Check")


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
        tls: ServerTls | None = None,
        callers: Callers | None = None,
        insecure: bool = False,
        observer: CallObserver | None = None,
        quiet: Sequence[str] = (),
        keepalive_s: float = KEEPALIVE_S,
        idle_s: float = IDLE_S,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        max_streams: int = MAX_STREAMS,
        first_call_s: float = FIRST_CALL_S,
    ) -> None:
        """Prepare a server.

        Args:
            port: Port; 0 takes any free one.
            tls: Certificate and roots; plain text if None.
            callers: Who may make which call; anyone may make any if None.
            insecure: Whether plain text is accepted off loopback.
            quiet: Short names of methods whose successes are logged at debug.
            keepalive_s: Silence after which the other end of a connection is pinged.
            idle_s: Longest time in which the reader of a stream may read nothing.
            max_streams: Calls of one connection that are open at once; what is more waits in its client.
            first_call_s: Time in which a connection makes a call that its caller may make.

        Raises:
            InvalidConfig: Plain text off loopback without `insecure`.
        """
        require_secure(host, insecure=insecure or tls is not None, what=f"serving at {host}")
        self._host, self._port, self._callers = host, port, callers
        # Kept: gRPC asks these for a new certificate at each handshake.
        self._credentials = None if tls is None else tls.credentials()
        self._names: list[str] = []
        self._health_server: grpc.aio.Server | None = None
        self._observer = observer or CallObserver()
        self._health = _Health()
        self._connections = Connections(first_call_s=first_call_s)
        interceptor = ErrorInterceptor(
            observer=self._observer, quiet=quiet, idle_s=idle_s, callers=callers, connections=self._connections
        )
        self._server = grpc.aio.server(
            interceptors=[interceptor],
            options=(
                # Of two options of one name, gRPC takes the first.
                ("grpc.max_receive_message_length", max_message_bytes),
                ("grpc.max_concurrent_streams", max_streams),
                *with_keepalive(SERVER_OPTIONS, keepalive_s),
                # Windows that gRPC sizes by the line's speed have 4 MiB and more, for whoever connects.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", min(max_message_bytes, UNREAD_BYTES)),
                # Beyond it a new connection is closed at once: who opens thousands must not take the files of runs.
                ("grpc.max_allowed_incoming_connections", self._connections.most),
                ("grpc.server.max_pending_requests", MAX_IN_LINE),
                ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_IN_LINE),
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
        if self._credentials is None and is_loopback(self._host):
            names = (*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME)
            known = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]  # the stubs are older
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(known, _WholeServices(self._server))
        self._port = self._bound(self._server, join_address(self._host, self._port), self._credentials)
        await self._server.start()
        await self.report(serves=True)
        if self._callers is not None:
            self._callers.start()
        self._connections.start(self._port)
        return self._port

    async def serve_health(self, port: int) -> int:
        """Serve this server's health in plain text at another port on loopback, 0 for any free one; returns the port.

        Raises:
            InvalidConfig: The port is taken.
        """
        server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=MAX_HEALTH_CALLS)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, _WholeServices(server))
        port = self._bound(server, join_address(HEALTH_HOST, port), None)
        await server.start()
        self._health_server = server
        return port

    @staticmethod
    def _bound(server: grpc.aio.Server, where: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            port = (
                server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
            )
        except RuntimeError:
            port = 0
        if not port:
            raise InvalidConfig(f"cannot listen at {where}: the port is taken or the address is not of this machine")
        return port

    async def report(self, *, serves: bool) -> None:
        """Report healthy or unhealthy."""
        status = health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._names:
            await self._health.set(name, status)

    async def announce_stop(self) -> None:
        """Report unhealthy, so that load balancers send no new callers."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give running calls `grace_s` seconds, then end them."""
        await self.announce_stop()
        await self._server.stop(grace_s)
        if self._callers is not None:
            self._callers.stop()
        self._connections.stop()
        if self._health_server is not None:
            await self._health_server.stop(0)
