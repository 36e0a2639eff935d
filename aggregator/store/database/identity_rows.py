"""Rows of invitations and certificates, and the reads and writes of them that are mixed into the SQL store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, select

from fedplcc.aggregator.store.base import Certificate, Invitation
from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader, Writer
from fedplcc.shared.identity.names import Role


class IdentityReads:
    """Reads of a `Store` (see base.py) about invitations and certificates."""

    def find_invitation(self: Reader, invitation_id: str) -> Invitation | None:
        table = schema.invitations
        with self._reading() as connection:
            row = connection.execute(select(table).where(table.c.invitation_id == invitation_id)).first()
            return None if row is None else Invitation(**rows.checked(schema.invitations, row))

    def invited_domain(self: Reader, name: str) -> str:
        table = schema.invitations
        admitted = (table.c.role == Role.CLIENT.value) & (table.c.name == name) & table.c.spent_at.is_not(None)
        newest = select(table.c.domain).where(admitted).order_by(table.c.spent_at.desc()).limit(1)
        with self._reading() as connection:
            return str(connection.execute(newest).scalar() or "")

    def count_open_invitations(self: Reader, now: float) -> int:
        table = schema.invitations
        is_open = table.c.spent_at.is_(None) & (table.c.expires_at > now)
        with self._reading() as connection:
            return int(connection.execute(select(func.count()).select_from(table).where(is_open)).scalar_one())

    def find_certificate(self: Reader, serial: str) -> Certificate | None:
        table = schema.certificates
        with self._reading() as connection:
            row = connection.execute(select(table).where(table.c.serial == serial)).first()
            return None if row is None else _certificate_of(row)

    def certificates_of(self: Reader, role: str, name: str) -> list[Certificate]:
        table = schema.certificates
        query = select(table).where(table.c.role == role, table.c.name == name)
        with self._reading() as connection:
            return list(_certificates(connection, query.order_by(table.c.issued_at.desc(), table.c.serial)))

    def has_holder(self: Reader, role: str) -> bool:
        table = schema.certificates
        query = select(table.c.serial).where(table.c.role == role, table.c.revoked_at.is_(None)).limit(1)
        with self._reading() as connection:
            return connection.execute(query).first() is not None

    def list_certificates(self: Reader, *, ending_after: float, limit: int) -> list[Certificate]:
        table = schema.certificates
        query = select(table).where(table.c.not_after > ending_after)
        query = query.order_by(table.c.role, table.c.name, table.c.issued_at.desc(), table.c.serial).limit(limit)
        with self._reading() as connection:
            return list(_certificates(connection, query))

    def list_serials(self: Reader) -> dict[str, bool]:
        table = schema.certificates
        query = select(table.c.serial, table.c.revoked_at.is_not(None))
        with self._reading() as connection:
            return {serial: bool(is_revoked) for serial, is_revoked in connection.execute(query)}

    def revoked_holders(self: Reader, role: str) -> frozenset[str]:
        table = schema.certificates
        query = select(table.c.name).where(table.c.role == role).group_by(table.c.name)
        with self._reading() as connection:
            every_one_is = func.count() == func.count(table.c.revoked_at)
            return frozenset(connection.execute(query.having(every_one_is)).scalars())


class IdentityWrites:
    """Writes of a `Transaction` (see base.py) about invitations and certificates."""

    def save_invitation(self: Writer, invitation: Invitation) -> None:
        self._upsert(schema.invitations, rows.sealed(schema.invitations, asdict(invitation)))

    def save_certificate(self: Writer, certificate: Certificate) -> None:
        self._upsert(schema.certificates, rows.sealed(schema.certificates, asdict(certificate)))

    def forget_open_invitations(self: Writer, role: str, name: str) -> None:
        table = schema.invitations
        is_it = (table.c.role == role) & (table.c.name == name) & table.c.spent_at.is_(None)
        self._connection.execute(delete(table).where(is_it))

    def forget_ended(self: Writer, before: float) -> None:
        invitations, certificates = schema.invitations, schema.certificates
        self._connection.execute(delete(certificates).where(certificates.c.not_after < before))
        is_holders = (certificates.c.role == invitations.c.role) & (certificates.c.name == invitations.c.name)
        is_held = invitations.c.spent_at.is_not(None) & exists().where(is_holders)  # its domain binds the holder
        self._connection.execute(delete(invitations).where((invitations.c.expires_at < before) & ~is_held))


def _certificates(connection: Connection, query: Any) -> Iterator[Certificate]:
    return map(_certificate_of, connection.execute(query).all())


def _certificate_of(row: Row[Any]) -> Certificate:
    return Certificate(**rows.checked(schema.certificates, row))
