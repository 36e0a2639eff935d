"""The gateway's application and process: routes, middleware, lifespan, server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from gateway import openapi
from gateway.aggregator_link import AggregatorLink
from gateway.console import routes as console
from gateway.http import problem
from gateway.http.cross_site_guard import CrossSiteGuard
from gateway.http.key_guard import KeyGuard
from gateway.http.metrics import GatewayMetrics
from gateway.http.middleware import BodyLimit, RequestContext
from gateway.http.operations import documented_answers
from gateway.http.server import Server, listen
from gateway.joining import join_by_file
from gateway.routes import audit, callers, clients, events, models, results, runs, service
from gateway.routes.dependencies import Services
from shared.config.settings import EXIT_CONFIG as EXIT_CONFIG
from shared.config.settings import GatewaySettings
from shared.errors import InvalidConfig
from shared.identity.credentials import IDENTITY_FILE, Credentials
from shared.process.log import get_logger, set_up
from shared.process.resources import SERVICE_FILES, require
from shared.version import VERSION
from shared.wire.tls import require_identity

MAX_BODY_BYTES = 1 << 20
"""Largest request body, of a run's configuration."""
SMALL_BODY_BYTES = 16 << 10
"""Largest body of all other requests: a reason of 500 characters has up to 6 kB in JSON."""
EXIT_OK = 0
"""Exit code: ended by a signal. `EXIT_CONFIG`: wrong settings, the port is taken, or the process has too few open files or
too little memory."""

log = get_logger("gateway.app")

ROUTES: tuple[APIRoute, ...] = tuple(
    route
    for part in (runs, models, results, events, clients, audit, callers, service, console)
    for route in part.OPERATIONS.routes
)
"""Every route."""

MIDDLEWARE: tuple[Middleware, ...] = (
    # Outermost: it sees every request and every error, refusals of the other middleware among them.
    Middleware(RequestContext),
    Middleware(CrossSiteGuard),
    Middleware(KeyGuard),
    # Innermost: its refusals are logged and counted like all others.
    Middleware(
        BodyLimit,
        small_bytes=SMALL_BODY_BYTES,
        max_bytes=MAX_BODY_BYTES,
        large=(runs.RUNS_PATH, runs.CHECK_PATH),
        streamed=(models.MODELS_PATH,),
    ),
)
"""Middleware, outermost first."""


def create_app(settings: GatewaySettings) -> FastAPI:
    """Return the gateway's application. Its channel to the aggregator is open during its lifespan."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        link = AggregatorLink(settings, services)
        try:
            yield
        finally:
            services.stopping.set()
            await link.close()

    credentials = _credentials_of(settings)
    services = Services(
        metrics=GatewayMetrics(documented_answers(ROUTES)),
        host_names=settings.host_names,
        # An aggregator that knows its members by certificate asks their callers for keys; in plain text it asks nobody.
        federation="" if credentials is None else credentials.identity.federation,
    )
    app = FastAPI(
        title=openapi.TITLE,
        version=VERSION,
        lifespan=lifespan,
        routes=list(ROUTES),
        middleware=list(MIDDLEWARE),
        exception_handlers=dict(problem.HANDLERS),
        openapi_url="/openapi.json",
        # These pages would load scripts from another company's servers into the browser of whoever steers runs.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.openapi = lambda: dict(openapi.describe(app))  # type: ignore[method-assign]
    return app


def _credentials_of(settings: GatewaySettings) -> Credentials | None:
    """Return the gateway's certificate; None where plain text is spoken to the aggregator.

    Raises:
        InvalidConfig: Its file is damaged, or others may read it.
    """
    file = settings.state_dir / IDENTITY_FILE
    return None if settings.insecure or not file.is_file() else Credentials.load(file)


def run(settings: GatewaySettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    set_up(settings.log_level)
    try:
        require(open_files=SERVICE_FILES)
        asyncio.run(serve(settings))
    except InvalidConfig as error:
        log.error("cannot_start", detail=error.detail)
        return EXIT_CONFIG
    return EXIT_OK


async def serve(settings: GatewaySettings, ready: Callable[[Server, str], None] = lambda _server, _url: None) -> None:
    """Serve until SIGTERM, SIGINT or `should_exit` of the server that `ready` receives with its URL.

    Raises:
        InvalidConfig: The port is taken, the address is not of this machine, or there is no certificate.
    """
    if not settings.insecure:
        await asyncio.to_thread(join_by_file, settings)
        require_identity(settings.state_dir)  # before the port is open, so that it is said at once
    listener = listen(settings.host, settings.port)
    host, port = listener.getsockname()[:2]
    app = create_app(settings)
    services: Services = app.state.services

    def announce() -> None:
        log.info("gateway_ready", host=host, port=port, aggregator=settings.aggregator, version=VERSION)
        ready(server, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    def stop_streams() -> None:
        log.info("gateway_ending")
        services.stopping.set()

    server = Server(app, started=announce, stopping=stop_streams)
    await server.serve(sockets=[listener])
