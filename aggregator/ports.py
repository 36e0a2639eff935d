"""The aggregator's gRPC ports: calls of members, admission of new ones, and health for its own machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.config.settings import AggregatorSettings
from fedplcc.shared.wire.call_observer import CallObserver
from fedplcc.shared.wire.serving.caller import Callers
from fedplcc.shared.wire.serving.server import RpcServer
from fedplcc.shared.wire.tls import ServerTls

MAX_ENROL_STREAMS = 32
"""Calls of a stranger's connection that are open at once."""
MAX_ENROL_BYTES = 16 << 10
"""Largest message at the port of admission, which strangers reach."""
QUIET = (
    "Heartbeat",
    "SyncRound",
    "GetRun",
    "ListRuns",
    "ListRounds",
    "ListClients",
    "GetUploadStatus",
    "GetPrototypeMap",
)
"""Methods whose successes are logged at debug."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service to serve: the generated `add_XServicer_to_server`, the servicer, the descriptor."""

    register: Callable[[Any, Any], None]
    servicer: object
    descriptor: Any


class Ports:
    """The servers of one aggregator; used on the event loop's thread."""

    def __init__(
        self,
        settings: AggregatorSettings,
        observer: CallObserver,
        *,
        callers: Callers | None = None,
        server_credentials: Callable[[], tuple[bytes, bytes]] | None = None,
        enrolment_credentials: Callable[[], tuple[bytes, bytes]] | None = None,
        roots_pem: Callable[[], bytes] = bytes,
    ) -> None:
        """Prepare; nothing listens before `start`.

        Args:
            callers: Who may make which call; anyone may make any if None.
            server_credentials: Returns key and chain in PEM, read at each handshake; plain text if None.
            enrolment_credentials: The same for the port of admission, which is closed if None.
            roots_pem: Returns the roots that members are checked against.
        """
        self._settings = settings
        self._members = self._server(
            settings.port,
            observer,
            tls=None if server_credentials is None else ServerTls(server_credentials, roots_pem),
            callers=callers,
        )
        self._strangers: RpcServer | None = None
        if enrolment_credentials is not None and settings.enrol_port is not None:
            self._strangers = self._server(
                settings.enrol_port,
                observer,
                tls=ServerTls(enrolment_credentials, roots_pem, demands_client=False),
                callers=callers,
                max_message_bytes=MAX_ENROL_BYTES,
                max_streams=MAX_ENROL_STREAMS,
            )
        self.port = 0
        self.enrol_port: int | None = None
        self.health_port: int | None = None

    def add(self, services: Iterable[Service]) -> None:
        """Serve these to members."""
        for service in services:
            self._members.add(service.register, service.servicer, service.descriptor)

    def add_enrolment(self, service: Service) -> None:
        """Serve this to anyone, where TLS is spoken."""
        if self._strangers is not None:
            self._strangers.add(service.register, service.servicer, service.descriptor)

    async def start(self) -> None:
        """Listen and serve.

        Raises:
            InvalidConfig: A port is taken, or the address is not of this machine.
        """
        self.port = await self._members.start()
        if self._strangers is not None:
            self.enrol_port = await self._strangers.start()
        if self._settings.health_port is not None:
            self.health_port = await self._members.serve_health(self._settings.health_port)

    async def report(self, serves: bool) -> None:
        """Report healthy or unhealthy to members and load balancers."""
        await self._members.report(serves=serves)

    async def announce_stop(self) -> None:
        """Report unhealthy, so that load balancers send no new callers."""
        for server in self._servers():
            await server.announce_stop()

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, give running calls `grace_s` seconds, then end them."""
        for server in self._servers():
            await server.stop(grace_s)

    def _servers(self) -> list[RpcServer]:
        return [server for server in (self._strangers, self._members) if server is not None]

    def _server(self, port: int, observer: CallObserver, **options: Any) -> RpcServer:
        settings = self._settings
        return RpcServer(
            settings.host,
            port,
            insecure=settings.insecure,
            observer=observer,
            quiet=QUIET,
            keepalive_s=settings.keepalive_s,
            idle_s=settings.idle_s,
            **options,
        )
