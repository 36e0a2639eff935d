"""Problem documents (`application/problem+json`, RFC 9457) for all errors.

The `code` of a `FedplccError` is its reason; its HTTP status follows from its google.rpc code. Refusals by HTTP itself (an
unknown path or method, a body too large) have the codes of `HTTP_PROBLEMS`. Any other exception is INTERNAL with a fixed
text. `type` refers to a description of the kind of problem, which the gateway serves.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from fedplcc.shared.documents import FieldProblem, Problem, ProblemKind
from fedplcc.shared.errors import (
    BY_REASON,
    BlobTooLarge,
    ClientInOpenRun,
    FedplccError,
    Internal,
    InvalidTransition,
    MalformedRequest,
    RunDeleted,
    RunIsOpen,
    ScopeMissing,
)

MEDIA_TYPE = "application/problem+json"
PROBLEMS_PATH = "/v1/problems"
RETRY_AFTER_S = 1
"""Value of `Retry-After` where a retry may help and the error does not say when."""
MAY_PASS = frozenset({429, 503})
"""Statuses of problems that may pass."""
CHALLENGE = 'Bearer realm="fedplcc"'
"""Value of `WWW-Authenticate` (RFC 6750) where a key is missing, or is not enough."""
MAX_FIELD_PROBLEMS = 20
"""Most entries of `errors`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem."""

    code: str
    status: int
    description: str

    @property
    def title(self) -> str:
        """The code in words."""
        return self.code.replace("_", " ").capitalize()

    @property
    def type(self) -> str:
        """Reference to its description."""
        return f"{PROBLEMS_PATH}/{self.code}"

    @property
    def document(self) -> ProblemKind:
        """Its description."""
        return ProblemKind(
            type=self.type, code=self.code, title=self.title, status=self.status, description=self.description
        )


HTTP_PROBLEMS: Mapping[int, Kind] = MappingProxyType(
    {
        kind.status: kind
        for kind in (
            Kind(
                "CROSS_ORIGIN",
                403,
                "The request comes from a page of another site; open the gateway's own page, or use a program. "
                "A proxy in front of the gateway must serve HTTPS, or pass the browser's Host header on.",
            ),
            Kind("NOT_FOUND", 404, "Nothing is served at this path."),
            Kind(
                "METHOD_NOT_ALLOWED",
                405,
                "The path does not serve this method; `Allow` lists the methods that it serves.",
            ),
            Kind("LENGTH_REQUIRED", 411, "The request has no Content-Length."),
            Kind("CONTENT_TOO_LARGE", 413, "The request's body is larger than the gateway's limit."),
            Kind("UNSUPPORTED_MEDIA_TYPE", 415, "The request's body is not application/json."),
            Kind("RANGE_NOT_SATISFIABLE", 416, "The range begins after the last byte."),
            Kind(
                "MISDIRECTED_REQUEST",
                421,
                "The Host header has a name that the gateway does not answer to: use 127.0.0.1 or localhost, or list "
                "the gateway's names with --allowed-hosts.",
            ),
        )
    }
)
"""Refusals by HTTP itself, by status."""


_STATUS_OF: Mapping[type[FedplccError], int] = {
    BlobTooLarge: 413,  # the code's 429 says to try again
    RunDeleted: 410,
    InvalidTransition: 409,
    RunIsOpen: 409,
    ClientInOpenRun: 409,
}
"""Statuses of errors for which HTTP has a better one than their code's."""


def kind_of(error: type[FedplccError]) -> Kind:
    """Return the kind of problem of an error class."""
    status = _STATUS_OF.get(error, error.code.http_status)
    return Kind(error.reason, status, inspect.cleandoc(error.__doc__ or ""))


KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        **{kind.code: kind for kind in HTTP_PROBLEMS.values()},
        **{reason: kind_of(error) for reason, error in sorted(BY_REASON.items())},
    }
)
"""Every kind of problem by code."""


