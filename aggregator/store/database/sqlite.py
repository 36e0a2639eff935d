"""SQLite database in WAL mode with synchronous FULL: a commit returns when it is on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, event
from sqlalchemy.engine import Connection

BUSY_TIMEOUT_S = 30
"""Longest wait of a transaction for a lock of another process (a backup, a reader)."""


class Sqlite:
    """A `Database` (see connections.py) in one file; the state directory's lock excludes other aggregators."""

    def __init__(self, file: Path) -> None:
        self.file: Path | None = file
        self.name, self.state = f"sqlite:{file}", ""
        self.engine = create_engine(
            URL.create("sqlite", database=str(file)),
            connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
        )
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "begin", _begin)

    @contextmanager
    def undivided(self, *, migrating: bool = False) -> Iterator[Connection]:
        """See `Database.undivided`."""
        options = {"immediate": True, "migrating": migrating}
        try:
            with self.engine.connect().execution_options(**options) as connection, connection.begin():
                yield connection
        finally:
            if migrating:
                self.engine.dispose()  # the next connection enforces foreign keys again

    def claim(self) -> None:
        """See `Database.claim`."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """See `Database.transaction`."""
        with self.undivided() as connection:
            yield connection

    def close(self) -> None:
        """See `Database.close`."""
        self.engine.dispose()


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions of its own
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("migrating", False):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")  # too late once a transaction has begun
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate", False) else "BEGIN")
