"""Documents of the health endpoints."""

from __future__ import annotations

from shared.documents.document import Document


class Health(Document):
    """That a process is there."""

    status: str
    service: str
    version: str


class Readiness(Health):
    """What a process needs, and whether it has it."""

    checks: dict[str, str]
    """By part: "ok"."""
