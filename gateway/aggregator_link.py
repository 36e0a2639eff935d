"""The gateway's connection to the aggregator, made anew when its certificate is renewed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc.aio

from gateway.routes.dependencies import Services
from gateway.run_service import RunServiceClient
from shared.config.settings import GatewaySettings
from shared.errors import FedplccError
from shared.identity.credentials import Credentials
from shared.wire.channels import open_aio_channel
from shared.wire.renewal import Renewal
from shared.wire.tls import ClientTls, require_identity

DRAIN_S = 3600.0
"""Longest time for which calls in progress go on over the connection of an older certificate."""


class AggregatorLink:
    """The connection that `Services.aggregator` uses; made and closed on the event loop."""

    def __init__(self, settings: GatewaySettings, services: Services) -> None:
        """Open the connection, and renew the gateway's certificate from now on.

        Raises:
            InvalidConfig: There is no certificate, or it cannot be read.
        """
        self._settings, self._services = settings, services
        self._loop = asyncio.get_running_loop()
        self._draining: set[asyncio.Task[None]] = set()
        self._renewal = self._held_renewal()
        self._channel = self._open()
        if self._renewal is not None:
            self._renewal.start()

    async def close(self) -> None:
        """End every call and close the connections."""
        if self._renewal is not None:
            self._renewal.close()
        for task in self._draining:
            task.cancel()
        await self._channel.close(None)

    def _held_renewal(self) -> Renewal | None:
        settings = self._settings
        if settings.insecure:
            return None
        require_identity(settings.state_dir)
        return Renewal(
            settings.state_dir,
            settings.aggregator,
            self._renewed,
        )

    def _open(self) -> grpc.aio.Channel:
        settings, renewal = self._settings, self._renewal
        channel = open_aio_channel(
            settings.aggregator,
            tls=None if renewal is None else ClientTls(lambda: renewal.held),
            insecure=settings.insecure,
            http_proxy=settings.http_proxy or "",
            keepalive_s=settings.keepalive_s,
        )
        self._services.aggregator = RunServiceClient(channel, settings.aggregator)
        return channel

    def _renewed(self, _credentials: Credentials) -> None:
        self._loop.call_soon_threadsafe(self._reopen)

    def _reopen(self) -> None:
        """Use a connection with the new certificate; what is in progress ends over the old one."""
        old, self._channel = self._channel, self._open()
        for work in (old.close(DRAIN_S), self._show_certificate()):
            task = self._loop.create_task(work)
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)

    async def _show_certificate(self) -> None:
        """Make a call with the new certificate: streams outlive the old one only if the aggregator has seen a newer one."""
        assert self._services.aggregator is not None
        with suppress(FedplccError):  # the next request shows it
            await self._services.aggregator.get_caller()
