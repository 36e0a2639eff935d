"""Every store, for the tests of the contract of aggregator/store/base.py. Another store joins by a line in `STORES`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.database.sql_store import SqlStore
from tests.support.hosts.memory_folder import memory_folder

Open: TypeAlias = Callable[[], Store]
"""Opens the same store again, as the next start of an aggregator does."""

STORES = ("sqlite", "postgresql")


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Store] = []
    with memory_folder() as folder:
        url = request.getfixturevalue("database_url") if request.param == "postgresql" else ""

        def open_it() -> Store:
            for store in opened:
                store.close()
            opened.append(SqlStore.at(url) if url else SqlStore.in_folder(Path(folder)))
            return opened[-1]

        yield open_it
        for store in opened:
            store.close()


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store()
