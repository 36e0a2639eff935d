"""Operations on the gateway itself: health, metrics, kinds of problems."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from fedplcc.gateway.http import problem
from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.routes.dependencies import Aggregator, needs, services_of
from fedplcc.shared import documents
from fedplcc.shared.errors import AggregatorUnavailable, NotFound, TlsFailed
from fedplcc.shared.identity.api_keys import Scope
from fedplcc.shared.version import VERSION

OPERATIONS = Operations("service")
SERVICE = "fedplcc gateway"
_METRICS: dict[int | str, Any] = {
    200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@OPERATIONS.add("GET", problem.PROBLEMS_PATH, calls_aggregator=False)
async def list_problems() -> documents.ProblemKinds:
    """List every kind of problem of this API."""
    return documents.ProblemKinds(problems=[kind.document for kind in problem.KINDS.values()])


@OPERATIONS.add("GET", f"{problem.PROBLEMS_PATH}/{{code}}", refusals=(NotFound,), calls_aggregator=False)
async def get_problem(code: Annotated[str, Path(pattern=r"^[A-Z_]{1,64}$")]) -> documents.ProblemKind:
    """Describe a kind of problem; the `type` of a problem document refers to this."""
    kind = problem.KINDS.get(code)
    if kind is None:
        raise NotFound(f"there is no problem {code}")
    return kind.document


@OPERATIONS.add("GET", "/livez", calls_aggregator=False)
async def live() -> documents.Health:
    """Report that the process serves requests; nothing else is checked."""
    return documents.Health(status="ok", service=SERVICE, version=VERSION)


@OPERATIONS.add("GET", "/readyz")
async def ready(request: Request, aggregator: Aggregator) -> documents.Readiness:
    """Report that the aggregator answers and serves, its database included."""
    try:
        await aggregator.check_health()
    except AggregatorUnavailable as error:
        if not services_of(request).asks_keys:
            raise
        # Strangers may ask this: they learn neither the address nor names. The log has the whole sentence.
        if isinstance(error, TlsFailed):
            raise TlsFailed("TLS with the aggregator fails; the gateway's log says why", part="aggregator") from error
        raise AggregatorUnavailable("the aggregator does not serve", part="aggregator") from error
    return documents.Readiness(status="ok", service=SERVICE, version=VERSION, checks={"aggregator": "ok"})


@OPERATIONS.add("GET", "/metrics", responses=_METRICS, calls_aggregator=False, dependencies=(needs(Scope.METRICS),))
async def get_metrics(request: Request) -> Response:
    """Return the metrics of this process for Prometheus."""
    return Response(generate_latest(services_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)
