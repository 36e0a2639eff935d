"""Documents of health checks."""

from __future__ import annotations

from fedplcc.shared.documents.document import Document


class Health(Document):
    """A process that serves."""

    status: str
    service: str
    version: str


class Readiness(Health):
    """A process that serves and reaches the parts that it needs."""

    checks: dict[str, str]
    """By part: "ok"."""
