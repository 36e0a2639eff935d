"""Operation on the models that runs can begin with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

from fastapi import Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.routes.dependencies import Aggregator, needs
from fedplcc.shared import documents, types
from fedplcc.shared.errors import BlobCorrupt, BlobTooLarge, ChunkOutOfOrder, InvalidModel, Overloaded, TransferIdle
from fedplcc.shared.identity.api_keys import Scope

OPERATIONS = Operations("runs")
MODELS_PATH = "/v1/models/"
MAX_DIGITS = 20
"""Digits of a Content-Length that are looked at: more than any size has."""
DRAIN_S = 10.0
"""Time for which the rest of a refused body is read."""
MAX_SIZE = 2**63 - 1
"""Largest size that the protocol can express; the aggregator's limit is far below."""


@OPERATIONS.add(
    "PUT",
    f"{MODELS_PATH}{{sha256}}",
    refusals=(BlobCorrupt, BlobTooLarge, InvalidModel, ChunkOutOfOrder, Overloaded, TransferIdle),
    http_refusals=(411,),
    body={"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    # Asked first, in a call of its own: the reason of a refusal is lost where it meets a piece that is being sent.
    dependencies=(needs(Scope.RUN),),
)
async def put_model(
    request: Request,
    aggregator: Aggregator,
    sha256: Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the file.")],
    name: Annotated[
        str,
        Query(pattern=r"^[^\x00-\x1f\x7f]{0,256}$", description="A name for people, for the history of its runs."),
    ] = "",
) -> documents.InitialModel:
    """Store a model that runs can begin with.

    The body is a safetensors file of float32 and int64 tensors. A run begins with it if its configuration has the answer's
    `initial_model` as `run.initial_model`. Storing the same file again changes nothing. A model that no run has is removed
    after some days, or where uploads of clients lack room.
    """
    announced = request.headers.get("content-length", "")
    if not (announced.isascii() and announced.isdigit()):
        raise HTTPException(411)
    size_bytes = int(announced[:MAX_DIGITS])
    if size_bytes > MAX_SIZE:
        raise BlobTooLarge(f"no model may have {announced[:MAX_DIGITS]} bytes")
    blob, pieces = types.BlobRef(types.MODEL, sha256, size_bytes), request.stream()
    try:
        await aggregator.store_model(blob, name, pieces)
    finally:
        await _drain(pieces)
    return documents.InitialModel.of(blob)


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read the rest of a body for a while: most senders read no answer before they have sent everything."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN_S):
            async for _ in pieces:
                pass
