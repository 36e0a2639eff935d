"""The gateway's connection to the aggregator, made when it has joined and anew when its certificate is another one."""

from __future__ import annotations

import asyncio
import contextlib

import grpc.aio

from fedplcc.gateway.joining import join_by_file
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.gateway.spread_channel import CONNECTIONS, SpreadChannel
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import AggregatorUnavailable, FedplccError
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.process.certificate_metrics import CertificateSpan
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.channels import open_aio_channel
from fedplcc.shared.wire.enrolling.renewal import Renewal
from fedplcc.shared.wire.tls import ClientTls
from fedplcc.shared.wire.trouble.connection_trouble import LOOK_AGAIN_S, cause_of_failure

DRAIN_S = 3600.0
"""Longest time for which calls in progress go on over the connection of an older certificate."""
REPORT_S = 2.0
"""Time between two reports of what was refused here."""
LAST_REPORT_S = 1.0
"""Longest time for which the end waits for the last report."""
LOOK_S = 1.0
"""Time between two looks at the identity in the state directory."""
REFUSED_S = 10.0
"""Time between two attempts to join by an invitation that is not taken: an address has 10 calls a minute."""
EXPLAIN_S = 1.0
"""Longest time for which a request waits for the cause of a failing connection."""

log = get_logger("fedplcc.gateway.aggregator_link")


