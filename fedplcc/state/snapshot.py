"""A consistent copy of an aggregator's database, also while the aggregator writes to it."""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import SQLITE, belonging
from fedplcc.shared.errors import InvalidConfig, PayloadCorrupt, StoreUnavailable
from fedplcc.shared.process.disk import why_unusable

DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def require_state(state: Path, url: str | None = None) -> Path:
    """Return the folder if it is an aggregator's state directory.

    Args:
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: It is not, or the URL is missing.
    """
    if (state / SQLITE).is_file():
        return state
    known = _belonging(state)
    if known is not None and url is not None:
        return state
    if known is not None:
        raise InvalidConfig(
            f"the database of {state} is {known[1]}: give its URL with --database-url or FEDPLCC_DATABASE_URL"
        )
    if (state / "aggregator" / SQLITE).is_file():
        raise InvalidConfig(f"{state} is no state directory of an aggregator; do you mean {state / 'aggregator'}?")
    raise InvalidConfig(f"{state} is no state directory of an aggregator: there is no {SQLITE} in it")


def copy_database(state: Path, target: Path, url: str | None = None) -> None:
    """Copy a state directory's database as of one moment, into a SQLite file.

    Args:
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: The URL is of another database.
        StoreUnavailable: It cannot be read, or the copy cannot be written.
    """
    known = _belonging(state)
    if known is not None and url is not None:
        from fedplcc.aggregator.store.database.postgres_reading import copy_to_sqlite

        copy_to_sqlite(url, known[0], target)
        return
    file = state / SQLITE
    try:
        with closing(_reader(file)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            # A copy of a write-ahead database asks for files beside it wherever it is opened; this one is whole.
            copy.execute("PRAGMA journal_mode = DELETE")
            damage = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in DAMAGED:
            raise StoreUnavailable(f"the database {file} is damaged ({error}): restore a backup") from error
        advice = "; make room there, or choose another folder" if code == sqlite3.SQLITE_FULL else ""
        raise StoreUnavailable(f"cannot copy the database {file} to {target}: {error}{advice}") from error
    if damage != "ok":
        raise StoreUnavailable(f"the database {file} is damaged ({damage.splitlines()[0]}): restore a backup")


@contextmanager
def snapshot(state: Path, url: str | None = None) -> Iterator[SqlStore]:
    """The store of a state directory: a temporary copy, migrated to this version.

    Args:
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: The folder is no state directory, or the URL is missing or of another database.
        StoreUnavailable: The database cannot be read, or a newer version wrote it.
    """
    require_state(state, url)
    with tempfile.TemporaryDirectory(prefix="fedplcc-snapshot-") as folder:
        copy_database(state, Path(folder) / SQLITE, url)
        store = SqlStore.in_folder(Path(folder))
        try:
            yield store
        finally:
            store.close()


def named_blobs(database: Path) -> dict[str, int]:
    """The blobs in a copied database of any revision, each with its size in bytes.

    Raises:
        PayloadCorrupt: One has no SHA-256 for a name: files are read and written by them.
        StoreUnavailable: It cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database.resolve()))}?mode=ro", uri=True)) as connection:
            named = dict(connection.execute("SELECT sha256, size_bytes FROM blobs ORDER BY sha256"))
        if not all(re.fullmatch("[0-9a-f]{64}", str(name)) for name in named):
            raise PayloadCorrupt(f"{database} names blobs by what is no SHA-256: use another backup")
        return named
    except sqlite3.Error as error:
        raise StoreUnavailable(f"cannot read {database}: {error}") from error


def _belonging(state: Path) -> tuple[str, str] | None:
    try:
        return belonging(state)
    except OSError as error:
        raise StoreUnavailable(why_unusable(state, error)) from error


def _reader(file: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(file.resolve()))}"
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=30)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A reader beside writers needs files of its own, which a read-only folder cannot hold; but then no process writes.
        connection.close()
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    except BaseException:
        connection.close()
        raise
    return connection
