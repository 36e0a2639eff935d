"""/metrics for monitors alone: TLS with this process's certificate, which asks for one of the role `monitor`."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedplcc.shared.errors import FedplccError, RoleForbidden, Unauthenticated
from fedplcc.shared.identity.certificates import check_chain, identity_of, serial_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.identity.standing import Standing, require_listed
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.tls import server_context

log = get_logger("fedplcc.shared.wire.serving.metrics_guard")


def _listed(_serial: str) -> Standing:
    return Standing.LISTED


class MonitorGuard:
    """Guard of one /metrics port; certificate, roots and revocations are looked at in every connection."""

    def __init__(
        self,
        identity_file: Path,
        roots_pem: Callable[[], bytes],
        *,
        standing: Callable[[str], Standing] = _listed,
        refused: Callable[[Principal, str], None] = lambda _caller, _reason: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read the certificate once.

        Args:
            identity_file: PEM file with key and certificate of this process, which renewals replace.
            roots_pem: Returns the roots that callers are checked against.
            standing: Returns what the authority's list says of a certificate, by its serial number; quick.
            refused: Told of each refused caller and the reason.
            clock: Seconds since the epoch.

        Raises:
            OSError: The file cannot be read.
        """
        self._file, self._roots_pem, self._standing = identity_file, roots_pem, standing
        self._refused, self._clock = refused, clock
        self._lock = threading.Lock()
        self._read: tuple[object, ...] = ()
        self._context = self._current()

    def secured(self, connection: socket.socket) -> socket.socket:
        """Return the connection with TLS. Raises OSError where the caller shows no certificate of this federation."""
        return self._current().wrap_socket(connection, server_side=True)

    def require(self, certificate: bytes, address: str) -> None:
        """Refuse who is no monitor.

        Raises:
            Unauthenticated, CertificateExpired, MalformedRequest: The certificate does not hold.
            CertificateRevoked: It was revoked, or is on no list.
            RoleForbidden: It is of another role.
        """
        caller = Principal(address=address)
        try:
            if not certificate:
                raise Unauthenticated("the connection has no certificate")
            checked = check_chain(certificate, self._roots_pem(), self._clock())
            identity = identity_of(checked)
            caller = Principal(role=identity.role, name=identity.name, serial=serial_of(checked), address=address)
            require_listed(self._standing(caller.serial), caller)
            if identity.role is not Role.MONITOR:
                raise RoleForbidden(f"{caller.caller} is no monitor; invite one with --role monitor")
        except FedplccError as error:
            log.warning("metrics_refused", caller=caller.caller, reason=error.reason, detail=error.detail)
            self._refused(caller, error.reason)
            raise

    def _current(self) -> ssl.SSLContext:
        """Return the TLS of this moment; a renewed certificate or a changed root makes it anew."""
        found, roots = self._file.stat(), self._roots_pem()
        read = (found.st_ino, found.st_mtime_ns, found.st_size, roots)
        with self._lock:
            if read != self._read:
                context = server_context()
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cadata=roots.decode("ascii"))
                context.load_cert_chain(self._file)
                # A resumed session would show a certificate that TLS did not look at again.
                context.options |= ssl.OP_NO_TICKET
                context.num_tickets = 0
                self._context, self._read = context, read
            return self._context
