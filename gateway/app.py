"""The gateway put together: its routes and its middleware as two lists, its life, and the server that it runs in."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from starlette.middleware import Middleware

from gateway import openapi
from gateway.console import routes as console
from gateway.http import problem
from gateway.http.cross_site_guard import SAFE_METHODS, BrowserGuard
from gateway.http.metrics import GatewayMetrics
from gateway.http.middleware import BodyLimit, RequestContext
from gateway.http.server import Server, listen
from gateway.routes import handlers
from gateway.routes.handlers import Services
from gateway.run_service import AggregatorClient
from shared.config.settings import EXIT_CONFIG as EXIT_CONFIG
from shared.config.settings import GatewaySettings
from shared.errors import (
    BlobCorrupt,
    BlobNotFound,
    BlobTooLarge,
    ChunkOutOfOrder,
    ClientNotFound,
    FedplccError,
    InvalidConfig,
    InvalidModel,
    InvalidTransition,
    MalformedRequest,
    NoPrototypes,
    NotFound,
    Overloaded,
    PayloadCorrupt,
    RequestIdReused,
    RoundNotFound,
    RunNotFound,
    TransferIdle,
)
from shared.process.log import get_logger, set_up
from shared.version import VERSION
from shared.wire.channels import open_aio_channel

MAX_BODY_BYTES = 1 << 20
"""Largest request body."""
EXIT_OK = 0
"""Exit code: ended by a signal. `EXIT_CONFIG`: wrong settings, or the port is taken."""

log = get_logger("gateway.app")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One operation. `refusals` are the problems of its own, `responses` what the handler's signature does not say."""

    method: str
    path: str
    handler: Callable[..., Any]
    tag: str
    status: int = 200
    refusals: tuple[type[FedplccError], ...] = ()
    http_refusals: tuple[int, ...] = ()
    responses: Mapping[int | str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    is_local: bool = False
    """Whether it is answered without the aggregator."""
    is_listed: bool = True
    """Whether the API's description names it."""

    @property
    def problems(self) -> Iterator[problem.Kind]:
        """Every documented problem of the operation."""
        asked = () if self.is_local else openapi.OF_AGGREGATOR
        yield from map(problem.kind_of, (*self.refusals, *asked, *openapi.ALWAYS))
        guarded = () if self.method in SAFE_METHODS else (403,)
        yield from (problem.HTTP_PROBLEMS[status] for status in (*self.http_refusals, *guarded, 421))

    @property
    def statuses(self) -> set[int]:
        """Every documented status of the operation."""
        return {self.status, *(int(status) for status in self.responses), *(kind.status for kind in self.problems)}


_RUN = "/v1/runs/{run_id}"
_MODELS = "/v1/models/"
_CONFIGURATION = "/v1/run-configuration"

ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/runs",
        handler=handlers.create_run,
        tag="runs",
        status=202,
        refusals=(InvalidConfig, RequestIdReused, RunNotFound, RoundNotFound, BlobNotFound),
        http_refusals=(413, 415),
        responses=openapi.CREATED,
        extra=openapi.JSON_BODY,
    ),
    Route(
        method="GET",
        path=_CONFIGURATION,
        handler=handlers.get_run_configuration,
        tag="runs",
        is_local=True,
    ),
    Route(
        method="POST",
        path=f"{_CONFIGURATION}/check",
        handler=handlers.check_run_configuration,
        tag="runs",
        refusals=(MalformedRequest,),
        http_refusals=(413, 415),
        extra=openapi.CHECK_BODY,
        is_local=True,
    ),
    Route(
        method="PUT",
        path=f"{_MODELS}{{sha256}}",
        handler=handlers.put_model,
        tag="runs",
        refusals=(BlobCorrupt, BlobTooLarge, InvalidModel, ChunkOutOfOrder, Overloaded, TransferIdle),
        http_refusals=(411,),
        extra=openapi.MODEL_BODY,
    ),
    Route(method="GET", path="/v1/runs", handler=handlers.list_runs, tag="runs", refusals=(RunNotFound,)),
    Route(method="GET", path=_RUN, handler=handlers.get_run, tag="runs", refusals=(RunNotFound,)),
    Route(
        method="POST",
        path=f"{_RUN}/pause",
        handler=handlers.pause_run,
        tag="runs",
        refusals=(RunNotFound, InvalidTransition, RequestIdReused),
        http_refusals=(413,),
    ),
    Route(
        method="POST",
        path=f"{_RUN}/resume",
        handler=handlers.resume_run,
        tag="runs",
        refusals=(RunNotFound, InvalidTransition, RequestIdReused),
    ),
    Route(
        method="POST",
        path=f"{_RUN}/stop",
        handler=handlers.stop_run,
        tag="runs",
        refusals=(RunNotFound, RequestIdReused),
        http_refusals=(413,),
    ),
    Route(
        method="POST",
        path=f"{_RUN}/clients/{{client_id}}/quarantine",
        handler=handlers.quarantine_client,
        tag="runs",
        refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
        http_refusals=(413,),
    ),
    Route(
        method="POST",
        path=f"{_RUN}/clients/{{client_id}}/release",
        handler=handlers.release_client,
        tag="runs",
        refusals=(RunNotFound, ClientNotFound, InvalidTransition, RequestIdReused),
    ),
    *(
        Route(
            method=method,
            path=f"{_RUN}/manifest",
            handler=handlers.get_manifest,
            tag="results",
            refusals=(RunNotFound,),
            responses=openapi.MANIFEST,
            is_listed=method == "GET",
        )
        for method in ("GET", "HEAD")
    ),
    Route(method="GET", path=f"{_RUN}/rounds", handler=handlers.list_rounds, tag="results", refusals=(RunNotFound,)),
    Route(
        method="GET",
        path=f"{_RUN}/metrics.jsonl",
        handler=handlers.get_metrics_lines,
        tag="results",
        refusals=(RunNotFound,),
        responses=openapi.LINES,
    ),
    Route(
        method="GET",
        path=f"{_RUN}/timings.jsonl",
        handler=handlers.get_timings_lines,
        tag="results",
        refusals=(RunNotFound,),
        responses=openapi.LINES,
    ),
    Route(
        method="GET",
        path=f"{_RUN}/evaluations",
        handler=handlers.list_evaluations,
        tag="results",
        refusals=(RunNotFound,),
    ),
    *(
        Route(
            method=method,
            path=f"{_RUN}/{name}",
            handler=handler,
            tag="results",
            refusals=(RunNotFound, RoundNotFound, PayloadCorrupt),
            http_refusals=(416,),
            responses=openapi.FILE,
            is_listed=method == "GET",
        )
        for name, handler in (("model", handlers.get_model), ("prototypes", handlers.get_prototypes))
        for method in ("GET", "HEAD")
    ),
    Route(
        method="GET",
        path=f"{_RUN}/prototype-map",
        handler=handlers.get_prototype_map,
        tag="results",
        refusals=(RunNotFound, NoPrototypes, RoundNotFound, BlobNotFound, PayloadCorrupt, Overloaded),
    ),
    Route(
        method="GET",
        path=f"{_RUN}/events",
        handler=handlers.get_events,
        tag="events",
        refusals=(RunNotFound, Overloaded),
        responses=openapi.EVENTS,
    ),
    Route(method="GET", path="/v1/clients", handler=handlers.list_clients, tag="federation"),
    Route(method="GET", path=problem.PROBLEMS_PATH, handler=handlers.list_problems, tag="service", is_local=True),
    Route(
        method="GET",
        path=f"{problem.PROBLEMS_PATH}/{{code}}",
        handler=handlers.get_problem,
        tag="service",
        refusals=(NotFound,),
        is_local=True,
    ),
    Route(method="GET", path="/livez", handler=handlers.live, tag="service", is_local=True),
    Route(method="GET", path="/readyz", handler=handlers.ready, tag="service"),
    Route(
        method="GET",
        path="/metrics",
        handler=handlers.get_metrics,
        tag="service",
        responses=openapi.METRICS,
        is_local=True,
    ),
    *(
        Route(method=method, path=path, handler=handler, tag="console", is_local=True, is_listed=False)
        for path, handler in (
            (console.PAGE_PATH, console.get_page),
            (console.FILES_PATH, console.get_console_file),
        )
        for method in ("GET", "HEAD")
    ),
)
"""Everything that is served."""