class ProblemResponse(JSONResponse):
    """A problem document."""

    media_type = MEDIA_TYPE

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        self.problem = problem
        super().__init__(problem.model_dump(mode="json", exclude_none=True), problem.status, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, and keep it in the scope for the request's log line."""
        scope.setdefault("state", {})["problem"] = self.problem
        await super().__call__(scope, receive, send)


def problem_of(error: FedplccError, *, instance: str | None = None, request_id: str | None = None) -> Problem:
    """Return the problem document of an error; a bug's document has a fixed text and no metadata."""
    kind = kind_of(type(error))
    is_bug = type(error).reason == Internal.reason
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail="the gateway or the aggregator had an unexpected error" if is_bug else error.detail,
        instance=instance,
        code=kind.code,
        metadata=dict(error.metadata) or None if not is_bug else None,
        request_id=request_id,
    )


def respond(error: FedplccError, scope: Mapping[str, Any]) -> ProblemResponse:
    """Return the response for an error."""
    problem = problem_of(error, **_where(scope))
    headers: dict[str, str] = {}
    if problem.status in MAY_PASS:
        headers["Retry-After"] = error.metadata.get("retry_after_s", str(RETRY_AFTER_S))
    if isinstance(error, ScopeMissing):
        headers["WWW-Authenticate"] = f'{CHALLENGE}, error="insufficient_scope"'
    elif problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = CHALLENGE
    return ProblemResponse(problem, headers)


def respond_http(
    status: int, detail: str | None, scope: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> ProblemResponse:
    """Return the response for a refusal by HTTP itself."""
    kind = HTTP_PROBLEMS.get(status) or kind_of(MalformedRequest if status < 500 else Internal)
    problem = Problem(
        type=kind.type,
        title=kind.title,
        status=status,
        detail=detail or kind.description,
        code=kind.code,
        **_where(scope),
    )
    return ProblemResponse(problem, headers)


async def on_error(request: Request, error: Exception) -> Response:
    """Answer a `FedplccError`."""
    assert isinstance(error, FedplccError)
    return respond(error, request.scope)


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Answer a request that does not have the documented form, with a problem for each wrong field."""
    assert isinstance(error, RequestValidationError)
    found = [_field_problem(entry) for entry in error.errors()[:MAX_FIELD_PROBLEMS]]
    detail = "; ".join(f"{entry.location}: {entry.detail}" for entry in found)
    problem = problem_of(MalformedRequest(detail), **_where(request.scope))
    return ProblemResponse(problem.model_copy(update={"errors": found}))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer a refusal by the framework: an unknown path or method, an unreadable body."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(allowed_methods(request))
    has_own_words = error.detail != HTTPStatus(error.status_code).phrase
    return respond_http(error.status_code, error.detail if has_own_words else None, request.scope, headers)


HANDLERS: Mapping[Any, Any] = MappingProxyType(
    {FedplccError: on_error, RequestValidationError: on_invalid_request, HTTPException: on_http_exception}
)
"""Exception handlers of the application; the outermost middleware answers all other exceptions."""


def allowed_methods(request: Request) -> Sequence[str]:
    """Return the methods that any route serves at the request's path."""
    allowed: set[str] = set()
    for route in request.app.routes:
        methods = getattr(route, "methods", None) or ()
        for method in methods:
            match, _ = route.matches({**request.scope, "method": method})
            if match is Match.FULL:
                allowed.add(method)
    return sorted(allowed)


def _where(scope: Mapping[str, Any]) -> dict[str, Any]:
    return {"instance": scope["path"], "request_id": scope.get("state", {}).get("request_id")}


def _field_problem(entry: Mapping[str, Any]) -> FieldProblem:
    location = ".".join(str(part) for part in entry["loc"])
    message = str(entry["msg"])
    return FieldProblem(location=location, detail=message[:1].lower() + message[1:])
