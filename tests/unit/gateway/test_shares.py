"""Shares of the gateway's places and rates: one caller takes all it can, another is served."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware

from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.http import problem
from fedplcc.gateway.http.guards.cross_site_guard import CrossSiteGuard, SafeAnswers
from fedplcc.gateway.http.guards.rate_limits import AddressLimit, RateLimits
from fedplcc.gateway.http.guards.slots import Slots
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.http.middleware import RequestContext
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.errors import Overloaded

REFUSED: list[tuple[str, dict[str, str]]] = [
    ("POST", {"Origin": "https://evil.example"}),
    ("POST", {"Origin": "http://["}),
    ("GET", {"Host": "evil.example"}),
]


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


@pytest.mark.parametrize(("method", "headers"), REFUSED)
def test_refusals_are_counted_and_a_good_key_at_that_address_is_served(method: str, headers: dict[str, str]) -> None:
    app = FastAPI(
        middleware=[Middleware(each) for each in (RequestContext, SafeAnswers, AddressLimit, CrossSiteGuard)],
        exception_handlers=dict(problem.HANDLERS),
    )
    app.add_api_route("/thing", lambda: {}, methods=["GET", "POST"])
    services = Services(metrics=GatewayMetrics(), host_names=frozenset(), rate_limits=RateLimits(0.001, 100, 20))
    services.rate_limits.addresses._most = 5.0
    app.state.services = services
    services.rate_limits.judge(hashlib.sha256(b"good").digest(), is_good=True)

    async def exchange() -> tuple[set[int], int, int]:
        transport: Any = httpx.ASGITransport(app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = [await client.request(method, "/thing", headers=headers) for _ in range(50)]
            assert all(answer.headers["x-content-type-options"] == "nosniff" for answer in answers)
            stranger = await client.get("/thing")
            operator = await client.get("/thing", headers={"Authorization": "Bearer good"})
        statuses = [answer.status_code for answer in answers]
        assert statuses[-40:] == [429] * 40
        return set(statuses), stranger.status_code, operator.status_code

    statuses, stranger, operator = asyncio.run(exchange())
    assert statuses <= {403, 421, 429}
    assert (stranger, operator) == (429, 200)
