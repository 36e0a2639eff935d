"""Certificates that a real authority issues for tests, and TLS with a person's key in every call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc

from aggregator.identity.authority import Authority
from shared.identity.certificates import key_to_pem, new_key
from shared.identity.credentials import Credentials
from shared.identity.names import Identity, Role
from shared.wire.caller import KEY_METADATA
from shared.wire.tls import ClientTls, HeldCertificate

VALID_S = 86_400.0


def issued(authority: Authority, role: Role, name: str, valid_s: float = VALID_S) -> Credentials:
    """A member's key and certificate."""
    key = new_key()
    certificate = authority.issue_client(Identity(authority.federation, role, name), key.public_key(), valid_s)
    return Credentials(key_to_pem(key), certificate.chain_pem, authority.roots_pem)


def identity_tls(file: Path | None) -> ClientTls | None:
    """TLS with the identity of a file; None without one."""
    if file is None:
        return None
    held = Credentials.load(file)
    return ClientTls(lambda: held)


class OperatorTls(ClientTls):
    """TLS of a gateway whose every call passes on one key, as a gateway does for the one that a person showed it."""

    def __init__(self, credentials: Callable[[], HeldCertificate], key: str) -> None:
        super().__init__(credentials)
        self._key = key

    def credentials(self) -> grpc.ChannelCredentials:
        shown = grpc.metadata_call_credentials(_Shown(self._key))
        return grpc.composite_channel_credentials(super().credentials(), shown)


class _Shown(grpc.AuthMetadataPlugin):
    def __init__(self, key: str) -> None:
        self._metadata = ((KEY_METADATA, key),)

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        callback(self._metadata, None)
