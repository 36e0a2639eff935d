"""TLS of a gateway as commands check it: by a federation's roots and its fixed name, or by the system's store.

`fedplcc login` keeps the roots beside the key, so a gateway with the federation's own certificate needs no other authority,
whatever address leads to it.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509

from fedplcc.gateway_client.own_keys import roots_for
from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.shared.identity.certificates import GATEWAY_DNS, federation_of, issuer_of
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import FEDERATION_PATTERN
from fedplcc.shared.wire.addresses import join_address
from fedplcc.shared.wire.trouble.tls_trouble import certificate_at

MAX_CA_BYTES = 1 << 20
"""Largest file with certificates of authorities."""


class _FixedName(ssl.SSLContext):
    """A context that checks the gateway's fixed name, whatever name or address was dialled."""

    def wrap_socket(self, sock: Any, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """Wrap a socket; a server's name that is given does not count."""
        return super().wrap_socket(sock, *arguments, **{**named, "server_hostname": GATEWAY_DNS})

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Wrap a pair of buffers; a server's name that is given does not count."""
        return super().wrap_bio(incoming, outgoing, server_side, GATEWAY_DNS, session)


def context_for(url: str, ca: Path | None = None) -> ssl.SSLContext:
    """Return the context for a gateway; in plain text, one that trusts nobody: the system's store takes time to load.

    Args:
        url: As the key was kept for.
        ca: File with the certificates of its authority in PEM, or identity.pem of a member; the roots that `fedplcc login`
            kept if None, else the system's store.

    Raises:
        InvalidConfig: The file cannot be read or holds no certificate.
    """
    if httpx.URL(url).scheme != "https":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    roots_pem = roots_for(url) if ca is None else given_roots(ca)
    return ssl.create_default_context() if not roots_pem else _context_of(roots_pem)


def given_roots(file: Path) -> str:
    """Return the certificates of a file in PEM; of a member's identity.pem, the federation's roots.

    Raises:
        InvalidConfig: It cannot be read or holds no certificate.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_CA_BYTES)
    except OSError as error:
        raise InvalidConfig(f"cannot read {file}: {error.strerror or error}") from error
    try:
        if data.startswith(b"# fedplcc identity"):
            return Credentials.load(file).roots_pem.decode("ascii")
        x509.load_pem_x509_certificates(data)
        return data.decode("ascii")
    except (ValueError, FedplccError) as error:
        raise InvalidConfig(f"{file} holds no certificates in PEM") from error


def roots_to_keep(url: str, roots_pem: str) -> str:
    """Return the federation's roots, for a gateway that they are to check; empty where the gateway shows a certificate of
    another authority.

    Nothing is trusted by this look: it chooses by which authority all later connections are checked.
    """
    parsed = httpx.URL(url)
    shown = certificate_at(join_address(parsed.host, parsed.port or 443)) if parsed.scheme == "https" else None
    if shown is None or not roots_pem:
        return roots_pem
    return roots_pem if issuer_of(shown, x509.load_pem_x509_certificates(roots_pem.encode())) is not None else ""


def _context_of(roots_pem: str) -> ssl.SSLContext:
    roots = x509.load_pem_x509_certificates(roots_pem.encode())
    context: ssl.SSLContext
    try:
        is_federation = all(re.fullmatch(FEDERATION_PATTERN, federation_of(root)) for root in roots)
    except (IndexError, ValueError):
        is_federation = False
    context = _FixedName(ssl.PROTOCOL_TLS_CLIENT) if is_federation else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # a member's common name is its own choice
    context.load_verify_locations(cadata=roots_pem)
    return context
