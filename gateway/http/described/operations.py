"""Operations of the API: the path, the problems and the documentation of a handler, declared beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fedplcc.gateway.http import problem
from fedplcc.gateway.http.guards.cross_site_guard import SAFE_METHODS
from fedplcc.shared.config.sections import unknown
from fedplcc.shared.errors import (
    AggregatorUnavailable,
    FedplccError,
    Internal,
    MalformedRequest,
    RunDeleted,
    RunNotFound,
    StoreUnavailable,
    VersionRefused,
)

SCHEMA = "#/components/schemas/{model}"
"""Reference to a schema of the OpenAPI document."""
OF_AGGREGATOR: tuple[type[FedplccError], ...] = (
    MalformedRequest,
    VersionRefused,
    AggregatorUnavailable,
    StoreUnavailable,
)
"""Problems of operations that call the aggregator."""

Handler = TypeVar("Handler", bound=Callable[..., Any])


class KnownQuery(APIRoute):
    """A route that refuses names in the query that its operation does not know: a misspelt filter would be no filter."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler with the check before it."""
        known = _query_names(self.dependant)
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            strange = sorted(request.query_params.keys() - known)
            if strange:
                raise MalformedRequest(f"query: {unknown('name', strange[0], known)}" if known else _NO_QUERY)
            return await handle(request)

        return checked


def _query_names(dependant: Dependant) -> set[str]:
    """Return the names that a handler and what it depends on take from the query."""
    own = {str(field.alias) for field in dependant.query_params}
    return own.union(*map(_query_names, dependant.dependencies))


_NO_QUERY = "query: this operation takes none"


class Operations:
    """Operations with one tag, in the order of their declaration."""

    def __init__(self, tag: str, *, is_listed: bool = True) -> None:
        """Start without operations. The OpenAPI document leaves them out if they are not listed."""
        self.routes: list[APIRoute] = []
        self._tag, self._is_listed = tag, is_listed

    def add(
        self,
        method: str,
        path: str,
        *,
        status: int = 200,
        refusals: Iterable[type[FedplccError]] = (),
        http_refusals: Iterable[int] = (),
        responses: Mapping[int | str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        calls_aggregator: bool = True,
        has_head: bool | None = None,
        dependencies: Sequence[Any] = (),
    ) -> Callable[[Handler], Handler]:
        """Return a decorator that declares a handler as an operation.

        The handler's name is the operation's id. The first line of its docstring is the summary, the rest the description.

        Args:
            refusals: Errors that this operation may raise; where a run may be missing, it may have been deleted, too.
            http_refusals: Statuses of `problem.HTTP_PROBLEMS` that this operation may have.
            responses: Documentation of successes, by status, that the handler's signature does not give.
            body: Documentation of the request's body that the handler's signature does not give.
            calls_aggregator: Whether the problems of such a call are possible too.
            has_head: Whether HEAD is served at the path too; the OpenAPI document does not list it. For GET if None.
            dependencies: What else must hold for each request, as the framework's `Depends`.
        """
        listed = (*refusals, *(OF_AGGREGATOR if calls_aggregator else ()), Internal)
        errors = (*listed, RunDeleted) if RunNotFound in listed else listed

        def declare(handler: Handler) -> Handler:
            summary, _, description = inspect.cleandoc(handler.__doc__ or "").partition("\n")
            for name in (method, "HEAD") if (method == "GET" if has_head is None else has_head) else (method,):
                guarded = () if name in SAFE_METHODS else (403,)
                of_http = (problem.HTTP_PROBLEMS[code] for code in (*http_refusals, *guarded, 421))
                self.routes.append(
                    (KnownQuery if self._is_listed else APIRoute)(
                        path,
                        handler,
                        methods=[name],
                        tags=[self._tag],
                        dependencies=dependencies,
                        status_code=status,
                        responses=_problem_responses((*map(problem.kind_of, errors), *of_http)) | dict(responses or {}),
                        openapi_extra={}
                        if body is None
                        else {"requestBody": {"required": True, "content": dict(body)}},
                        operation_id=handler.__name__,
                        response_class=Response if _is_no_json(responses) else JSONResponse,
                        summary=summary,
                        description=description,
                        include_in_schema=self._is_listed and name == method,
                    )
                )
            return handler

        return declare


def _is_no_json(responses: Mapping[int | str, Any] | None) -> bool:
    """Whether the documented success is something else than JSON, so that the framework adds none to it."""
    content = (responses or {}).get(200, {}).get("content", {})
    return bool(content) and "application/json" not in content


def documented_answers(routes: Iterable[APIRoute]) -> Iterator[tuple[str, str, set[int]]]:
    """Yield the method, the path and the documented statuses of each route; HEAD, which says the same, is left out."""
    for route in routes:
        statuses = {int(status) for status in route.responses if status != "default"}
        for method in (route.methods or set()) - {"HEAD"}:
            yield method, route.path, {route.status_code or 200, *statuses}


def _problem_responses(kinds: Iterable[problem.Kind]) -> dict[int | str, Any]:
    """Documentation of an operation's problems by status; `default` covers refusals by HTTP itself."""
    by_status: dict[int, list[problem.Kind]] = {}
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    responses: dict[int | str, Any] = {
        status: problem_response(" ".join(f"{kind.code}: {kind.description}" for kind in found))
        for status, found in sorted(by_status.items())
    }
    return responses | {"default": problem_response("Any other problem.")}


def problem_response(text: str) -> dict[str, Any]:
    """Return the documentation of an answer that is a problem document."""
    schema = {"$ref": SCHEMA.format(model="Problem")}
    return {"description": text, "content": {problem.MEDIA_TYPE: {"schema": schema}}}
