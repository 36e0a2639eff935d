"""Documents of errors (RFC 9457)."""

from __future__ import annotations

from pydantic import Field

from shared.documents.document import Document


class Problem(Document):
    """An error as RFC 9457 writes it, with a stable `code` and facts for programs. Members without a value are left out."""

    type: str
    """Reference to the description of this kind of problem, below this gateway."""
    title: str
    """What kind of problem it is; the same for all of a kind."""
    status: int = Field(ge=400, le=599)
    """The HTTP status."""
    detail: str | None = None
    """What happened here, a sentence for a person."""
    instance: str | None = None
    """The path that was asked for."""
    code: str
    """The kind of problem in UPPER_SNAKE_CASE; never changes. Programs decide by this."""
    metadata: dict[str, str] | None = None
    """Facts, such as the run that already exists."""
    errors: list[FieldProblem] | None = None
    """What is wrong where, when a request does not have the documented form."""
    request_id: str | None = None
    """The request's id, as in the X-Request-ID header and the logs."""


class FieldProblem(Document):
    """One thing that is wrong with a request."""

    location: str
    """Where: "query.page_size", "body.now"; of a configuration its key, "training.batch_size"."""
    detail: str
    """What is wrong."""


class ProblemKind(Document):
    """A kind of problem: what `type` of a problem document refers to."""

    type: str
    code: str
    title: str
    status: int
    description: str


class ProblemKinds(Document):
    """Every kind of problem that the gateway answers with, by code."""

    problems: list[ProblemKind]
