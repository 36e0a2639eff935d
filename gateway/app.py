"""The gateway's application and process: routes, middleware, lifespan, server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware

from fedplcc.gateway import openapi
from fedplcc.gateway.aggregator_link import AggregatorLink
from fedplcc.gateway.console import routes as console
from fedplcc.gateway.http import problem
from fedplcc.gateway.http.described.operations import documented_answers
from fedplcc.gateway.http.guards.cross_site_guard import CrossSiteGuard, SafeAnswers
from fedplcc.gateway.http.guards.forwarded import ForwardedClient
from fedplcc.gateway.http.guards.key_guard import KeyGuard
from fedplcc.gateway.http.guards.rate_limits import AddressLimit, KeyLimit, RateLimits
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.http.middleware import BodyLimit, RequestContext
from fedplcc.gateway.http.server import Server, listen
from fedplcc.gateway.http.server_tls import server_tls
from fedplcc.gateway.joining import join_by_file
from fedplcc.gateway.messages.couriers import Couriers
from fedplcc.gateway.messages.receivers import read_receivers
from fedplcc.gateway.routes import (
    audit,
    callers,
    clients,
    events,
    messages,
    models,
    results,
    runs,
    service,
    sign_on,
)
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.config.settings import EXIT_CONFIG as EXIT_CONFIG
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.config.settings.variables import warn_of_unknown_variables
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import add_methods
from fedplcc.shared.process import disk, traces
from fedplcc.shared.process.failpoints import arm_from_environment
from fedplcc.shared.process.log import get_logger, set_up
from fedplcc.shared.process.loopback import is_loopback
from fedplcc.shared.process.resources import SERVICE_FILES, require
from fedplcc.shared.version import VERSION
from fedplcc.shared.wire.addresses import join_address

MAX_BODY_BYTES = 1 << 20
"""Largest request body, of a run's configuration."""
SMALL_BODY_BYTES = 16 << 10
"""Largest body of all other requests: a reason of 500 characters has up to 6 kB in JSON."""
STRICT_TRANSPORT_S = 365 * 86_400
"""Time for which browsers shall use HTTPS only, where a certificate was given; never for the federation's own."""
EXIT_OK = 0
"""Exit code: ended by a signal. `EXIT_CONFIG`: wrong settings, the port is taken, or the process has too few open files or
too little memory."""

log = get_logger("fedplcc.gateway.app")

ROUTES: tuple[APIRoute, ...] = tuple(
    route
    for operations in (
        *(
            part.OPERATIONS
            for part in (runs, models, results, events, clients, audit, messages, callers, sign_on, service, console)
        ),
        sign_on.PAGES,
    )
    for route in operations.routes
)
"""Every route."""

MIDDLEWARE: tuple[Middleware, ...] = (
    # Outermost: it sees every request and every error, refusals of the other middleware among them.
    Middleware(RequestContext),
    Middleware(ForwardedClient),
    Middleware(SafeAnswers),
    # Before all that refuses: a refusal counts as well.
    Middleware(AddressLimit),
    Middleware(CrossSiteGuard),
    Middleware(KeyGuard),
    Middleware(KeyLimit),
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
    """Return the gateway's application. Its channel to the aggregator is open during its lifespan.

    Raises:
        InvalidConfig: The receivers of messages cannot be read.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        link = AggregatorLink(settings, services)
        if services.couriers is not None:
            services.couriers.start()
        try:
            yield
        finally:
            services.stopping.set()
            if services.couriers is not None:
                await services.couriers.stop()
            await link.close()

    services = Services(
        metrics=GatewayMetrics(documented_answers(ROUTES)),
        host_names=settings.host_names,
        # An aggregator that knows its members by certificate asks their callers for keys; in plain text it asks nobody.
        asks_keys=not settings.insecure,
        is_exposed=settings.is_exposed,
        trusted_proxies=settings.proxies,
        rate_limits=RateLimits(settings.address_rate, settings.key_rate, settings.guess_rate),
    )
    if settings.messages is not None:
        services.couriers = Couriers(
            read_receivers(settings.messages, asks_keys=services.asks_keys),
            settings.state_dir,
            source=lambda: (services.federation, services.aggregator),
            counted=services.metrics.delivered,
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


def run(settings: GatewaySettings) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    set_up(settings.log_level)
    arm_from_environment()
    disk.deny_others()
    warn_of_unknown_variables()
    try:
        require(open_files=SERVICE_FILES)
        traces.set_up("gateway")
        add_methods(settings.allow_method, needs_no_torch=True)
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
    if settings.is_exposed:
        log.warning(
            "serves_plain_text",
            host=settings.host,
            aggregator=settings.aggregator,
            detail="--insecure: other machines may see and steer everything; use it on a trusted network only",
        )
    if settings.uses_own_certificate:
        # Before the port is open, so that it is said at once if there is none. Others may join later.
        await asyncio.to_thread(join_by_file, settings)
    tls = await asyncio.to_thread(server_tls, settings)
    listener = listen(settings.host, settings.port, settings.proxies)
    host, port = listener.getsockname()[:2]
    app = create_app(settings)
    services: Services = app.state.services
    scheme = "http" if tls is None else "https"
    if tls is not None and not tls.is_own and not is_loopback(settings.host):
        services.strict_transport_s = STRICT_TRANSPORT_S

    def announce() -> None:
        log.info("gateway_ready", scheme=scheme, host=host, port=port, aggregator=settings.aggregator, version=VERSION)
        ready(server, f"{scheme}://{join_address(host, port)}")

    def stop_streams() -> None:
        log.info("gateway_ending")
        services.stopping.set()

    server = Server(app, listener, tls=None if tls is None else tls.context, started=announce, stopping=stop_streams)
    following = None if tls is None else asyncio.create_task(tls.follow())
    try:
        await server.serve(sockets=[listener])
    finally:
        if following is not None:
            following.cancel()
