"""Fixtures of admission."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest

from fedplcc.aggregator.identity.admissions import Admissions
from fedplcc.aggregator.store.database.sql_store import SqlStore
from tests.support.clock import Clock
from tests.support.identity.memory_authority import MemoryAuthority

Restart: TypeAlias = Callable[[], Admissions]


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000.0)


@pytest.fixture
def authority(clock: Clock) -> MemoryAuthority:
    return MemoryAuthority(clock)


@pytest.fixture
def store(folder: Path) -> Iterator[SqlStore]:
    with closing(SqlStore.in_folder(folder)) as opened:
        yield opened


@pytest.fixture
def restart(store: SqlStore, authority: MemoryAuthority, clock: Clock) -> Restart:
    """Starts the admissions anew on what is kept."""
    return lambda: Admissions(store, authority, clock=clock)


@pytest.fixture
def admissions(restart: Restart) -> Admissions:
    return restart()
