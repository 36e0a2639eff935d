"""Operations on the clients of the federation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query

from fedplcc.gateway.http.described.operations import Operations
from fedplcc.gateway.routes.dependencies import Aggregator
from fedplcc.gateway.routes.parameters import ClientId, PageToken
from fedplcc.shared import documents
from fedplcc.shared.bounds import NAME_PATTERN
from fedplcc.shared.convert.reading.page_tokens import place_of, refused_token, token_of
from fedplcc.shared.errors import ClientInOpenRun, ClientNotFound
from fedplcc.shared.types import Client, LogLevel

OPERATIONS = Operations("federation")
MAX_PAGE_CHARACTERS = 512 << 10
"""Most characters of class names on a page of several clients."""
MAX_NUMBER = 2**53 - 1
"""Largest number of a log line that every client of REST can count to."""


@OPERATIONS.add("GET", "/v1/clients")
async def list_clients(
    aggregator: Aggregator,
    page_size: Annotated[int, Query(ge=1, le=1000)] = 500,
    page_token: PageToken = "",
) -> documents.ClientPage:
    """List the clients that ever joined by id, with their present activity.

    A page ends early where its clients have many classes; `next_page_token` says whether there are more.
    """
    found = await aggregator.list_clients(after=_client_of(page_token), limit=page_size)
    clients = _page(found)
    is_cut = len(clients) < len(found) or len(found) == page_size
    following = token_of("clients", clients[-1].client_id) if is_cut else None
    return documents.ClientPage(clients=clients, next_page_token=following)


@OPERATIONS.add("GET", "/v1/clients/{client_id}/log", refusals=(ClientNotFound,))
async def get_client_log(
    aggregator: Aggregator,
    client_id: ClientId,
    level: Annotated[
        Literal["error", "warning", "info"], Query(description="Only lines of this level or a graver one.")
    ] = "info",
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Only lines with a greater number.")] = 0,
) -> documents.ClientLog:
    """Return the log lines of a client's trainer that the owner of its site lets out, oldest first. Needs scope `run`.

    The aggregator has the newest 200 at most, in memory: they are gone when it ends.
    """
    return documents.ClientLog.of(await aggregator.client_log(client_id, after=after, level=LogLevel(level)))


@OPERATIONS.add("DELETE", "/v1/clients/{client_id}", refusals=(ClientNotFound, ClientInOpenRun))
async def forget_client(aggregator: Aggregator, client_id: ClientId) -> documents.Client:
    """Forget a client that takes part in no open run, and return it as it was. If it joins again, it is new.

    What it did in runs that have ended stays in their results. Its certificate holds on until it is revoked.
    """
    return documents.Client.of(await aggregator.forget_client(client_id))


def _page(clients: Sequence[Client]) -> list[documents.Client]:
    """Return the documents of the first clients: one, and more while their class names are not too long together."""
    page, num_characters = list[documents.Client](), 0
    for client in clients:
        document = documents.Client.of(client)
        num_characters += sum(map(len, document.class_counts))
        if page and num_characters > MAX_PAGE_CHARACTERS:
            break
        page.append(document)
    return page


def _client_of(page_token: str) -> str:
    """Return the client after which a page begins; empty for the first page."""
    if not page_token:
        return ""
    place = place_of("clients", page_token)
    if len(place) != 1 or not isinstance(place[0], str) or not re.fullmatch(NAME_PATTERN, place[0]):
        raise refused_token()
    return place[0]
