"""Opening the store of a state directory: a SQLite file in it, or the PostgreSQL database that belongs to it.

The blobs are always in the state directory. With a wrong database, garbage collection would delete all blobs of a directory,
since no row names them; and the database would name blobs that are missing. Directory and database therefore identify each
other: the directory's file `database.json` repeats the database's `writer.state`. For the same reason no new SQLite database
is created beside blobs: their database was moved, deleted or truncated.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from fedplcc.aggregator.store.database.engines.connections import database_errors
from fedplcc.aggregator.store.database.engines.sqlite import Sqlite
from fedplcc.aggregator.store.database.revisions import NEW, revision_of
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.disk import why_unusable

BELONGING = "database.json"
SQLITE = "aggregator.sqlite"


def open_store(folder: Path, url: str | None, *, on_lost: Callable[[str], None]) -> SqlStore:
    """Open the store of a state directory, which exists and is locked by this process.

    Args:
        url: URL of its PostgreSQL database; None for SQLite.

    Raises:
        InvalidConfig: The database and the directory do not belong together; also as `SqlStore.at`.
        StoreUnavailable: Either cannot be used, or there are blobs without their SQLite database.
    """
    try:
        known = belonging(folder)
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error
    if url is None:
        if known is not None:
            raise InvalidConfig(
                f"the state directory {folder} belongs to the database {known[1]}: give its URL with --database-url or "
                "FEDPLCC_DATABASE_URL, or choose another directory with --state-dir"
            )
        _require_database_of_blobs(folder)
        return SqlStore.in_folder(folder, on_lost=on_lost)
    if (folder / SQLITE).exists():
        raise InvalidConfig(
            f"the state directory {folder} keeps its runs in {SQLITE}, and nothing moves them to PostgreSQL: choose another "
            "with --state-dir, or leave --database-url out"
        )
    store = SqlStore.at(url, on_lost=on_lost)
    try:
        _belong(folder, known, store)
    except BaseException:
        store.close()
        raise
    return store


def _require_database_of_blobs(folder: Path) -> None:
    if not any((folder / "blobs").glob("*/*")):
        return
    database = Sqlite(folder / SQLITE)
    try:
        with database_errors("cannot open the database"), database.engine.connect() as connection:
            is_new = revision_of(connection) == NEW
    finally:
        database.close()
    if is_new:
        raise StoreUnavailable(
            f"the database {folder / SQLITE} is gone or empty, but not the blobs that it named: restore a backup of the "
            "state directory, or choose a new one with --state-dir"
        )


def _belong(folder: Path, known: tuple[str, str] | None, store: SqlStore) -> None:
    database = store.database
    if known is not None:
        state, name = known
        if state != database.state:
            raise InvalidConfig(
                f"the state directory {folder} belongs to the database {name} and not to {database.name}, which is another: "
                "give the URL of its own, or choose another directory with --state-dir"
            )
        return
    if store.list_blobs(limit=1):
        raise InvalidConfig(
            f"the database {database.name} belongs to another state directory than {folder}, where its blobs are: choose "
            "that one with --state-dir, or another database with --database-url"
        )
    if any((folder / "blobs").glob("*/*")):
        raise InvalidConfig(
            f"the state directory {folder} has blobs of another database than {database.name}, which is new: choose another "
            "directory with --state-dir"
        )
    document = {"state": database.state, "database": database.name}
    try:
        disk.replace_file(folder / BELONGING, json.dumps(document).encode(), "belonging")
    except OSError as error:
        raise StoreUnavailable(why_unusable(folder, error)) from error


def belonging(folder: Path) -> tuple[str, str] | None:
    """Return state and name of the PostgreSQL database that a directory belongs to, or None.

    Raises:
        StoreUnavailable: `database.json` is damaged.
        OSError: It cannot be read.
    """
    try:
        document = json.loads(disk.read_regular(folder / BELONGING))
        return str(document["state"]), str(document["database"])
    except FileNotFoundError:
        return None
    except (ValueError, LookupError, TypeError) as error:
        raise StoreUnavailable(f"{folder / BELONGING} is damaged: restore a backup of the state directory") from error
