"""A federation's authority for tests: certificates of any holder and any time, and TLS with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from dataclasses import dataclass

from cryptography.hazmat.primitives.serialization import Encoding

from fedplcc.shared.identity.certificates import AGGREGATOR_DNS, issue, key_to_pem, make_root, new_key
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.identity.standing import Standing
from fedplcc.shared.wire.serving.caller import Certificates
from fedplcc.shared.wire.tls import ClientTls, ServerTls

BEGUN_BEFORE_S = 2 * 3600
"""Certificates begin so long before the time at which they are issued."""


@dataclass(frozen=True)
class Held:
    """A certificate with its key and the roots, in PEM."""

    key_pem: bytes
    chain_pem: bytes
    roots_pem: bytes
    enrolment: str = ""

    @property
    def tls(self) -> ClientTls:
        return ClientTls(lambda: self)


def standing_by(revoked: Container[str]) -> Callable[[str], Standing]:
    """What a list says on which every certificate stands."""
    return lambda serial: Standing.REVOKED if serial in revoked else Standing.LISTED


class TestAuthority:
    """A root of its own, what it issued and what it revoked."""

    __test__ = False

    def __init__(self, federation: str = "f0123456789abcde") -> None:
        self.federation, self.key = federation, new_key()
        self.root = make_root(self.key, federation, time.time())
        self.roots_pem = self.root.public_bytes(Encoding.PEM)
        self.revoked: set[str] = set()
        self.server = self.issue(Role.AGGREGATOR, "aggregator", dns_names=(AGGREGATOR_DNS,))

    def issue(
        self,
        role: Role,
        name: str,
        *,
        valid_s: float = 86_400.0,
        issued_s_ago: float = 0.0,
        dns_names: tuple[str, ...] = (),
    ) -> Held:
        key = new_key()
        certificate = issue(
            self.root,
            self.key,
            key.public_key(),
            Identity(self.federation, role, name),
            now=time.time() - issued_s_ago,
            valid_s=valid_s,
            dns_names=dns_names,
        )
        return Held(key_to_pem(key), certificate.public_bytes(Encoding.PEM), self.roots_pem)

    @property
    def certificates(self) -> Certificates:
        return Certificates(lambda: self.roots_pem, standing_by(self.revoked))

    def server_tls(self, *, demands_client: bool = True) -> ServerTls:
        return ServerTls(
            lambda: (self.server.key_pem, self.server.chain_pem), lambda: self.roots_pem, demands_client=demands_client
        )

    def expired(self, role: Role, name: str) -> Held:
        return self.issue(role, name, issued_s_ago=86_400.0, valid_s=3600.0)

    def not_yet_valid(self, role: Role, name: str) -> Held:
        return self.issue(role, name, issued_s_ago=-BEGUN_BEFORE_S - 3600.0)

    def certless(self) -> Held:
        """No certificate, and these roots."""
        return Held(None, None, self.roots_pem)  # type: ignore[arg-type]
