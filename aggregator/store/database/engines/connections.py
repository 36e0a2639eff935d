"""Protocol of a database: many reading connections, one writing transaction at a time; its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, StatementError

from fedplcc.shared.errors import FedplccError, StoreUnavailable
from fedplcc.shared.process.resources import RAISE_FILES, is_out_of_files

NOT_ALLOWED = "42501"
"""SQLSTATE of PostgreSQL for a lack of privileges."""


class Database(Protocol):
    """SQLite (sqlite.py) or PostgreSQL (postgres.py)."""

    engine: Engine
    """Engine for reading: a connection reads one consistent state and waits for no writer."""
    file: Path | None
    """File of the database; None on a server."""
    name: str
    """Name for people: the location, without user and password."""
    state: str
    """Random identity of a database on a server, known once it is claimed; empty for a file in the state directory."""

    def undivided(self, *, migrating: bool = False) -> AbstractContextManager[Connection]:
        """Open a transaction that excludes other writers; with `migrating`, referenced tables may be replaced."""

    def claim(self) -> None:
        """Make this process the writer; the tables are those of schema.py."""

    def transaction(self) -> AbstractContextManager[Connection]:
        """Open a transaction as `undivided`, after `claim`; threads take turns."""

    def note_committed(self) -> None:
        """Note outside the database that a transaction is durable."""

    def close(self) -> None:
        """Close all connections."""


def lost(name: str, why: str) -> str:
    """Return the sentence of a process that must stop writing for good: memory and database disagree."""
    return f"{name} is not as this process left it: {why}; it ends, and its next start reads what is there"


ANOTHER_WROTE = "another aggregator wrote to it"


@contextmanager
def database_errors(failure: str) -> Iterator[None]:
    """Turn errors of a full, locked, damaged or unreachable database into `StoreUnavailable`; wrong statements pass.

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
            raise error.orig from None  # a value that a column refuses: see columns.py
        raise


def _advice(error: DBAPIError) -> str:
    """Return advice for errors of SQLite that give none."""
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "; restore a backup"
    if code == sqlite3.SQLITE_CANTOPEN and is_out_of_files():
        return f"; {RAISE_FILES}"
    return "; make room" if code == sqlite3.SQLITE_FULL else ""


def one_line(error: DBAPIError) -> str:
    """Return the database's message on one line."""
    return " ".join(str(error.orig).split())
