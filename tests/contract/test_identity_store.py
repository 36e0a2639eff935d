"""The contract of every store (aggregator/store/base.py) about invitations and certificates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import update

from fedplcc.aggregator.store.base import Certificate, Invitation, Store, Transaction
from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.row_check import damaged_rows
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import MalformedRequest, RowCorrupt
from tests.contract.conftest import Open


def an_invitation(invitation_id: str = "i1", **changes: Any) -> Invitation:
    values: dict[str, Any] = {
        "secret_sha256": "ab" * 32,
        "role": "client",
        "name": "north",
        "domain": "röntgen",
        "replaces": True,
    }
    return Invitation(invitation_id=invitation_id, **(values | {"created_at": 10.1, "expires_at": 20.25} | changes))


def a_certificate(serial: str = "0a", **changes: Any) -> Certificate:
    values: dict[str, Any] = {
        "role": "client",
        "name": "north",
        "public_key_sha256": "cd" * 32,
        "issued_at": 10.1,
        "not_after": 100.0,
    }
    return Certificate(serial=serial, **(values | {"pem": "-----BEGIN CERTIFICATE-----\n"} | changes))


def save(store: Store, *records: Invitation | Certificate) -> None:
    with store.transaction() as transaction:
        for record in records:
            if isinstance(record, Invitation):
                transaction.save_invitation(record)
            else:
                transaction.save_certificate(record)


def test_an_invitation_and_a_certificate_are_read_as_they_were_written(store: Store, open_store: Open) -> None:
    invitation, certificate = an_invitation(), a_certificate()
    save(store, invitation, certificate)
    assert store.find_invitation("i1") == invitation
    assert store.find_certificate("0a") == certificate
    again = open_store()
    assert (again.find_invitation("i1"), again.find_certificate("0a")) == (invitation, certificate)


def test_unknown_ones_are_none(store: Store) -> None:
    assert store.find_invitation("i1") is None
    assert store.find_certificate("0a") is None
    assert store.certificates_of("client", "north") == []


def test_a_spent_invitation_and_a_revoked_certificate_take_the_place_of_what_they_were(store: Store) -> None:
    spent = an_invitation(spent_at=12, serial="0a")
    revoked = a_certificate(revoked_at=50)
    save(store, an_invitation(), a_certificate())
    save(store, spent, revoked)
    assert store.find_invitation("i1") == spent
    assert store.find_certificate("0a") == revoked
    assert store.list_serials()["0a"]


def test_a_whole_number_as_a_time_has_the_digest_of_what_the_database_returns(store: Store) -> None:
    save(store, an_invitation(created_at=1, expires_at=2, spent_at=2), a_certificate(issued_at=1, not_after=3))
    assert store.find_invitation("i1") is not None
    assert store.find_certificate("0a") is not None
    assert isinstance(store, SqlStore)
    with store.database.engine.connect() as connection:
        assert not list(damaged_rows(connection))


@pytest.mark.parametrize(
    ("find", "table", "changes"),
    [
        (lambda store: store.find_invitation("i1"), schema.invitations, {"name": "south"}),
        (lambda store: store.find_certificate("0a"), schema.certificates, {"revoked_at": None}),
        (lambda store: store.certificates_of("client", "north"), schema.certificates, {"not_after": 1e9}),
    ],
)
def test_a_changed_row_is_refused(
    store: Store, find: Callable[[Store], object], table: Any, changes: dict[str, Any]
) -> None:
    save(store, an_invitation(), a_certificate(revoked_at=50.0))
    assert isinstance(store, SqlStore)
    with store.database.engine.begin() as connection:
        connection.execute(update(table).values(changes))
    with pytest.raises(RowCorrupt, match=table.name):
        find(store)


def test_open_invitations_are_counted_without_those_spent_and_ended(store: Store) -> None:
    save(
        store,
        an_invitation("open", expires_at=20),
        an_invitation("spent", expires_at=20, spent_at=11, serial="0a"),
        an_invitation("ended", expires_at=15),
    )
    assert store.count_open_invitations(15.0) == 1
    assert store.count_open_invitations(14.0) == 2


def test_the_open_invitations_of_one_holder_are_forgotten(store: Store) -> None:
    save(
        store,
        an_invitation("open"),
        an_invitation("spent", spent_at=11, serial="0a"),
        an_invitation("gateway", role="gateway"),
        an_invitation("south", name="south"),
    )
    with store.transaction() as transaction:
        transaction.forget_open_invitations("client", "north")
        transaction.forget_open_invitations("client", "nobody")
    left = [name for name in ("open", "spent", "gateway", "south") if store.find_invitation(name)]
    assert left == ["spent", "gateway", "south"]


def test_a_holders_certificates_come_newest_first(store: Store) -> None:
    old, new = a_certificate("0a", issued_at=1), a_certificate("0b", issued_at=2)
    twin = a_certificate("0c", issued_at=2)
    save(store, old, twin, new, a_certificate("0d", name="south"), a_certificate("0e", role="gateway"))
    assert store.certificates_of("client", "north") == [new, twin, old]


def test_certificates_that_hold_are_listed_by_holder_and_bounded(store: Store) -> None:
    serials = ["05", "04", "03", "02"]
    holders = [("client", "a"), ("client", "b"), ("client", "b"), ("gateway", "a")]
    for number, (serial, (role, name)) in enumerate(zip(serials, holders, strict=True)):
        save(store, a_certificate(serial, role=role, name=name, issued_at=number, not_after=50))
    save(store, a_certificate("01", name="a", not_after=40))
    listed = store.list_certificates(ending_after=40, limit=10)
    assert [(found.role, found.name, found.serial) for found in listed] == [
        ("client", "a", "05"),
        ("client", "b", "03"),
        ("client", "b", "04"),
        ("gateway", "a", "02"),
    ]
    assert store.list_certificates(ending_after=40, limit=2) == listed[:2]
    assert store.list_certificates(ending_after=50, limit=10) == []


def test_a_role_has_a_holder_until_its_last_certificate_is_revoked(store: Store) -> None:
    assert not store.has_holder("gateway")
    save(store, a_certificate("0a"), a_certificate("0b", role="gateway"), a_certificate("0c", role="gateway"))
    save(store, a_certificate("0b", role="gateway", revoked_at=1))
    assert store.has_holder("gateway")
    save(store, a_certificate("0c", role="gateway", revoked_at=1))
    assert not store.has_holder("gateway")


def test_what_ended_before_a_time_is_forgotten(store: Store) -> None:
    save(store, an_invitation("old", expires_at=5), an_invitation("young", expires_at=6))
    save(store, a_certificate("0a", not_after=5), a_certificate("0b", not_after=6, revoked_at=1))
    with store.transaction() as transaction:
        transaction.forget_ended(6)
    assert store.find_invitation("old") is None
    assert store.find_invitation("young") is not None
    assert [held.serial for held in store.certificates_of("client", "north")] == ["0b"]
    assert store.list_serials() == {"0b": True}


class Interrupted(Exception):
    """Something goes wrong in the middle of a transaction."""


@pytest.mark.parametrize(
    "write",
    [
        lambda transaction: transaction.save_invitation(an_invitation(spent_at=12, serial="0b")),
        lambda transaction: transaction.save_certificate(a_certificate(revoked_at=12)),
        lambda transaction: transaction.forget_open_invitations("client", "north"),
        lambda transaction: transaction.forget_ended(1e9),
    ],
)
def test_a_transaction_that_raises_changes_nothing(store: Store, write: Callable[[Transaction], None]) -> None:
    before = (an_invitation(), a_certificate())
    save(store, *before)

    def interrupted() -> None:
        with store.transaction() as transaction:
            write(transaction)
            raise Interrupted

    with pytest.raises(Interrupted):
        interrupted()
    assert (store.find_invitation("i1"), store.find_certificate("0a")) == before


@pytest.mark.parametrize("name", ["name", "domain"])
def test_a_name_that_no_database_can_keep_is_refused(store: Store, name: str) -> None:
    wrong = an_invitation(**{name: "a\0b"})
    with pytest.raises(MalformedRequest, match=r"U\+0000"):
        save(store, wrong)
    assert store.find_invitation("i1") is None
