"""The end of each holder's newest certificate, kept in memory: for metrics, and for lines of the log when it comes near."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from fedplcc.aggregator.identity.admissions import RECOVERY_S
from fedplcc.aggregator.store.base import Certificate
from fedplcc.shared.identity.names import Role
from fedplcc.shared.process.certificate_metrics import CertificateSpan
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.metrics import OTHER

SOON = 1 / 3
"""Part of its life that is left of a certificate that ends soon; it should have been renewed when half was left."""

log = get_logger("fedplcc.aggregator.identity")


@dataclass(slots=True)
class _Held:
    """The newest certificate of a holder."""

    serial: str
    span: CertificateSpan
    was_soon: bool = False
    has_ended: bool = False
    """What the log has said of it."""


class CertificateEnds:
    """Ends of certificates; any thread may call a method, and none waits for the disk."""

    def __init__(self, certificates: Iterable[Certificate] = (), clock: Callable[[], float] = time.time) -> None:
        """Begin with these certificates; those that were revoked do not count.

        Args:
            clock: Seconds since the epoch.
        """
        self._clock, self._lock = clock, threading.Lock()
        self._held: dict[tuple[str, str], _Held] = {}
        for certificate in certificates:
            if certificate.revoked_at is None:
                self.issued(certificate)

    def issued(self, certificate: Certificate) -> None:
        """Note a certificate that was issued."""
        holder = (certificate.role, certificate.name)
        client = certificate.name if certificate.role == Role.CLIENT else ""
        life_s = certificate.not_after - certificate.issued_at
        span = CertificateSpan(certificate.role, client, certificate.not_after, life_s)
        with self._lock:
            known = self._held.get(holder)
            if known is None or known.span.ends_at <= span.ends_at:
                self._held[holder] = _Held(certificate.serial, span)

    def revoked(self, serials: Collection[str]) -> None:
        """Forget the holders whose newest certificate was revoked."""
        with self._lock:
            self._held = {holder: held for holder, held in self._held.items() if held.serial not in serials}

    def look(self) -> None:
        """Log each certificate that ends soon or has ended, once; forget those that nobody can recover any more."""
        now = self._clock()
        with self._lock:
            self._held = {holder: held for holder, held in self._held.items() if held.span.ends_at + RECOVERY_S >= now}
            held_now = list(self._held.items())
        for (role, name), held in held_now:
            left_s = held.span.ends_at - now
            facts = {"role": role, "name": name, "serial": held.serial, "not_after": held.span.ends_at}
            if left_s <= 0 and not held.has_ended:
                held.has_ended = held.was_soon = True
                log.warning("certificate_ended", **facts)
            elif 0 < left_s <= held.span.life_s * SOON and not held.was_soon:
                held.was_soon = True
                log.warning("certificate_ends_soon", **facts, seconds_left=round(left_s))

    def spans(self, clients: Collection[str]) -> list[CertificateSpan]:
        """Return what metrics show: the end of each of these clients' certificates, and of the others the next one.

        The others are one span for each role, of the certificate that ends first among those that have not ended: who has
        left the federation is not shown.
        """
        with self._lock:
            held_now = [held.span for held in self._held.values()]
        now = self._clock()
        shown: list[CertificateSpan] = []
        first: dict[str, CertificateSpan] = {}
        for span in held_now:
            if span.client in clients and span.role == Role.CLIENT:
                shown.append(span)
            elif span.ends_at > now and (span.role not in first or span.ends_at < first[span.role].ends_at):
                first[span.role] = span
        others = [
            CertificateSpan(span.role, OTHER if span.client else "", span.ends_at, span.life_s)
            for span in first.values()
        ]
        return shown + others
