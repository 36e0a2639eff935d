"""Certificates that a real authority issues for tests, and TLS with a person's key in every call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.shared.identity.certificates import key_to_pem, new_key
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Identity, Role
from fedplcc.shared.wire.channels import open_channel
from fedplcc.shared.wire.serving.caller import KEY_METADATA
from fedplcc.shared.wire.tls import ClientTls, HeldCertificate

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
        self.key = key


def channel_of(address: str, tls: ClientTls | None) -> grpc.Channel:
    """A channel whose calls show the key of an OperatorTls.

    gRPC has call credentials for this. A process that closes such a channel can hang for ever: the close holds Python's lock
    and waits for a thread of gRPC that wants it, to drop those credentials.
    """
    channel = open_channel(address, tls=tls)
    return grpc.intercept_channel(channel, _ShowsKey(tls.key)) if isinstance(tls, OperatorTls) else channel


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _ShowsKey(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # generic in the stubs only
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    def __init__(self, key: str) -> None:
        self._metadata = ((KEY_METADATA, key),)

    def _call(self, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        given = client_call_details
        metadata = (*(given.metadata or ()), *self._metadata)
        shown = _Details(
            given.method, given.timeout, metadata, given.credentials, given.wait_for_ready, given.compression
        )
        return continuation(shown, request)

    def _streaming(self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any) -> Any:
        return self._call(continuation, client_call_details, request_iterator)

    intercept_unary_unary = intercept_unary_stream = _call
    intercept_stream_unary = intercept_stream_stream = _streaming
