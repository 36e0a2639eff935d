"""What a store needs of a database: connections that read, and one that writes at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from shared.errors import FedplccError, StoreUnavailable

NOT_ALLOWED = "42501"
"""What PostgreSQL calls a lack of privileges."""


class Database(Protocol):
    """SQLite (sqlite.py) or PostgreSQL (postgres.py)."""

    engine: Engine
    """For reading: what a connection reads is one state, and it waits for no writer."""
    file: Path | None
    """Where it is kept, if that is a file."""
    name: str
    """For people: where it is, without user and password."""
    state: str
    """Drawn when a database on a server was made, known once it is claimed; empty for a file in the state directory."""

    def undivided(self, *, migrating: bool = False) -> AbstractContextManager[Connection]:
        """One transaction in which nobody else writes; with `migrating`, tables that others refer to may be replaced."""

    def claim(self) -> None:
        """Make this process the writer, once the tables are those of schema.py."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """As `undivided`, for a writer that has claimed the database; threads take turns."""

    def close(self) -> None:
        """Let go of all connections."""


@contextmanager
def database_errors(failure: str) -> Iterator[None]:
    """A database that is full, locked, damaged or away is `StoreUnavailable`; a wrong statement stays the bug it is.

    `failure` begins the sentence.
    """
    try:
        yield
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == NOT_ALLOWED:
            raise StoreUnavailable(
                f"{failure}: {one_line(error)}; make its user the owner of the database, or grant that"
            ) from error
        if isinstance(error, (DataError, IntegrityError, ProgrammingError)):
            raise
        raise StoreUnavailable(f"{failure}: {one_line(error)}{_advice(error)}") from error
    except StatementError as error:
        if isinstance(error.orig, FedplccError):
            raise error.orig from None  # a value that no column takes: see columns.py
        raise


def _advice(error: DBAPIError) -> str:
    """What helps where SQLite's own words do not say it."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "; restore a backup"
    return "; make room" if code == sqlite3.SQLITE_FULL else ""


def one_line(error: DBAPIError) -> str:
    """What the database says, on one line."""
    return " ".join(str(error.orig).split())
