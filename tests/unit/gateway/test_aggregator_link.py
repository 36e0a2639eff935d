"""The gateway's connection to the aggregator, and the certificate that it shows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fedplcc.gateway.aggregator_link import AggregatorLink
from fedplcc.gateway.http.metrics import GatewayMetrics
from fedplcc.gateway.routes.dependencies import Services
from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.certificates import load_certificate, serial_of
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.channels import SERVER_OPTIONS
from tests.support.federation.certificates import TestAuthority

WAIT_S = 60.0


class _Shown(admin_grpc.AdminServiceServicer):
    """An AdminService that keeps the serial numbers of the certificates that its callers show."""

    def __init__(self) -> None:
        self.serials: asyncio.Queue[str] = asyncio.Queue()

    async def GetCaller(self, request: admin_pb2.GetCallerRequest, context: Any) -> admin_pb2.GetCallerResponse:
        (pem,) = context.auth_context()["x509_pem_cert"]
        self.serials.put_nowait(serial_of(load_certificate(pem)))
        return admin_pb2.GetCallerResponse()


async def test_a_renewed_certificate_is_shown_at_once_without_a_request(tmp_path: Path) -> None:
    """Streams of events outlive a certificate only where the aggregator has seen a newer one."""
    authority = TestAuthority()

    def issued() -> Credentials:
        held = authority.issue(Role.GATEWAY, "console")
        return Credentials(held.key_pem, held.chain_pem, held.roots_pem)

    shown, old, new = _Shown(), issued(), issued()
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    admin_grpc.add_AdminServiceServicer_to_server(shown, server)
    tls = authority.server_tls()
    port = server.add_secure_port("127.0.0.1:0", tls.credentials())
    await server.start()
    old.save(tmp_path / IDENTITY_FILE)
    settings = GatewaySettings(aggregator=f"127.0.0.1:{port}", state_dir=tmp_path)
    link = AggregatorLink(settings, Services(GatewayMetrics({})))
    try:
        assert link._renewal is not None
        link._renewal.held = new
        link._renewed(new)
        assert await asyncio.wait_for(shown.serials.get(), WAIT_S) == new.serial
    finally:
        await link.close()
        await server.stop(None)