MIDDLEWARE: tuple[Middleware, ...] = (
    # Outermost: sees every request, also those that the others refuse, and every error that the others make.
    Middleware(RequestContext),
    Middleware(BrowserGuard),
    # Innermost: its refusals are logged and counted like all.
    Middleware(BodyLimit, max_bytes=MAX_BODY_BYTES, streamed=(_MODELS,)),
)
"""What happens around every request, outermost first."""


def create_app(settings: GatewaySettings) -> FastAPI:
    """The gateway's application. Its channel to the aggregator is open while its lifespan lasts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        channel = open_aio_channel(settings.aggregator, insecure=settings.insecure, keepalive_s=settings.keepalive_s)
        services.aggregator = AggregatorClient(channel, settings.aggregator)
        try:
            yield
        finally:
            services.stopping.set()
            await channel.close(None)

    services = Services(
        metrics=GatewayMetrics((route.method, route.path, route.statuses) for route in ROUTES),
        host_names=settings.host_names,
    )
    app = FastAPI(
        title=openapi.TITLE,
        version=VERSION,
        lifespan=lifespan,
        middleware=list(MIDDLEWARE),
        exception_handlers=dict(problem.HANDLERS),
        openapi_url="/openapi.json",
        # The pages would load scripts from another company's servers into the browser of whoever steers runs.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    for route in ROUTES:
        summary, _, description = inspect.cleandoc(route.handler.__doc__ or "").partition("\n")
        app.add_api_route(
            route.path,
            route.handler,
            methods=[route.method],
            tags=[route.tag],
            status_code=route.status,
            responses={**openapi.problem_responses(route.problems), **route.responses},
            openapi_extra=dict(route.extra),
            operation_id=route.handler.__name__,
            summary=summary,
            description=description,
            include_in_schema=route.is_listed,
        )
    app.openapi = lambda: dict(openapi.describe(app))  # type: ignore[method-assign]
    return app


def run(settings: GatewaySettings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    set_up(settings.log_level)
    try:
        asyncio.run(serve(settings))
    except InvalidConfig as error:
        log.error("cannot_start", detail=error.detail)
        return EXIT_CONFIG
    return EXIT_OK


async def serve(settings: GatewaySettings, ready: Callable[[Server, str], None] = lambda _server, _url: None) -> None:
    """Serve until SIGTERM or SIGINT, or until the server that `ready` is given with its URL is told to exit.

    Raises:
        InvalidConfig: The port is taken, or the address is not of this machine.
    """
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
