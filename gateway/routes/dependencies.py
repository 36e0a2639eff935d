"""The services that the application hands to its handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from fedplcc.gateway.http.guards.forwarded import Network
from fedplcc.gateway.http.guards.rate_limits import RateLimits
from fedplcc.gateway.http.guards.slots import Slots, Turns
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.messages.couriers import Couriers
from fedplcc.gateway.refused_requests import RefusedRequests
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.errors import AggregatorUnavailable, ScopeMissing
from fedplcc.shared.identity.api_keys import Scope, includes
from fedplcc.shared.wire.peer_versions import check_version

MAX_EVENT_STREAMS = 256
"""Event streams open at a time; each holds a call to the aggregator open."""
MAX_EVENT_STREAMS_OF_A_KEY = 64
"""The same of one key: a reader's key leaves places for the operator's."""
MAX_DOWNLOADS = 8
"""Models, prototypes and lines of rounds that are sent at a time; each holds a call to the aggregator and its pieces."""
MAX_DOWNLOADS_OF_A_KEY = 4
"""The same of one key."""
MAX_TURNS = 16
"""Configurations that wait to be read or checked, which is done one at a time; each has up to `MAX_BODY_BYTES`."""
MAX_TURNS_OF_A_KEY = 8
"""The same of one key."""


def _downloads() -> Slots:
    held = f"{MAX_DOWNLOADS} downloads are running, or {MAX_DOWNLOADS_OF_A_KEY} with this key"
    return Slots(MAX_DOWNLOADS, f"{held}; try again when one has ended", MAX_DOWNLOADS_OF_A_KEY)


def _streams() -> Slots:
    refusal = (
        f"{MAX_EVENT_STREAMS} event streams are open, or {MAX_EVENT_STREAMS_OF_A_KEY} with this key; "
        "read pages with ?page_token= instead"
    )
    return Slots(MAX_EVENT_STREAMS, refusal, MAX_EVENT_STREAMS_OF_A_KEY)


def _turns() -> Turns:
    held = f"{MAX_TURNS} configurations wait to be read, or {MAX_TURNS_OF_A_KEY} with this key"
    return Turns("configurations", MAX_TURNS, f"{held}; try again in a moment", MAX_TURNS_OF_A_KEY)


@dataclass(slots=True)
class Services:
    """Services of one application."""

    metrics: GatewayMetrics
    host_names: frozenset[str] | None = None
    """Names besides those of loopback that a Host header may have; None for any."""
    asks_keys: bool = False
    """Whether requests need a key; otherwise anyone may call."""
    federation: str = ""
    """Id of the federation; empty where anyone may call, and until the gateway has joined."""
    is_exposed: bool = False
    """Whether anyone may call, and other machines reach the gateway or its aggregator."""
    strict_transport_s: int = 0
    """Seconds for which browsers shall use HTTPS only; 0 for no such header."""
    trusted_proxies: tuple[Network, ...] = ()
    """Networks of the proxies whose word on a request's client is believed."""
    rate_limits: RateLimits = field(default_factory=lambda: RateLimits(200.0, 100.0, 20.0))
    """What every address and key may still do."""
    refused_requests: RefusedRequests = field(default_factory=RefusedRequests)
    """What the aggregator's audit is to be told."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway stops; event streams end then."""
    streams: Slots = field(default_factory=_streams)
    """Taken by open event streams."""
    downloads: Slots = field(default_factory=_downloads)
    """Taken by downloads."""
    turns: Turns = field(default_factory=_turns)
    """Reads and checks configurations beside the event loop."""
    couriers: Couriers | None = None
    """Deliver messages to people; None where the gateway has no receivers."""
    aggregator: RunServiceClient | None = None
    """Set while the application is up and the gateway is a member of a federation, or speaks plain text."""


def services_of(request: Request) -> Services:
    """Return the services of the application that serves a request."""
    found: Services = request.app.state.services
    return found


def _aggregator(request: Request) -> RunServiceClient:
    check_version(request.headers.get("user-agent", ""))
    client = services_of(request).aggregator
    if client is None:
        raise AggregatorUnavailable("the gateway has not joined a federation yet; its log says why", part="aggregator")
    return client


Aggregator = Annotated[RunServiceClient, Depends(_aggregator)]


def needs(scope: Scope) -> Any:
    """Return the dependency of an operation that makes no other call of the aggregator: the key must have this scope.

    It raises KeyInvalid for a key that is unknown, expired or revoked, and ScopeMissing.
    """

    async def require(request: Request) -> None:
        if not services_of(request).asks_keys:
            return
        caller = await _aggregator(request).get_caller()
        if not includes({Scope(name) for name in caller.scopes}, scope):
            missing = ScopeMissing(f"the key has not the scope {scope}", scope=scope)
            services_of(request).metrics.refused(missing)
            raise missing

    return Depends(require)
