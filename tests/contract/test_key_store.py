"""The contract of every store (aggregator/store/base.py) about keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from fedplcc.aggregator.store.base import ApiKey, Store
from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import RowCorrupt
from tests.contract.conftest import Open


def a_key(key_id: str = "0a", **changes: Any) -> ApiKey:
    values: dict[str, Any] = {
        "secret_sha256": "ab" * 32,
        "kind": "key",
        "label": "Übersicht",
        "scopes": ("read", "metrics"),
        "created_at": 10.1,
        "expires_at": 20.25,
    }
    return ApiKey(key_id=key_id, **(values | changes))


def save(store: Store, *keys: ApiKey) -> None:
    with store.transaction() as transaction:
        for key in keys:
            transaction.save_key(key)


def test_a_key_is_read_as_it_was_written(store: Store, open_store: Open) -> None:
    save(store, a_key())
    assert store.find_key("0a") == a_key()
    assert open_store().find_key("0a") == a_key()


def test_an_unknown_key_is_none(store: Store) -> None:
    assert store.find_key("0a") is None


def test_a_key_that_is_saved_again_is_changed(store: Store) -> None:
    revoked = replace(a_key(), revoked_at=12.5)
    save(store, a_key())
    save(store, revoked)
    assert store.find_key("0a") == revoked


def test_keys_that_hold_are_listed_newest_first(store: Store) -> None:
    newer, ended = a_key("0b", created_at=11.0), a_key("0c", expires_at=15.0)
    save(store, a_key(), newer, ended, a_key("0d", revoked_at=12.0))
    assert store.list_keys(ending_after=15.0, limit=9) == [newer, a_key()]
    assert store.list_keys(ending_after=15.0, limit=1) == [newer]


def test_ended_keys_are_forgotten(store: Store) -> None:
    save(store, a_key(), a_key("0b", expires_at=30.0))
    with store.transaction() as transaction:
        transaction.forget_ended_keys(25.0, 25.0, 10)
    assert store.find_key("0a") is None
    assert store.find_key("0b") is not None


def test_only_the_newest_of_ended_and_revoked_keys_are_kept(store: Store) -> None:
    ended = [a_key(f"e{number}", created_at=float(number), expires_at=50.0) for number in range(4)]
    revoked = [a_key(f"f{number}", created_at=10.0 + number, revoked_at=20.0) for number in range(4)]
    save(store, a_key("0a", created_at=0.0, expires_at=90.0), *ended, *revoked)
    with store.transaction() as transaction:
        transaction.forget_ended_keys(60.0, 0.0, 5)
    kept = [key.key_id for key in (*ended, *revoked) if store.find_key(key.key_id) is not None]
    assert kept == ["e3", "f0", "f1", "f2", "f3"]
    assert store.find_key("0a") is not None, "it is the oldest, but it holds"


def test_a_changed_row_of_a_key_is_noticed(store: Store) -> None:
    save(store, a_key())
    assert isinstance(store, SqlStore)
    with store.database.engine.begin() as connection:
        connection.execute(update(schema.api_keys).values(scopes=["admin"]))
    with pytest.raises(RowCorrupt):
        store.find_key("0a")
    with pytest.raises(RowCorrupt):
        store.list_keys(ending_after=0.0, limit=9)
