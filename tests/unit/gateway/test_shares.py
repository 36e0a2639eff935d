"""Shares of the gateway's places and rates: one caller takes all it can, another is served."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http.guards.slots import Slots
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.errors import Overloaded


def taken(slots: Slots, key: str, held: ExitStack) -> int:
    """How many places a key gets, which it keeps."""
    token = caller_key.set(key)
    try:
        for number in range(1000):
            try:
                held.enter_context(slots.taken())
            except Overloaded:
                return number
    finally:
        caller_key.reset(token)
    return 1000


@pytest.mark.parametrize("name", ["streams", "downloads"])
def test_one_key_leaves_places_for_another(name: str) -> None:
    slots: Slots = getattr(Services(metrics=GatewayMetrics()), name)
    free = slots.num_free
    with ExitStack() as held:
        assert 0 < taken(slots, "greedy", held) <= free // 2
        assert taken(slots, "operator", held) > 0
    assert (slots.num_free, slots._held) == (free, {})


def test_without_keys_anyone_is_one_caller() -> None:
    with ExitStack() as held:
        assert taken(Slots(8, "no place", share=4), "", held) == 8
