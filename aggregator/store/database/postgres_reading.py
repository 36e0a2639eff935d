"""Read-only access to a PostgreSQL database that an aggregator may be using; takes no lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.pool import NullPool

from fedplcc.aggregator.store.database import revisions, schema
from fedplcc.aggregator.store.database.engines.connections import database_errors, one_line
from fedplcc.aggregator.store.database.engines.postgres import CONNECTING, HOLDER, NO_PSYCOPG, parse_url, public_name
from fedplcc.aggregator.store.database.engines.sqlite import Sqlite
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable

ROWS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Properties of a database and its server."""

    name: str
    """Location, without user and password."""
    version: str
    encoding: str
    is_durable: bool
    """Whether the server waits for its disk."""
    revision: str
    """Revision of its tables; `revisions.NEW` if there are none."""
    may_make_tables: bool
    holder: str
    """Label of the aggregator that uses it; empty if none does."""


def look_at(url: str) -> Server:
    """Return the properties of a database.

    Raises:
        InvalidConfig: The URL is wrong, or psycopg is not installed.
        StoreUnavailable: The database cannot be reached.
    """
    with _reading(url) as connection:

        def shown(name: str) -> str:
            return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())

        holder = connection.execute(HOLDER).first()
        may_make = "SELECT has_schema_privilege(current_schema(), 'CREATE')"
        return Server(
            name=public_name(parse_url(url)),
            version=shown("server_version"),
            encoding=shown("server_encoding"),
            is_durable=shown("fsync") == "on",
            revision=revisions.revision_of(connection),
            may_make_tables=bool(connection.exec_driver_sql(may_make).scalar()),
            holder="" if holder is None else str(holder.application_name),
        )


def copy_to_sqlite(url: str, state: str, file: Path) -> None:
    """Copy a consistent snapshot of all rows; an aggregator may write meanwhile.

    Args:
        state: `writer.state` as recorded in the state directory.

    Raises:
        InvalidConfig: The URL is wrong, or it is another database than the one of the state directory.
        StoreUnavailable: The database cannot be read, or is of another revision.
    """
    with _reading(url) as source:
        name, revision = public_name(parse_url(url)), revisions.revision_of(source)
        if revision != schema.REVISION:
            raise StoreUnavailable(
                f"{name} is at revision {revision or 'none'} and not {schema.REVISION}: let an aggregator of this version "
                "start on it once, or use the version that wrote it"
            )
        if source.execute(select(schema.writer.c.state)).scalar() != state:
            raise InvalidConfig(f"{name} is not the database of this state directory: give that one's URL")
        copy = SqlStore(Sqlite(file))
        try:
            with copy.database.undivided() as target:
                for table in schema.metadata.sorted_tables:
                    if table is not schema.writer:  # SQLite needs no row: the folder's lock names the writer
                        rows = source.execution_options(yield_per=ROWS_AT_ONCE).execute(select(table))
                        for part in rows.mappings().partitions():
                            target.execute(insert(table), [dict(row) for row in part])
        finally:
            copy.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file, wherever it is opened


@contextmanager
def _reading(url: str) -> Iterator[Connection]:
    """Open a connection to a consistent snapshot of the database."""
    parsed = parse_url(url)
    options = {name: value for name, value in CONNECTING.items() if name not in parsed.query}
    try:
        engine = create_engine(parsed, isolation_level="REPEATABLE READ", poolclass=NullPool, connect_args=options)
    except ImportError:
        raise InvalidConfig(NO_PSYCOPG) from None
    with database_errors("cannot read the database"):
        try:
            connection = engine.connect().execution_options(postgresql_readonly=True)
        except ProgrammingError as error:
            raise InvalidConfig(f"database_url: {one_line(error)}") from None
        with connection:
            yield connection
