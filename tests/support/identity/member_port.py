"""AdminService in a thread of its own: over TLS for who has a certificate, and at the socket of a state directory."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.servicer.calls import Context
from fedplcc.aggregator.servicer.certificate_calls import CertificateCalls
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.certificates import identity_of, load_certificate, serial_of
from fedplcc.shared.identity.principals import OWNER, Principal, current_principal
from fedplcc.shared.wire.channels import SERVER_OPTIONS
from fedplcc.shared.wire.serving.interceptor import ErrorInterceptor
from tests.support.hosts.proxies import Proxy
from tests.support.identity.enrol_port import EnrolPort
from tests.support.identity.memory_authority import MemoryAuthority


class _Certified(CertificateCalls):
    """The service with the caller that TLS has shown, which is an interceptor's work in the aggregator."""

    def __init__(self, admissions: Admissions, enrolment_sha256: Callable[[], bytes]) -> None:
        self._admissions, self._enrolment_sha256 = admissions, enrolment_sha256

    async def RenewCertificate(
        self, request: admin_pb2.RenewCertificateRequest, context: Context
    ) -> admin_pb2.RenewCertificateResponse:
        _certify(current_principal, context)
        return await super().RenewCertificate(request, context)


def _certify(current: ContextVar[Principal], context: Any) -> None:
    (pem,) = context.auth_context().get("x509_pem_cert", (b"",))
    if not pem:
        current.set(OWNER)
        return
    certificate = load_certificate(pem)
    identity = identity_of(certificate)
    current.set(Principal(role=identity.role, name=identity.name, serial=serial_of(certificate)))


class MemberPort(Proxy):
    """The port that demands certificates, and admin.sock in a folder, beside an open port of invitations."""

    def __init__(self, admissions: Admissions, authority: MemoryAuthority, enrol: EnrolPort, state_dir: Path) -> None:
        super().__init__("")
        self._servicer = _Certified(admissions, lambda: enrol.certificate_sha256)
        self._credentials, self._roots = authority.server_credentials(), authority.roots_pem
        self._state_dir = state_dir
        self._enrol_port = int(enrol.address.rpartition(":")[2])

    async def _serve(self) -> None:
        server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=list(SERVER_OPTIONS))
        admin_grpc.add_AdminServiceServicer_to_server(self._servicer, server)
        credentials = grpc.ssl_server_credentials([self._credentials], self._roots, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
        socket = self._state_dir / "admin.sock"
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        endpoint = {"admin_socket": str(socket), "enrol_port": self._enrol_port}
        (self._state_dir / "endpoint.json").write_text(json.dumps(endpoint))
        try:
            await self._up(port)
        finally:
            await server.stop(None)
