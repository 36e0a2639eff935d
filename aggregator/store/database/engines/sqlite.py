"""SQLite database in WAL mode with synchronous FULL: a commit returns when it is on the disk.

Each transaction increments a count in the only row of the table `writer`, next to a token that this process wrote when it
claimed the database. If the token is another one, a second aggregator writes, whatever happened to the lock of the state
directory: this process stops writing, and reports that once through `on_lost`.

The file `committed` beside the database has the count too. It is written after each commit where that can be, and not
fsynced, so it may be behind after a power cut or on a full disk and is never ahead. A database that is behind the file has
lost transactions: somebody removed or cut its write-ahead log, or put an older copy in its place. `claim` refuses it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, create_engine, event, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.engines.connections import ANOTHER_WROTE, lost
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.failpoints import failpoint

BUSY_TIMEOUT_S = 30
"""Longest wait of a transaction for a lock of another process (a backup, a reader)."""
COMMITTED = "committed"
"""Name of the file with the number of committed transactions."""
DIGITS = 19
_COUNT = "UPDATE writer SET transactions = transactions + 1 WHERE token = ? RETURNING transactions"


class Sqlite:
    """A `Database` (see connections.py) in one file; the state directory's lock and the token exclude other aggregators."""

    def __init__(self, file: Path, on_lost: Callable[[str], None] = lambda _why: None) -> None:
        """Prepare.

        Args:
            on_lost: Called from any thread with the reason why this process must end.
        """
        self.file: Path | None = file
        self.name, self.state = f"sqlite:{file}", ""
        self._committed, self._on_lost = file.with_name(COMMITTED), on_lost
        self._token, self._lost = secrets.token_hex(16), ""
        self._counter: int | None = None
        self._count = 0
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
        """See `Database.claim`.

        Raises:
            StoreUnavailable: The database has fewer transactions than were committed.
        """
        with self.undivided() as connection:
            known = connection.execute(select(schema.writer)).first()
            count = 0 if known is None else known.transactions
            committed = committed_count(self._committed)
            if committed is not None and count < committed:
                raise StoreUnavailable(lost_history(self.name, count, committed))
            count += 1
            values = {"token": self._token, "transactions": count}
            if known is None:
                connection.execute(insert(schema.writer).values(state=secrets.token_hex(16), **values))
            else:
                connection.execute(update(schema.writer).values(values))
            failpoint("store.commit.before")
        failpoint("store.commit.after")
        try:
            disk.replace_file(self._committed, _line(count), "store.committed")
            self._counter = os.open(self._committed, os.O_WRONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreUnavailable(f"cannot write {self._committed}: {error.strerror or error}; make room") from error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """See `Database.transaction`."""
        if self._lost:
            raise StoreUnavailable(self._lost)
        with self.undivided() as connection:
            count = connection.exec_driver_sql(_COUNT, (self._token,)).scalar()
            if count is None:
                self._lost = lost(self.name, ANOTHER_WROTE)
                self._on_lost(self._lost)
                raise StoreUnavailable(self._lost)
            yield connection
        self._count = count

    def note_committed(self) -> None:
        """See `Database.note_committed`."""
        if self._counter is not None:
            with suppress(
                OSError
            ):  # the transaction is durable: the file may be behind, and then tells of fewer lost ones
                os.pwrite(self._counter, _line(self._count), 0)

    def close(self) -> None:
        """See `Database.close`."""
        self.engine.dispose()
        if self._counter is not None:
            os.close(self._counter)
            self._counter = None


def write_many(connection: Connection, text: str, values: list[tuple[Any, ...]]) -> None:
    """Run a statement without an answer for each of these values; its errors are those of SQLAlchemy."""
    driver: Any = connection.connection.driver_connection
    try:
        driver.executemany(text, values)
    except sqlite3.Error as error:
        raise DBAPIError.instance(text, None, error, sqlite3.Error, dialect=connection.dialect) from error


def committed_count(file: Path) -> int | None:
    """Return the number of committed transactions that the file `committed` has; None if it has none."""
    try:
        text = disk.read_regular(file)
    except OSError:
        return None
    number, end = text[:DIGITS], text[DIGITS:]
    return int(number) if len(number) == DIGITS and number.isdigit() and end == b"\n" else None


def lost_history(name: str, count: int, committed: int) -> str:
    """Return the sentence for a database with fewer transactions than were committed."""
    return (
        f"{name} lacks {committed - count:,} of {committed:,} committed transactions: its write-ahead log (the file that "
        "ends in -wal) was removed or cut, or an older copy took its place; put the file back, or restore a backup into an "
        f"empty directory; to go on with what is there, remove the file {COMMITTED!r} beside it"
    )


def _line(count: int) -> bytes:
    return b"%0*d\n" % (DIGITS, count)


def _configure(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions of its own
    try:
        if connection.execute("PRAGMA page_count").fetchone() == (0,):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file only: see `remove_rows`
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()  # SQLAlchemy forgets a connection whose listener raises
        raise


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("migrating", False):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")  # too late once a transaction has begun
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate", False) else "BEGIN")
