"""Keys of people and programs, what a key may do, and which calls a certificate's role may make."""

from __future__ import annotations

import binascii
import re
import secrets
from collections.abc import Collection, Mapping
from enum import StrEnum

from fedplcc.shared.errors import KeyInvalid
from fedplcc.shared.identity.names import Role

SECRET_BYTES = 32
KEY_PATTERN = re.compile(r"fedpk_([0-9a-f]{12})_([0-9a-f]{64})_([0-9a-f]{8})")
"""Text of a key: id, 256 bits, CRC-32 of what stands before, so that scanners find it and typing errors are told."""


class Scope(StrEnum):
    """What a key may do. Each but METRICS includes those before it."""

    READ = "read"
    """See runs, rounds, clients and events."""
    RESULTS = "results"
    """Fetch models, prototypes and maps."""
    RUN = "run"
    """Start, pause, resume, stop, note about, archive and delete runs; quarantine, forget clients, read their log lines."""
    ADMIN = "admin"
    """Invite, revoke, make keys, read the audit."""
    METRICS = "metrics"
    """Read metrics, and nothing else."""


_LADDER = (Scope.READ, Scope.RESULTS, Scope.RUN, Scope.ADMIN)
EVERY_SCOPE = frozenset(Scope)


def includes(held: Collection[Scope], wanted: Scope) -> bool:
    """Whether scopes allow what one asks for."""
    if wanted in held:
        return True
    return wanted in _LADDER and any(scope in held for scope in _LADDER[_LADDER.index(wanted) :])


def most_of(held: Collection[str]) -> str:
    """Return the scope of a key that includes its others, as its role is told to people; empty if it has none."""
    return next((scope.value for scope in reversed(_LADDER) if scope in held), next(iter(held), ""))


def _calls(service: str, scopes: Mapping[Scope, str]) -> dict[str, Scope]:
    return {f"/fedplcc.v1.{service}/{name}": scope for scope, names in scopes.items() for name in names.split()}


SCOPE_OF_CALL: Mapping[str, Scope] = {
    **_calls(
        "RunService",
        {
            Scope.READ: "GetRun ListRuns ListRounds ListEvaluations WatchRun ListClients",
            Scope.RESULTS: "FetchArtifact GetPrototypeMap",
            Scope.RUN: "CreateRun UploadInitialModel SteerRun UpdateRun DeleteRun ForgetClient",
        },
    ),
    **_calls(
        "AdminService",
        {
            Scope.ADMIN: "CreateInvitation ListCertificates RevokeHolder CreateKey ListKeys RevokeKey CreateConsoleCode "
            "ListAudit RotateAuthority",
        },
    ),
}
"""Scope that a key must have, by the method's full name."""
OPEN_CALLS: frozenset[str] = frozenset(
    f"/fedplcc.v1.AdminService/{name}"
    for name in ("RenewCertificate", "GetCaller", "RevokeOwnKey", "ReportRefusals", "RedeemConsoleCode", "SignOn")
)
"""Calls of AdminService that need no key: they are about the caller itself, or give a session for a code or to a person."""
ROLES_OF_SERVICE: Mapping[str, frozenset[Role]] = {
    "fedplcc.v1.RoundService": frozenset({Role.CLIENT}),
    "fedplcc.v1.RunService": frozenset({Role.GATEWAY}),
    "fedplcc.v1.AdminService": frozenset({Role.GATEWAY}),
}
"""Roles whose certificates may call a service at the port that demands certificates."""
_ANY_ROLE = frozenset({Role.CLIENT, Role.GATEWAY, Role.MONITOR})


def roles_of(method: str) -> frozenset[Role]:
    """Return the roles that may make a call; every role may renew its certificate and ask who it is."""
    if method.rpartition("/")[2] in ("RenewCertificate", "GetCaller") and method in OPEN_CALLS:
        return _ANY_ROLE
    return ROLES_OF_SERVICE.get(method[1:].rpartition("/")[0], frozenset())


def new_api_key() -> tuple[str, bytes, str]:
    """Return id, secret and text of a new key."""
    key_id, secret = secrets.token_hex(6), secrets.token_bytes(SECRET_BYTES)
    return key_id, secret, api_key_text(key_id, secret)


def api_key_text(key_id: str, secret: bytes) -> str:
    """Return the text of a key."""
    body = f"fedpk_{key_id}_{secret.hex()}"
    return f"{body}_{binascii.crc32(body.encode()):08x}"


def parse_api_key(text: str) -> tuple[str, bytes]:
    """Return id and secret of a key.

    Raises:
        KeyInvalid: It is none; the same sentence as for one that is unknown.
    """
    found = KEY_PATTERN.fullmatch(text) if len(text) <= 128 else None
    if found is None or f"{binascii.crc32(text.rpartition('_')[0].encode()):08x}" != found[3]:
        raise key_invalid()
    return found[1], bytes.fromhex(found[2])


def key_invalid() -> KeyInvalid:
    """Return the one answer for a key that is unknown, expired, revoked or mistyped."""
    return KeyInvalid(
        "no such key: it is unknown, expired or revoked; `fedplcc login` on the aggregator's host makes one"
    )
