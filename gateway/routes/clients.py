"""Operation on the clients of the federation."""

from __future__ import annotations

from gateway.http.operations import Operations
from gateway.routes.dependencies import Aggregator
from shared import documents

OPERATIONS = Operations("federation")


@OPERATIONS.add("GET", "/v1/clients")
async def list_clients(aggregator: Aggregator) -> documents.ClientList:
    """List every client that ever joined, with its present activity."""
    return documents.ClientList(clients=[documents.Client.of(client) for client in await aggregator.list_clients()])
