"""Lists of clients with very many classes: each names some, says how many there are, and a page stays small."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fedplcc.command.files.config_init import _of_joined
from fedplcc.gateway.routes.clients import list_clients
from fedplcc.shared import documents
from fedplcc.shared.documents.clients import MAX_CLASS_CHARACTERS, MAX_CLASSES
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.types import Client


class Clients:
    """What a page asks of the aggregator."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients

    async def list_clients(self, *, after: str, limit: int) -> list[Client]:
        return [client for client in self.clients if client.client_id > after][:limit]


def a_client(number: int, num_classes: int, characters: int) -> Client:
    counts = {f"{index}".rjust(characters, "x"): 1 for index in range(num_classes)}
    return Client(client_id=f"client-{number:03}", domain="d", num_examples=num_classes, class_counts=counts)


def pages(clients: list[Client]) -> list[documents.ClientPage]:
    aggregator: Any = Clients(clients)
    found, token = list[documents.ClientPage](), ""
    while True:
        found.append(asyncio.run(list_clients(aggregator, page_size=100, page_token=token)))
        if found[-1].next_page_token is None:
            return found
        token = found[-1].next_page_token


def test_a_client_of_ten_thousand_long_class_names_is_a_short_document() -> None:
    client = a_client(0, 10_000, 400)
    document = documents.Client.of(client)
    assert document.num_classes == 10_000
    assert sum(map(len, document.class_counts)) <= MAX_CLASS_CHARACTERS
    assert list(document.class_counts) == list(client.class_counts)[: len(document.class_counts)]


def test_an_honest_client_is_listed_whole() -> None:
    client = a_client(0, MAX_CLASSES, 60)
    document = documents.Client.of(client)
    assert (document.class_counts, document.num_classes) == (client.class_counts, MAX_CLASSES)


def test_pages_of_such_clients_end_early_and_leave_nobody_out() -> None:
    clients = [a_client(number, 10_000, 400) for number in range(20)]
    found = pages(clients)
    assert all(len(page.model_dump_json()) < 1 << 20 for page in found)
    listed = [client.client_id for page in found for client in page.clients]
    assert listed == [client.client_id for client in clients]


def test_few_small_clients_are_one_page() -> None:
    assert [len(page.clients) for page in pages([a_client(number, 10, 8) for number in range(99)])] == [99]


def test_a_configuration_of_classes_that_no_list_names_wants_them_named() -> None:
    joined = [documents.Client.of(a_client(0, MAX_CLASSES + 1, 4)).model_copy(update={"is_connected": True})]
    with pytest.raises(InvalidConfig, match="client-000; name the run's classes with --classes"):
        _of_joined(joined, [], "https://there", [])
    document, notes, _ = _of_joined(joined, [], "https://there", ["0001", "0002"])
    assert document["data"]["classes"] == ["0001", "0002"]
    assert notes == ["more classes than a gateway lists: client-000; not all of them were compared"]
