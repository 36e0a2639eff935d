"""Operation that returns the audit in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from gateway.http.operations import Operations
from gateway.routes.dependencies import Aggregator
from gateway.routes.events import MAX_SEQUENCE
from shared import documents

OPERATIONS = Operations("federation")


@OPERATIONS.add("GET", "/v1/audit")
async def list_audit(
    aggregator: Aggregator,
    after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Only entries after this number.")] = 0,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> documents.AuditPage:
    """List who changed what and who was refused, in order.

    `fedplcc audit --verify` checks the chain of the hashes.
    """
    return documents.AuditPage.of(await aggregator.list_audit(after=after, limit=page_size), after=after)
