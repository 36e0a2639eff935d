"""Problem documents."""

from __future__ import annotations

from pydantic import Field

from fedplcc.shared.documents.document import Document


class Problem(Document):
    """An error in the form of RFC 9457, with a stable `code` and facts for programs. Empty members are left out."""

    type: str
    """Reference to the description of this kind of problem, below this gateway."""
    title: str
    """Name of the kind of problem."""
    status: int = Field(ge=400, le=599)
    """The HTTP status."""
    detail: str | None = None
    """Sentence about this occurrence, for people."""
    instance: str | None = None
    """Path of the request."""
    code: str
    """The kind of problem in UPPER_SNAKE_CASE, for programs; never changes."""
    metadata: dict[str, str] | None = None
    """Facts, such as the run that already exists."""
    errors: list[FieldProblem] | None = None
    """The wrong fields of a request that does not have the documented form."""
    request_id: str | None = None
    """Id of the request, as in the X-Request-ID header and the logs."""


class FieldProblem(Document):
    """A problem of one field of a request."""

    location: str
    """The field: "query.page_size", "body.now"; in a configuration the key, "training.batch_size"."""
    detail: str
    """Sentence about the problem."""


class ProblemKind(Document):
    """A kind of problem; the `type` of a problem document refers to it."""

    type: str
    code: str
    title: str
    status: int
    description: str


class ProblemKinds(Document):
    """Every kind of problem of the gateway, by code."""

    problems: list[ProblemKind]
