"""An EnrolService over TLS in a thread of its own, and a proxy that ends TLS before it."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.servicer.enrol_service import MAX_MESSAGE_BYTES, EnrolServicer
from fedplcc.shared.gen.fedplcc.v1 import enrol_service_pb2_grpc as enrol_grpc
from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, issue, key_to_pem, make_root, new_key
from fedplcc.shared.identity.invitation_codes import InvitationCode
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.wire.channels import SERVER_OPTIONS
from fedplcc.shared.wire.serving.interceptor import ErrorInterceptor
from tests.support.hosts.proxies import Proxy
from tests.support.identity.memory_authority import MemoryAuthority


class EnrolPort(Proxy):
    """The port that sites without a certificate call, as the aggregator serves it."""

    def __init__(
        self,
        admissions: Admissions,
        authority: MemoryAuthority,
        servicer: EnrolServicer | None = None,
        port: int = 50051,
    ) -> None:
        super().__init__("")
        self._key, self._chain = authority.server_credentials()
        self._admissions = admissions
        self._servicer = servicer or EnrolServicer(admissions, authority.federation, port=lambda: port)
        self.certificate_sha256 = x509.load_pem_x509_certificate(self._chain).fingerprint(hashes.SHA256())

    def invite(self, name: str = "north", role: Role = Role.CLIENT, *, through: str = "") -> InvitationCode:
        """Return an invitation, for who reaches this port under another address if `through` says so."""
        invitation, secret = self._admissions.invite(role, name, domain="hospital" if role is Role.CLIENT else "")
        return InvitationCode(through or self.address, self.certificate_sha256, invitation.invitation_id, secret)

    async def _serve(self) -> None:
        options = {**dict(SERVER_OPTIONS), "grpc.max_receive_message_length": MAX_MESSAGE_BYTES}
        server = grpc.aio.server(interceptors=[ErrorInterceptor()], options=list(options.items()))
        enrol_grpc.add_EnrolServiceServicer_to_server(self._servicer, server)
        credentials = grpc.ssl_server_credentials([(self._key, self._chain)])
        port = server.add_secure_port("127.0.0.1:0", credentials)
        await server.start()
        try:
            await self._up(port)
        finally:
            await server.stop(None)


class TlsEndingProxy(Proxy):
    """A proxy that shows a certificate of its own, and keeps every byte that reaches it in clear."""

    def __init__(
        self, target: str, folder: Path, make: Callable[[], tuple[ec.EllipticCurvePrivateKey, x509.Certificate]]
    ):
        super().__init__(target)
        key, certificate = make()
        pem = folder / "proxy.pem"
        pem.write_bytes(key_to_pem(key) + certificate.public_bytes(Encoding.PEM))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._context.set_alpn_protocols(["h2"])
        self.learned = bytearray()
        self.certificate_sha256 = certificate.fingerprint(hashes.SHA256())

    async def _serve(self) -> None:
        onward = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        onward.check_hostname, onward.verify_mode = False, ssl.CERT_NONE
        onward.set_alpn_protocols(["h2"])
        host, _, port = self.target.rpartition(":")
        opened = list[asyncio.StreamWriter]()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            opened.append(writer)
            data = await reader.read(1 << 16)
            if not data:
                writer.close()  # it was only asked for its certificate
                return
            with suppress(OSError):
                there, back = await asyncio.open_connection(host, int(port), ssl=onward)
                opened.append(back)

                async def back_to_the_caller() -> None:
                    while data := await there.read(1 << 16):
                        writer.write(data)

                answers = asyncio.create_task(back_to_the_caller())
                while data:
                    self.learned += data
                    back.write(data)
                    data = await reader.read(1 << 16)
                answers.cancel()
                back.close()
            writer.close()

        async with await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=self._context) as server:
            await self._up(server.sockets[0].getsockname()[1])
        for writer in opened:
            writer.transport.abort()


def company_certificate() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Return key and certificate of a proxy that inspects TLS: it has the aggregator's name, by another issuer."""
    root_key, key, now = new_key(), new_key(), time.time()
    root = make_root(root_key, "inspection.example", now)
    identity = Identity("inspection.example", Role.AGGREGATOR, "aggregator")
    return key, issue(root, root_key, key.public_key(), identity, now=now, valid_s=1e6, dns_names=(AGGREGATOR_DNS,))
