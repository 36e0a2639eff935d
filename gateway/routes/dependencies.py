"""The services that the application hands to its handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from gateway.http.metrics import GatewayMetrics
from gateway.run_service import RunServiceClient

MAX_EVENT_STREAMS = 256
"""Event streams open at a time; each holds a call to the aggregator open."""


@dataclass(slots=True)
class Services:
    """Services of one application."""

    metrics: GatewayMetrics
    host_names: frozenset[str] | None = None
    """Names besides those of loopback that a Host header may have; None for any."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway stops; event streams end then."""
    stream_slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_EVENT_STREAMS))
    """Taken by open event streams."""
    aggregator: RunServiceClient | None = None
    """Set while the application is up."""


def services_of(request: Request) -> Services:
    """Return the services of the application that serves a request."""
    found: Services = request.app.state.services
    return found


def _aggregator(request: Request) -> RunServiceClient:
    client = services_of(request).aggregator
    assert client is not None, "the application's lifespan has not begun"
    return client


Aggregator = Annotated[RunServiceClient, Depends(_aggregator)]
