"""The authority as admission sees it, and what a member gets from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from fedplcc.shared.identity.names import Identity


class Issued(Protocol):
    """A certificate just issued."""

    @property
    def serial(self) -> str:
        """Serial number in hexadecimal."""

    @property
    def chain_pem(self) -> bytes:
        """The certificate and those above it, in PEM."""

    @property
    def not_after(self) -> float:
        """End, in seconds since the epoch."""


class Authority(Protocol):
    """Issuer of certificates, see aggregator/identity/authority.py."""

    @property
    def federation(self) -> str:
        """Id of the federation."""

    @property
    def roots_pem(self) -> bytes:
        """Certificates that the aggregator may be checked against."""

    def issue_client(self, identity: Identity, public_key: ec.EllipticCurvePublicKey, valid_s: float) -> Issued:
        """Issue a certificate."""

    def is_of_oldest_root(self, certificate_pem: bytes) -> bool:
        """Whether the root that a rotation will drop issued a certificate."""

    def begin_rotation(self) -> list[str]:
        """Add a second root, which issues from now on; returns the SHA-256 of all, newest first."""

    def finish_rotation(self) -> list[str]:
        """Drop the older root; returns the SHA-256 of the one that is left."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a holder gets: its certificate and what it needs beside."""

    identity: Identity
    chain_pem: str
    roots_pem: str
    domain: str = ""
    is_again: bool = field(default=False, compare=False)
    """Whether the holder had got it before, and asks once more."""
