"""TLS of servers and channels: versions and ciphers, and certificates of gRPC that change while the process runs.

gRPC's own ports speak TLS 1.2 and 1.3 with the same kinds of ciphers as those of `server_context`.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import grpc

from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.credentials import IDENTITY_FILE

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers of TLS 1.2: with forward secrecy and authenticated encryption. TLS 1.3 has no others."""


def server_context() -> ssl.SSLContext:
    """Return the context of a server that is not gRPC's: TLS 1.2 or 1.3, and no certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    return context


class HeldCertificate(Protocol):
    """A certificate with its key and the roots of the other side, all in PEM."""

    @property
    def key_pem(self) -> bytes:
        """The private key."""

    @property
    def chain_pem(self) -> bytes:
        """The certificate, then those above it."""

    @property
    def roots_pem(self) -> bytes:
        """Certificates that the other side is checked against."""

    @property
    def enrolment(self) -> str:
        """HOST:PORT of EnrolService, which tells the time; empty if not known."""


class ServerTls:
    """TLS of a server. Certificate and roots are read at each handshake: a new one needs no restart.

    gRPC reads them by a callback of these credentials, so they must live as long as the server does.
    """

    def __init__(
        self,
        server_credentials: Callable[[], tuple[bytes, bytes]],
        roots_pem: Callable[[], bytes],
        *,
        demands_client: bool = True,
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            server_credentials: Returns key and chain in PEM.
            roots_pem: Returns the roots that callers are checked against.
            demands_client: Whether a caller without a certificate of these roots is refused.
        """
        self._server_credentials, self._roots_pem = server_credentials, roots_pem
        self._demands_client = demands_client
        self._served: tuple[bytes, bytes, bytes] = (b"", b"", b"")

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for `add_secure_port`; keep them while the server lives."""
        first = self._changed()
        assert first is not None
        # The stubs do not know that the callback may return None for "as before".
        return grpc.dynamic_ssl_server_credentials(first, self._changed, self._demands_client)  # type: ignore[arg-type]

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what is to be served from this handshake on; None where that has not changed."""
        key, chain = self._server_credentials()
        now = (key, chain, self._roots_pem())
        if now == self._served:
            return None
        self._served = now
        roots = now[2] if self._demands_client else None
        return grpc.ssl_server_certificate_configuration([(key, chain)], roots)


class ClientTls:
    """TLS of a client's channels; each new channel takes the credentials of that moment."""

    def __init__(self, credentials: Callable[[], HeldCertificate]) -> None:
        """Prepare; `credentials` returns those of the moment."""
        self.held = credentials

    def credentials(self) -> grpc.ChannelCredentials:
        """Return credentials for one channel; they stay as they are when the certificate is renewed."""
        held = self.held()
        return grpc.ssl_channel_credentials(held.roots_pem, held.key_pem, held.chain_pem)


def require_identity(state_dir: Path) -> None:
    """Refuse to go on without the certificate of a member.

    Raises:
        InvalidConfig: There is none in its state directory: it has not joined.
    """
    if not (state_dir / IDENTITY_FILE).is_file():
        raise InvalidConfig(
            f"there is no certificate in {state_dir}: join the federation with `fedplcc join`, or use --insecure for plain "
            "text on a trusted network"
        )