class AggregatorLink:
    """The connection that `Services.aggregator` uses; made and closed on the event loop.

    A gateway that has not joined looks for an invitation, and serves without an aggregator until then. It speaks TLS unless
    it was told `--insecure`: no answer of an aggregator makes it ask for no keys.
    """

    def __init__(self, settings: GatewaySettings, services: Services) -> None:
        """Open the connection if there is a certificate, and renew that from now on.

        Raises:
            InvalidConfig: The certificate cannot be read.
        """
        self._settings, self._services = settings, services
        self._loop = asyncio.get_running_loop()
        self._draining: set[asyncio.Task[None]] = set()
        self._renewal: Renewal | None = None
        self._channels: list[grpc.aio.Channel] = []
        self._explaining: asyncio.Task[None] | None = None
        self._cause: AggregatorUnavailable | None = None
        self._found_at = float("-inf")
        self._unknown_serial = ""
        self._following: asyncio.Task[None] | None = None
        self._said = ""
        services.metrics.certificates.follow(self._spans)
        self._reporting = self._loop.create_task(self._report())
        if settings.insecure:
            self._open()
            return
        if (settings.state_dir / IDENTITY_FILE).is_file():
            self._connect()
        self._following = self._loop.create_task(self._follow())

    async def close(self) -> None:
        """End every call and close the connections."""
        if self._renewal is not None:
            self._renewal.close()
        with contextlib.suppress(FedplccError, TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S):
                await self._report_once()
        for task in (*self._draining, self._following, self._explaining, self._reporting):
            if task is not None:
                task.cancel()
        for channel in self._channels:
            await channel.close(None)

    def _spans(self) -> list[CertificateSpan]:
        """The gateway's own certificate, for its metrics; none before it joined."""
        return [] if self._renewal is None else [self._renewal.held.span]

    async def explained(self, error: AggregatorUnavailable) -> AggregatorUnavailable:
        """Return an error that names the cause, where one is found; else the error itself."""
        if self._loop.time() >= self._found_at + LOOK_AGAIN_S:
            if self._explaining is None:
                self._explaining = self._loop.create_task(self._look_for_cause())
            await asyncio.wait({self._explaining}, timeout=EXPLAIN_S)
        cause = self._cause
        return error if cause is None else type(cause)(cause.detail, part="aggregator")

    async def _report(self) -> None:
        """Tell the aggregator's audit what was refused here."""
        while True:
            await asyncio.sleep(REPORT_S)
            try:
                await self._report_once()
            except FedplccError as error:
                log.debug("not_reported", reason=error.reason, detail=error.detail)

    async def _report_once(self) -> None:
        refused, aggregator = self._services.refused_requests, self._services.aggregator
        taken = refused.take() if aggregator is not None else []
        if aggregator is None or not taken:
            return
        try:
            await aggregator.report_refusals(taken)
        except FedplccError:
            refused.put_back(taken)
            raise

    async def _look_for_cause(self) -> None:
        settings, renewal = self._settings, self._renewal
        held = None if renewal is None else renewal.held
        try:
            cause = await asyncio.to_thread(
                cause_of_failure, settings.aggregator, held, http_proxy=settings.http_proxy or ""
            )
            if cause is not None and (self._cause is None or cause.detail != self._cause.detail):
                log.warning("cannot_connect", reason=cause.reason, detail=cause.detail)
            self._cause, self._found_at = cause, self._loop.time()
        finally:
            self._explaining = None

    def _connect(self) -> None:
        """Use the certificate in the state directory, and renew it."""
        held = Credentials.load(self._settings.state_dir / IDENTITY_FILE)
        if held.address and "aggregator" not in self._settings.model_fields_set:
            self._settings = self._settings.model_copy(update={"aggregator": held.address})
            log.info("aggregator_told", aggregator=held.address)
        renewal = Renewal(
            self._settings.state_dir,
            self._settings.aggregator,
            self._renewed,
            http_proxy=self._settings.http_proxy or "",
        )
        if self._renewal is not None:
            self._renewal.close()
        self._renewal = renewal
        self._reopen()
        renewal.start()

    def _renewed(self, _credentials: Credentials) -> None:
        self._loop.call_soon_threadsafe(self._reopen)

    def _reopen(self) -> None:
        """Use a connection with the certificate of the moment; what is in progress ends over the old one."""
        old = self._channels
        self._open()
        if old:
            for work in (*(channel.close(DRAIN_S) for channel in old), self._show_certificate()):
                task = self._loop.create_task(work)
                self._draining.add(task)
                task.add_done_callback(self._draining.discard)

    async def _show_certificate(self) -> None:
        """Make a call with the new certificate: streams outlive the old one only if the aggregator has seen a newer one."""
        assert self._services.aggregator is not None
        with contextlib.suppress(FedplccError):  # the next request shows it
            await self._services.aggregator.get_caller()

    def _open(self) -> None:
        settings, renewal = self._settings, self._renewal
        self._channels = [
            open_aio_channel(
                settings.aggregator,
                tls=None if renewal is None else ClientTls(lambda: renewal.held),
                insecure=settings.insecure,
                http_proxy=settings.http_proxy or "",
                keepalive_s=settings.keepalive_s,
            )
            for _ in range(CONNECTIONS)
        ]
        self._services.aggregator = RunServiceClient(SpreadChannel(self._channels), settings.aggregator, self.explained)
        if renewal is not None:
            self._services.federation = renewal.held.identity.federation

    async def _follow(self) -> None:
        """Join when an invitation comes, and change to an identity that another process has put into the folder."""
        while True:
            pause_s = LOOK_S
            try:
                found = await asyncio.to_thread(self._found)
                if found is not None and self._is_another(found):
                    self._connect()
            except FedplccError as error:
                self._say(error.detail)
                pause_s = REFUSED_S
            await asyncio.sleep(pause_s)

    def _found(self) -> Credentials | None:
        if self._renewal is None:
            join_by_file(self._settings)
        file = self._settings.state_dir / IDENTITY_FILE
        with contextlib.suppress(FileNotFoundError):
            return Credentials.load(file) if file.stat() else None
        if self._renewal is None:
            self._say(
                f"there is no certificate in {self._settings.state_dir}, and no invitation {self._settings.join_file}: join "
                "the federation with `fedplcc join --state-dir`, or use --insecure for plain text on a trusted network"
            )
        return None

    def _is_another(self, found: Credentials) -> bool:
        """Whether this is not the held certificate; one that renewal has just written is held by the next look."""
        if self._renewal is None:
            return True
        if found.serial == self._renewal.held.serial:
            self._unknown_serial = ""
            return False
        is_still_another = found.serial == self._unknown_serial
        self._unknown_serial = found.serial
        return is_still_another

    def _say(self, detail: str) -> None:
        if detail != self._said:
            self._said = detail
            log.warning("not_joined", detail=detail)
