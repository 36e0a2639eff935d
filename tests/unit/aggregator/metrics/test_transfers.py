"""Bytes that move, and what of them had moved before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.transfers import REMEMBERED, Direction, Furthest, Transfer
from fedplcc.shared.types import TaskKey, TaskKind

Move = Callable[..., None]
TRAIN: TaskKey = ("run", 2, TaskKind.TRAIN, 0)
EVALUATE: TaskKey = ("run", 1, TaskKind.EVALUATE, 0)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def move(registry: CollectorRegistry) -> Move:
    transfers = AggregatorMetrics(registry).transfers

    def piece(
        offset_bytes: int,
        num_bytes: int,
        *,
        direction: Direction = "sent",
        client_id: str = "ann",
        task: TaskKey = TRAIN,
        sha256: str = "ab",
    ) -> None:
        transfer = Transfer(direction, client_id, task, sha256)
        transfers.moved(transfer, kind="model", offset_bytes=offset_bytes, num_bytes=num_bytes)

    return piece


def resent(registry: CollectorRegistry, direction: Direction = "sent") -> float | None:
    return registry.get_sample_value("fedplcc_transfer_resent_bytes_total", {"direction": direction})


def test_a_transfer_that_goes_on_where_it_ended_sends_nothing_twice(registry: CollectorRegistry, move: Move) -> None:
    for offset in (0, 100, 200):
        move(offset, 100)
    assert resent(registry) == 0
    assert registry.get_sample_value("fedplcc_transfer_bytes_total", {"direction": "sent", "kind": "model"}) == 300


def test_what_was_on_its_way_when_a_connection_broke_is_sent_again(registry: CollectorRegistry, move: Move) -> None:
    move(0, 100)
    move(100, 100)
    move(150, 100)
    assert resent(registry) == 50
    move(0, 250)
    assert resent(registry) == 300, "and from the beginning, by a trainer that lost it"
    move(250, 50)
    assert resent(registry) == 300


def test_clients_tasks_blobs_and_directions_have_nothing_to_do_with_each_other(
    registry: CollectorRegistry, move: Move
) -> None:
    move(0, 100)
    move(0, 100, client_id="bob")
    move(0, 100, sha256="cd")
    move(0, 100, task=EVALUATE)
    move(0, 100, direction="received")
    assert (resent(registry), resent(registry, "received")) == (0, 0)
    move(0, 100, direction="received")
    assert (resent(registry), resent(registry, "received")) == (0, 100)


def test_no_more_transfers_are_remembered_than_the_bound_says() -> None:
    furthest = Furthest()
    moving = Transfer("sent", "ann", TRAIN, "moves all the time")
    for index in range(2 * REMEMBERED):
        assert furthest.again(Transfer("sent", "ann", TRAIN, str(index)), 0, 10) == 0
        assert furthest.again(moving, index, 1) == 0
    assert len(furthest._ends) == REMEMBERED
    assert furthest.again(Transfer("sent", "ann", TRAIN, "0"), 0, 10) == 0, "forgotten"
    assert furthest.again(moving, 0, 1) == 1
