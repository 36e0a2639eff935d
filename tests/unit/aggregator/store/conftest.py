"""Fixtures of tests on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fedplcc.aggregator.store.database.sql_store import SqlStore


@pytest.fixture
def reasons() -> list[str]:
    """Why the process was told to end."""
    return []


@pytest.fixture
def store(database_url: str, reasons: list[str]) -> Iterator[SqlStore]:
    opened = SqlStore.at(database_url, on_lost=reasons.append)
    yield opened
    opened.close()
