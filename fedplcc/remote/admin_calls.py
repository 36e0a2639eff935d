"""Calls of AdminService by the owner of an aggregator's state directory, through the socket in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from fedplcc.shared.errors import AggregatorUnavailable, FailedPrecondition
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2 as admin_pb2
from fedplcc.shared.gen.fedplcc.v1 import admin_service_pb2_grpc as admin_grpc
from fedplcc.shared.identity.invitation_codes import InvitationCode, require_address
from fedplcc.shared.process.disk import read_regular
from fedplcc.shared.wire.channels import CHANNEL_OPTIONS
from fedplcc.shared.wire.statuses import translated

ENDPOINT_FILE = "endpoint.json"
"""File in the state directory while the aggregator serves."""
OPEN = "the aggregator runs with --insecure: whoever reaches it may do anything, and nobody has a certificate or a key"
CALL_S = 30.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A certificate that has not ended, and who holds it."""

    role: str
    name: str
    serial: str
    issued_at: float
    """Seconds since the epoch, as the times below."""
    not_after: float
    revoked_at: float
    """0 if it was not revoked."""


@dataclass(frozen=True, slots=True)
class HeldKey:
    """A key or session that holds, without its secret."""

    key_id: str
    kind: str
    label: str
    scopes: list[str]
    created_at: float
    """Seconds since the epoch, as the time below."""
    expires_at: float
    maker: str
    """Who made it: owner or key:ID, whether that key holds or not; empty if the audit does not say."""


class AdminCalls:
    """AdminService of a running aggregator."""

    def __init__(self, stub: Any, host: str, enrol_port: int | None) -> None:
        self._stub = stub
        self.host = host
        """Address at which the aggregator listens; empty if it does not say."""
        self.enrol_port = enrol_port
        """Port at which sites join; None if they cannot."""

    def invite(
        self, role: str, name: str, *, address: str, domain: str = "", valid_s: float, replaces: bool = False
    ) -> tuple[InvitationCode, float]:
        """Make an invitation; returns it and its end in seconds since the epoch.

        Raises:
            InvalidConfig: `address` is none.
            AlreadyExists: The name has a holder, and `replaces` is not set.
            MalformedRequest: A name or a number is out of range.
        """
        require_address(address)
        request = admin_pb2.CreateInvitationRequest(
            role=role, name=name, domain=domain, valid_s=valid_s, replaces=replaces
        )
        made = self._ask(request)
        return InvitationCode(address, made.certificate_sha256, made.invitation_id, made.secret), made.expires_at

    def holders(self) -> list[Holder]:
        """Return the certificates that have not ended, newest first for each holder."""
        return [
            Holder(held.role, held.name, held.serial, held.issued_at, held.not_after, held.revoked_at)
            for held in self._ask(admin_pb2.ListCertificatesRequest()).certificates
        ]

    def revoke(self, role: str, name: str) -> int:
        """Revoke a holder's certificates; returns how many were revoked now.

        Raises:
            ClientNotFound: Nobody of this role and name has a certificate.
        """
        return int(self._ask(admin_pb2.RevokeHolderRequest(role=role, name=name)).revoked)

    def rotate(self, *, finish: bool) -> list[str]:
        """Add a second root, or drop the older one; returns the SHA-256 of the roots, newest first.

        Raises:
            FailedPrecondition: Holders still need the older root, or there is none to drop, or two already.
        """
        return list(self._ask(admin_pb2.RotateAuthorityRequest(is_finish=finish)).roots_sha256)

    def create_key(self, label: str, scopes: Sequence[str], valid_s: float) -> tuple[HeldKey, str]:
        """Make a key; returns it and its text, which is nowhere else.

        Raises:
            MalformedRequest: The label, a scope or the time is out of range.
        """
        made = self._ask(admin_pb2.CreateKeyRequest(label=label, scopes=scopes, valid_s=valid_s))
        return _held_key(made.key), made.text

    def keys(self) -> list[HeldKey]:
        """Return the keys and sessions that hold, newest first."""
        return [_held_key(key) for key in self._ask(admin_pb2.ListKeysRequest()).keys]

    def revoke_key(self, key_id: str) -> None:
        """Revoke a key and the sessions that it opened.

        Raises:
            NotFound: There is no such key.
        """
        self._ask(admin_pb2.RevokeKeyRequest(key_id=key_id))

    def roots_pem(self) -> str:
        """Return the federation's roots in PEM."""
        return str(self._ask(admin_pb2.GetCallerRequest()).roots_pem)

    def console_code(self) -> str:
        """Make a code that opens the console once, within five minutes."""
        return str(self._ask(admin_pb2.CreateConsoleCodeRequest()).code)

    def _ask(self, request: Any) -> Any:
        """Send a request by the call that it is named for."""
        call = getattr(self._stub, type(request).__name__.removesuffix("Request"))
        with translated():
            return call(request, timeout=CALL_S)


def _held_key(key: Any) -> HeldKey:
    return HeldKey(key.key_id, key.kind, key.label, list(key.scopes), key.created_at, key.expires_at, key.maker)


def is_open(state_dir: Path) -> bool:
    """Whether the aggregator that runs on a state directory asks nobody for a certificate.

    Raises:
        AggregatorUnavailable: None runs on it.
    """
    return _endpoint(state_dir).get("admin_socket") is None


def _endpoint(state_dir: Path) -> dict[str, Any]:
    try:
        endpoint: dict[str, Any] = json.loads(read_regular(state_dir / ENDPOINT_FILE).decode())
    except (OSError, ValueError) as error:
        raise AggregatorUnavailable(
            f"no aggregator runs on {state_dir}: start it first, or give its folder with --state-dir"
        ) from error
    return endpoint


@contextmanager
def admin_calls(state_dir: Path) -> Iterator[AdminCalls]:
    """Yield AdminService of the aggregator that runs on a state directory.

    Raises:
        AggregatorUnavailable: None runs on it.
        FailedPrecondition: It runs with --insecure.
    """
    endpoint = _endpoint(state_dir)
    if endpoint.get("admin_socket") is None:
        raise FailedPrecondition(f"{OPEN}; end it and start it without --insecure")
    socket = Path(endpoint["admin_socket"]).absolute()
    with grpc.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS) as channel:
        yield AdminCalls(admin_grpc.AdminServiceStub(channel), endpoint.get("host", ""), endpoint.get("enrol_port"))
