"""What calls leave behind, by a sample of calls of each kind; `make chaos ARGS="written_bytes"` makes a thousand of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.servicer.round_service import RoundServicer
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2 as round_pb
from fedplcc.shared.types import Event
from tests.chaos.written_bytes import (
    BODIES,
    CHANGED,
    OPERATIONS,
    Asked,
    Served,
    problem_of_rest,
    problem_of_rpc,
    text,
)
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.federation.served_gateway import ServedGateway
from tests.support.hosts.memory_folder import memory_folder

OF_RPC, OF_REST = 200, 40


@pytest.fixture
def federation(folder: Path) -> Iterator[LocalFederation]:
    with LocalFederation(folder, map(NumpyClient, ("ann", "bob"))) as federation:
        federation.join()
        yield federation


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with memory_folder() as path, ServedGateway(Path(path)) as gateway:
        yield gateway, Path(path)


def test_each_rpc_of_members_and_each_body_is_changed(covered: Callable[[str], None]) -> None:
    covered(f"{len(CHANGED)} RPCs, {OF_RPC} calls of each; {len(OPERATIONS)} operations, {OF_REST} requests of each")
    (service,) = round_pb.DESCRIPTOR.services_by_name.values()
    assert set(CHANGED) == {method.name for method in service.methods}
    assert {name for name, (_, _, operation) in OPERATIONS.items() if "requestBody" in operation} == BODIES.keys()


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_what_a_call_leaves_is_bounded(federation: LocalFederation, folder: Path, name: str) -> None:
    assert problem_of_rpc(federation, folder, name, OF_RPC) == ""


class Planted(RoundServicer):
    """A servicer with the fault that is searched for: a call whose whole request becomes an event."""

    async def Join(self, request: round_pb.JoinRequest, context: Any) -> round_pb.JoinResponse:
        with self._coordinator._store.transaction() as transaction:
            transaction.add_event(Event(type="client_joined", data={"all": str(request)}))
        return await super().Join(request, context)


def test_a_call_that_writes_down_its_request_is_found(federation: LocalFederation, folder: Path) -> None:
    found = problem_of_rpc(federation, folder, "Join", OF_RPC, Planted)
    assert found.startswith(f"{OF_RPC} calls of Join sent")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if method == "get" else ())
        for name, (method, *_) in OPERATIONS.items()
    ],
)
def test_what_a_request_leaves_is_bounded(name: str, served: Served) -> None:
    assert problem_of_rest(name, served, OF_REST) == ""


def test_a_request_that_is_written_down_whole_is_found(served: Served) -> None:
    def plant(gateway: ServedGateway, asked: Asked) -> None:
        with gateway.federation.store.transaction() as transaction:
            transaction.add_event(Event(type="client_joined", data={"all": text(asked.number, 16_000)}))

    assert problem_of_rest("get_run", served, OF_REST, plant).startswith(f"{OF_REST} requests of get_run sent")
