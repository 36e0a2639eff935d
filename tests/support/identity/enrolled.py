"""Members that the aggregator knows: admitted as everybody is, or written into its list before it starts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.aggregator.store.base import Certificate
from fedplcc.aggregator.store.opening import open_store
from fedplcc.remote.admin_calls import admin_calls
from fedplcc.shared.errors import AggregatorUnavailable, AlreadyExists
from fedplcc.shared.identity.certificates import identity_of, key_from_pem, new_key, public_key_sha256, serial_of
from fedplcc.shared.identity.credentials import Credentials
from fedplcc.shared.identity.names import Role
from fedplcc.shared.wire.addresses import join_address
from fedplcc.shared.wire.enrolling.enrolment import join
from tests.support.identity.issued import issued

VALID_S = 600.0


def enrolled(state: Path, role: Role, name: str, *, database_url: str | None = None) -> Credentials:
    """A member's key and certificate, of the aggregator that runs on a state directory, or before it starts."""
    try:
        with admin_calls(state) as calls:
            address = join_address(calls.host, calls.enrol_port or 0)
            try:
                code, _ends_at = calls.invite(role, name, address=address, valid_s=VALID_S)
            except AlreadyExists:  # in the state that was restored
                code, _ends_at = calls.invite(role, name, address=address, valid_s=VALID_S, replaces=True)
    except AggregatorUnavailable:
        held = issued(Authority.open(state), role, name)
        enlist(state, [held], database_url)
        return held
    joined = join(code, new_key())
    return Credentials(joined.key_pem, joined.chain_pem, joined.roots_pem)


def enlist(state: Path, members: Iterable[Credentials], database_url: str | None = None) -> None:
    """Write certificates into the list of an aggregator that does not run."""
    store = open_store(state, database_url, on_lost=lambda _why: None)
    try:
        with store.transaction() as transaction:
            for held in members:
                transaction.save_certificate(_row(held))
    finally:
        store.close()


def _row(held: Credentials) -> Certificate:
    certificate = x509.load_pem_x509_certificate(held.chain_pem)
    identity = identity_of(certificate)
    return Certificate(
        serial=serial_of(certificate),
        role=identity.role.value,
        name=identity.name,
        public_key_sha256=public_key_sha256(key_from_pem(held.key_pem).public_key()),
        issued_at=time.time(),
        not_after=certificate.not_valid_after_utc.timestamp(),
        pem=held.chain_pem.decode(),
    )
