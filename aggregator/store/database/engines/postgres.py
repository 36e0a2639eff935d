"""PostgreSQL database with one writing aggregator at a time.

All its transactions use one connection, the writer, which holds an advisory lock while it is open: a second aggregator on
the same database is refused. Each transaction also increments a count in the only row of the table `writer`, next to a token
that this process wrote when it claimed the database. The row answers two questions that a lock cannot:

- If the connection breaks during COMMIT, the count tells whether the change is in the database.
- If the lock was lost, the token tells whether another aggregator has written since. If so, this process's memory is out of
  date: it stops writing, and reports that once through `on_lost`.

After any other failure the next transaction opens a new writer.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import URL, bindparam, create_engine, event, insert, make_url, select, text, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ArgumentError, DBAPIError, ProgrammingError

from fedplcc.aggregator.store.database import schema
from fedplcc.aggregator.store.database.engines.connections import ANOTHER_WROTE, lost, one_line
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.process.log import get_logger

log = get_logger("fedplcc.aggregator.store")

DRIVERS = ("postgresql", "postgres", "postgresql+psycopg")
FORM = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"
CONNECTING = {
    "client_encoding": "utf8",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",  # ms
}
"""Parameters of libpq unless the URL sets them; a vanished server is given up after seconds, not hours."""
SESSION = (
    "SET lock_timeout = '30s'",
    # On the server: the lock of a vanished machine is free again after a minute.
    "SET tcp_keepalives_idle = 30",
    "SET tcp_keepalives_interval = 10",
    "SET tcp_keepalives_count = 3",
    # A server may be told not to wait for its disk. `local` and what is stronger than `on` stay.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
TURN_S = 30.0
"""Longest wait of a thread for the transactions of other threads."""
LOCK_WAIT_S = 5
"""Longest wait for the lock; a process killed a moment ago may still hold it."""
ANSWER_S = 5.0
"""Longest time in which the outcome of a commit with a lost answer is queried at once."""
ASK_AGAIN_S = 0.1
NUM_IDLE = 4
"""Reading connections that stay open; each thread may open one more."""

NO_PSYCOPG = "PostgreSQL needs psycopg: pip install 'fedplcc[postgres]'"
_TAKE_LOCK = "SELECT pg_advisory_lock(737001, 1)"
_LOCK_NOT_AVAILABLE = "55P03"
HOLDER = text(
    "SELECT pid, application_name FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND pg_locks.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid, objid) = (737001, 1)"
)
"""Query for the holder of the lock."""
_COUNT = (
    update(schema.writer)
    .where(schema.writer.c.token == bindparam("claimed"), schema.writer.c.transactions == bindparam("before"))
    .values(transactions=schema.writer.c.transactions + 1)
)


class Postgres:
    """A `Database` (see connections.py) on a server."""

    file: Path | None = None

    def __init__(self, url: str, on_lost: Callable[[str], None]) -> None:
        """Connect and take the lock.

        Args:
            url: A URL as `FORM`; parameters of libpq may follow, for instance `?sslmode=verify-full`.
            on_lost: Called from any thread with the reason why this process must end.

        Raises:
            InvalidConfig: The URL is wrong, psycopg is not installed, or another aggregator uses the database.
            StoreUnavailable, DBAPIError: The database cannot be reached.
        """
        parsed = parse_url(url)
        self.name, self.state = public_name(parsed), ""
        self._token, self._count, self._on_lost = secrets.token_hex(16), 0, on_lost
        self._label = f"fedplcc {socket.gethostname()[:24]} {os.getpid()} {self._token[:8]}"
        try:
            self.engine = create_engine(
                parsed,
                isolation_level="REPEATABLE READ",
                pool_pre_ping=True,
                pool_size=NUM_IDLE,
                max_overflow=-1,
                connect_args={name: value for name, value in self._connecting().items() if name not in parsed.query},
            )
        except ImportError:
            raise InvalidConfig(NO_PSYCOPG) from None
        event.listen(self.engine, "connect", _configure)
        self._turn = threading.Lock()
        self._writer: Connection | None = None
        self._is_claimed, self._lost = False, ""
        try:
            self._check_server(self._held())
        except ProgrammingError as error:
            raise InvalidConfig(f"database_url: {one_line(error)}; write {FORM}") from None
        except BaseException:
            self.close()
            raise

    def claim(self) -> None:
        """See `Database.claim`."""
        with self.undivided() as connection:
            known = connection.execute(select(schema.writer.c.state)).scalar()
            if known is None:
                known = secrets.token_hex(16)
                connection.execute(insert(schema.writer).values(state=known, token=self._token, transactions=0))
            else:
                connection.execute(update(schema.writer).values(token=self._token, transactions=0))
        self.state, self._is_claimed = str(known), True

    @contextmanager
    def undivided(self, *, migrating: bool = False) -> Iterator[Connection]:
        """See `Database.undivided`; a migration may drop and create foreign keys in it."""
        with self._in_turn():
            connection = self._held()
            try:
                with connection.begin():
                    yield connection
            finally:
                self._forget_if_broken()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """See `Database.transaction`."""
        with self._in_turn():
            connection = self._begin()
            try:
                yield connection
            except BaseException:
                with suppress(DBAPIError):  # a lost connection rolls back by itself
                    connection.rollback()
                self._forget_if_broken()
                raise
            self._commit(connection)

    def note_committed(self) -> None:
        """See `Database.note_committed`; a server keeps its own log."""

    def close(self) -> None:
        """See `Database.close`."""
        self._forget()
        self.engine.dispose()

    # The writer

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=TURN_S):
            raise StoreUnavailable(f"cannot write to the database: another change takes more than {TURN_S:.0f} s")
        try:
            if self._lost:
                raise StoreUnavailable(self._lost)
            yield
        finally:
            self._turn.release()

    def _begin(self) -> Connection:
        """Return the writer in a new transaction that has incremented the count."""
        had_one = self._writer is not None
        try:
            return self._counted(self._held())
        except DBAPIError as error:
            self._forget()
            if not (had_one and error.connection_invalidated):
                raise
        # The server has restarted since the last transaction; nothing is written yet.
        try:
            return self._counted(self._held())
        except DBAPIError:
            self._forget()
            raise

    def _counted(self, connection: Connection) -> Connection:
        moved = connection.execute(_COUNT, {"claimed": self._token, "before": self._count}).rowcount
        if moved != 1:
            found = connection.execute(select(schema.writer)).first()
            connection.rollback()
            is_own = found is not None and found.token == self._token
            self._lose("a change whose answer was lost is in it after all" if is_own else ANOTHER_WROTE)
        return connection

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except DBAPIError as error:
            self._forget()
            if not error.connection_invalidated or not self._was_committed():
                raise
        self._count += 1

    def _was_committed(self) -> bool:
        """Return whether a commit with a lost answer succeeded; False if the server is away: the next count tells then."""
        deadline = time.monotonic() + ANSWER_S
        while not self._lost and time.monotonic() < deadline:
            try:
                connection = self._held()
                found = connection.execute(select(schema.writer)).first()
                connection.rollback()
            except (DBAPIError, StoreUnavailable):
                self._forget()
                time.sleep(ASK_AGAIN_S)
            else:
                return found is not None and (found.token, found.transactions) == (self._token, self._count + 1)
        return False

    def _held(self) -> Connection:
        """Return the connection that holds the lock, a new one if it was lost."""
        if self._writer is None:
            connection = self.engine.connect()
            try:
                self._take_lock(connection)
            except BaseException:
                connection.invalidate()
                connection.close()
                raise
            self._writer = connection
        return self._writer

    def _take_lock(self, connection: Connection) -> None:
        """Take the lock; ends an earlier connection of this process whose loss the server has not noticed."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
        try:
            connection.exec_driver_sql(_TAKE_LOCK)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
        else:
            connection.commit()
            return
        connection.rollback()
        holder = connection.execute(HOLDER).first()
        label = "" if holder is None else str(holder.application_name)
        if label == self._label:
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": holder.pid if holder else 0})
            raise StoreUnavailable(f"cannot write to {self.name}: it waits for the connection that was lost; try again")
        another = f"another aggregator{f' ({label})' if label else ''}"
        if self._is_claimed:
            self._lose(f"{another} has taken it")
        raise InvalidConfig(f"{another} uses {self.name}; end it, or choose another database with --database-url")

    def _forget_if_broken(self) -> None:
        if self._writer is not None and (self._writer.invalidated or self._writer.closed):
            self._forget()

    def _forget(self) -> None:
        """Close the writer, which releases the lock."""
        connection, self._writer = self._writer, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _lose(self, why: str) -> NoReturn:
        """Stop writing for good: memory and database disagree."""
        self._lost = lost(self.name, why)
        self._on_lost(self._lost)
        raise StoreUnavailable(self._lost)

    # The server

    def _connecting(self) -> dict[str, str]:
        return {**CONNECTING, "application_name": self._label}

    def _check_server(self, connection: Connection) -> None:
        names = ("server_encoding", "fsync", "server_version")
        encoding, fsync, version = (connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names)
        connection.rollback()
        if encoding != "UTF8":
            raise InvalidConfig(f"{self.name} keeps text as {encoding}: make a database with ENCODING 'UTF8'")
        log.info("database_opened", database=self.name, server=version)
        if fsync != "on":
            log.warning(
                "database_not_durable", detail="fsync is off on the server: a crash of it may lose or damage runs"
            )


def parse_url(url: str) -> URL:
    """Return a URL for SQLAlchemy, with psycopg 3 as its driver.

    Raises:
        InvalidConfig: The text is no URL of a PostgreSQL database. The sentence does not repeat it.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidConfig(f"database_url is no URL; write {FORM}") from None
    if parsed.drivername not in DRIVERS:
        raise InvalidConfig(f"database_url is not of PostgreSQL; write {FORM}, or leave it out for SQLite")
    if "@" in f"{parsed.host}{parsed.database}":
        raise InvalidConfig("database_url has an @ too many; write %40 for an @ and %2F for a / in the password")
    if not parsed.database:
        raise InvalidConfig(f"database_url names no database; write {FORM}")
    return parsed.set(drivername="postgresql+psycopg")


def public_name(url: URL) -> str:
    """Return the database's location for logs, without user and password."""
    host = url.query.get("host", "") if not url.host else url.host
    where = f"{host}:{url.port}" if url.port else f"{host}"
    return f"postgresql://{where}/{url.database}"


def _configure(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        for statement in SESSION:
            cursor.execute(statement)
    connection.commit()
