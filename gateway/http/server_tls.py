"""TLS of the gateway's port. Its certificate is read anew when the files change; open connections go on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

from fedplcc.shared.config.settings import GatewaySettings
from fedplcc.shared.errors import FedplccError, InvalidConfig
from fedplcc.shared.identity.certificates import GATEWAY_DNS, serves_as
from fedplcc.shared.identity.credentials import IDENTITY_FILE, Credentials
from fedplcc.shared.process.disk import open_regular
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.tls import server_context
from fedplcc.shared.wire.trouble.ssl_pairs import load_pair

LOOK_S = 1.0
"""Time between two looks at the files."""
MAX_FILE_BYTES = 1 << 20
"""Largest file with a certificate or a key."""

Pair = tuple[bytes, bytes]
"""A key, then its certificate and those above it, in PEM."""
Stamp = tuple[tuple[int, int, int], ...]
"""What changes with a file: its inode, time of change and size."""

log = get_logger("fedplcc.gateway.http.tls")


class ServerTls:
    """The context with which the port is served, and the files behind it."""

    def __init__(self, files: tuple[Path, ...], read: Callable[[], Pair], *, is_own: bool) -> None:
        """Read the certificate.

        Args:
            files: Files whose change means another certificate.
            read: Returns what they hold now; raises InvalidConfig.
            is_own: Whether the federation's authority issued it, which browsers do not know.

        Raises:
            InvalidConfig: There is none, it cannot be read, or the key is another one's.
        """
        self.is_own = is_own
        self.context = _new_context()
        self._files, self._read = files, read
        self._seen = self._stamp()
        self._pair = self._checked()
        load_pair(self.context, *self._pair)

    async def follow(self) -> None:
        """Serve what the files hold from now on, until this is cancelled; a pair that does not fit is logged and left."""
        while True:
            await asyncio.sleep(LOOK_S)
            changed = await asyncio.to_thread(self._changed)
            if changed is not None:
                # On the event loop, as handshakes are: OpenSSL does not change a context beside one.
                load_pair(self.context, *changed)
                self._pair = changed
                log.info("certificate_loaded", files=[str(file) for file in self._files])

    def _changed(self) -> Pair | None:
        stamp = self._stamp()
        if stamp == self._seen:
            return None
        self._seen = stamp
        try:
            found = self._checked()
        except FedplccError as error:
            log.error("certificate_not_loaded", detail=error.detail, consequence="the one before is served")
            return None
        return found if found != self._pair else None

    def _checked(self) -> Pair:
        """Return what the files hold, tried on a context of its own: a live one could be left with half of it."""
        pair = self._read()
        try:
            load_pair(_new_context(), *pair)
        except (ssl.SSLError, ValueError) as error:
            names = " and ".join(str(file) for file in self._files)
            why = getattr(error, "reason", None) or type(error).__name__
            raise InvalidConfig(
                f"{names}: no certificate with its key, in PEM and without a password ({why})"
            ) from error
        return pair

    def _stamp(self) -> Stamp:
        found = []
        for file in self._files:
            try:
                status = file.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def server_tls(settings: GatewaySettings) -> ServerTls | None:
    """Return TLS of the port by the settings; None where HTTP is served.

    Raises:
        InvalidConfig: The certificate cannot be used, or there is none off loopback.
    """
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is not None and key is not None:
        return ServerTls((certificate, key), lambda: (_content(key), _content(certificate)), is_own=False)
    if not settings.uses_own_certificate:
        return None
    file = settings.state_dir / IDENTITY_FILE
    if not file.is_file():
        raise InvalidConfig(
            f"serving at {settings.host}: there is no certificate in {settings.state_dir}, and keys would leave this "
            "machine in plain text; join the federation first (`fedplcc join`, or gateway.join of the aggregator by "
            "--join-file), give --tls-cert and --tls-key, or say --plain-http behind a proxy that ends TLS"
        )
    return ServerTls((file,), lambda: _own(file), is_own=True)


def _own(file: Path) -> Pair:
    held = Credentials.load(file)
    if not serves_as(held.certificate, GATEWAY_DNS):
        raise InvalidConfig(
            f"the certificate in {file} is of {held.identity.role.value} {held.identity.name}, and has not the name "
            f"{GATEWAY_DNS}; join as a gateway, or give --tls-cert and --tls-key"
        )
    return held.key_pem, held.chain_pem


def _content(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            return opened.read(MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidConfig(f"cannot read {file}: {error.strerror or error}") from error


def _new_context() -> ssl.SSLContext:
    context = server_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
