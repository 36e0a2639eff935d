"""Operation that returns the audit in pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.routes.dependencies import Aggregator
from fedplcc.gateway.routes.events import MAX_SEQUENCE
from fedplcc.gateway.routes.parameters import PageToken
from fedplcc.shared import documents
from fedplcc.shared.convert.reading.page_tokens import number_of, token_of

OPERATIONS = Operations("federation")


@OPERATIONS.add("GET", "/v1/audit")
async def list_audit(
    aggregator: Aggregator,
    after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="Only entries after this number.")] = 0,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 500,
    page_token: PageToken = "",
) -> documents.AuditPage:
    """List who changed what and who was refused, in order.

    `fedplcc state audit --verify` checks the chain of the hashes.
    """
    place = number_of("audit", page_token, most=MAX_SEQUENCE) if page_token else 0
    entries = await aggregator.list_audit(after=max(after, place), limit=page_size)
    following = token_of("audit", entries[-1].number) if len(entries) == page_size else None
    return documents.AuditPage.of(entries, following)
