"""An authority without files: the same certificates, whose keys end with the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.shared.identity.certificates import (
    AGGREGATOR_DNS,
    DNS_NAMES,
    issue,
    issuer_of,
    key_to_pem,
    load_certificate,
    make_root,
    new_key,
    serial_of,
)
from fedplcc.shared.identity.names import Identity, Role

FEDERATION = "f0123456789abcde"


@dataclass(frozen=True)
class IssuedInMemory:
    """A certificate just issued."""

    serial: str
    chain_pem: bytes
    not_after: float


class MemoryAuthority:
    """An issuer of certificates with one or two roots, newest first."""

    federation = FEDERATION

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._roots: list[tuple[ec.EllipticCurvePrivateKey, x509.Certificate]] = []
        self.begin_rotation()

    @property
    def roots_pem(self) -> bytes:
        """The roots."""
        return b"".join(root.public_bytes(Encoding.PEM) for _key, root in self._roots)

    @property
    def _roots_sha256(self) -> list[str]:
        return [root.fingerprint(hashes.SHA256()).hex() for _key, root in self._roots]

    def is_of_oldest_root(self, certificate_pem: bytes) -> bool:
        """Whether the root that a rotation will drop issued a certificate."""
        oldest = self._roots[-1][1]
        return len(self._roots) > 1 and issuer_of(load_certificate(certificate_pem), [oldest]) is not None

    def begin_rotation(self) -> list[str]:
        """Add a root, which issues from now on."""
        key = new_key()
        self._roots.insert(0, (key, make_root(key, self.federation, self._clock())))
        return self._roots_sha256

    def finish_rotation(self) -> list[str]:
        """Drop all roots but the newest."""
        del self._roots[1:]
        return self._roots_sha256

    def issue_client(self, identity: Identity, public_key: ec.EllipticCurvePublicKey, valid_s: float) -> IssuedInMemory:
        """Issue a certificate."""
        return self._issue(identity, public_key, valid_s, DNS_NAMES[identity.role])

    def server_credentials(self) -> tuple[bytes, bytes]:
        """Return key and chain of an aggregator."""
        key = new_key()
        identity = Identity(self.federation, Role.AGGREGATOR, "aggregator")
        return key_to_pem(key), self._issue(identity, key.public_key(), 1e6, (AGGREGATOR_DNS,)).chain_pem

    def _issue(
        self, identity: Identity, public_key: ec.EllipticCurvePublicKey, valid_s: float, names: tuple[str, ...]
    ) -> IssuedInMemory:
        (key, root), now = self._roots[0], self._clock()
        made = issue(root, key, public_key, identity, now=now, valid_s=valid_s, dns_names=names)
        chain = made.public_bytes(Encoding.PEM) + root.public_bytes(Encoding.PEM)
        return IssuedInMemory(serial_of(made), chain, made.not_valid_after_utc.timestamp())
