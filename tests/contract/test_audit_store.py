"""The contract of every store about the audit: a chain without gaps, both with its transaction or neither."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.identity.audit_chain import EMPTY, AuditRecord, head_of, verify

RECORD = AuditRecord(time=1e9 + 0.123456789, caller="owner", method="PauseRun", target="run", request_id="é\u4e2d")


def add(store: Store, *records: AuditRecord) -> None:
    with store.transaction() as transaction:
        transaction.add_audit(records)


def test_records_come_back_as_a_chain(store: Store) -> None:
    assert store.audit_head() == EMPTY
    assert store.list_audit() == []
    full = replace(RECORD, credential="k", outcome="refused", reason="KEY_INVALID", address="10.0.0.9", count=2**62)
    add(store, RECORD, full)
    add(store)
    add(store, RECORD)
    found = store.list_audit()
    assert [entry.number for entry in found] == [1, 2, 3]
    assert [replace(RECORD, time=entry.time) for entry in found if entry.time == RECORD.time] == [RECORD] * 3
    assert (found[1].count, found[1].address) == (2**62, "10.0.0.9")
    assert verify(found).damages == ()
    assert store.audit_head() == head_of(found[-1])


def test_several_calls_of_one_transaction_follow_each_other(store: Store) -> None:
    with store.transaction() as transaction:
        for _ in range(3):
            transaction.add_audit([RECORD])
    assert verify(store.list_audit()).head.number == 3


def test_a_transaction_that_fails_leaves_no_gap(store: Store) -> None:
    add(store, RECORD)

    def fail() -> None:
        with store.transaction() as transaction:
            transaction.add_audit([RECORD, RECORD])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert store.audit_head().number == 1
    add(store, RECORD)
    assert [entry.number for entry in store.list_audit()] == [1, 2]
    assert verify(store.list_audit()).damages == ()


def test_pages_are_in_order(store: Store) -> None:
    add(store, *[RECORD] * 5)
    assert [entry.number for entry in store.list_audit(after=1, limit=3)] == [2, 3, 4]
    assert store.list_audit(after=5) == []


def test_a_row_that_cannot_be_read_is_damage_and_no_error(folder: Path) -> None:
    import sqlite3

    store = SqlStore.in_folder(folder)
    add(store, *[RECORD] * 4)
    store.close()
    with sqlite3.connect(folder / "aggregator.sqlite") as connection:
        connection.execute("UPDATE audit SET time = 'never' WHERE number = 2")
        connection.execute("UPDATE audit SET count = x'00ff' WHERE number = 3")
    connection.close()
    store = SqlStore.in_folder(folder)
    assert {damage.number for damage in verify(store.list_audit()).damages} >= {2, 3}
    store.close()
