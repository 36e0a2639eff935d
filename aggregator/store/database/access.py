"""A store's access to its database, as the parts of a store see it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from sqlalchemy import Connection, Row, Table

from fedplcc.aggregator.store.database.releases import Changes


class Reader(Protocol):
    """Reads on a connection of the moment."""

    def _reading(self) -> AbstractContextManager[Connection]: ...

    def _first(self, query: Any, values: Mapping[str, Any] | None = None) -> Row[Any] | None: ...


class Writer(Protocol):
    """Writes in one transaction."""

    _connection: Connection
    changes: Changes

    def _upsert(self, table: Table, values: Mapping[str, Any]) -> None: ...

    def write_gathered(self) -> None:
        """Write the rows that wait for others of their table."""
