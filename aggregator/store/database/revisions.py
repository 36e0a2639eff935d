"""Migration of a database to the revision of this version, once at the start.

    no tables              the tables of schema.py are created and stamped with their revision
    this revision          nothing is done; Alembic is not even imported
    an older one           a copy is kept, and migrations/ change the tables in one transaction
    an unknown one         refused: another version of fedplcc wrote it

The transaction excludes all writers, so nothing is written between the copy and the change. A process that dies in between
leaves the old database, and the next start migrates again.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from fedplcc.aggregator.store.database.engines.connections import Database
from fedplcc.aggregator.store.database.schema import REVISION, metadata
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.failpoints import passing
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.version import VERSION

if TYPE_CHECKING:
    from alembic.config import Config

log = get_logger("fedplcc.aggregator.store")

MIGRATIONS = Path(__file__).parents[1] / "migrations"
NEW = ""
"""Stands for the revision of a database without tables."""

stamp = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""Alembic's table with one row, the revision."""


def prepare(database: Database) -> None:
    """Create the tables of a new database, or migrate an old one; a copy of a file is kept beside it.

    Raises:
        StoreUnavailable: The revision is unknown, or the migration failed and has changed nothing.
        SQLAlchemyError: The database cannot be read or written.
    """
    with passing("store.prepare"), database.undivided() as connection:
        revision = revision_of(connection)
        if revision == NEW:
            metadata.create_all(connection)
            _stamp(connection, REVISION)
            return
    if revision != REVISION:
        _migrate(database)


def revision_of(connection: Connection) -> str:
    """Return the revision of a database; `NEW` if it has no tables."""
    if stamp.name in inspect(connection).get_table_names():
        return str(connection.execute(select(stamp.c.version_num)).scalar())
    return NEW


def alembic_config(connection: Connection, migrations: Path = MIGRATIONS) -> Config:
    """Return the configuration with which Alembic works on a connection; there is no alembic.ini."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def copy_name(file: Path, revision: str) -> Path:
    """Return the path of the copy of a database at a revision."""
    return file.with_name(f"{file.name}.revision-{revision}")


def _migrate(database: Database) -> None:
    # Alembic takes a tenth of a second to import: only a migration waits for it.
    from alembic import command
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError

    begin = time.monotonic()
    with passing("store.migrate"), database.undivided(migrating=True) as connection:
        revision = revision_of(connection)
        if revision == REVISION:
            return  # another process was faster
        config = alembic_config(connection, MIGRATIONS)
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError:
            raise StoreUnavailable(
                f"the database has revision {revision}, which fedplcc {VERSION} does not know, it needs revision "
                f"{REVISION}: use the version that wrote it, or restore a backup of the state directory"
            ) from None
        kept = None if database.file is None else _keep_copy(database.file, revision)
        log.info("database_migrating", revision=revision, to=REVISION, copy=None if kept is None else kept.name)
        try:
            command.upgrade(config, REVISION)
            _check_references(connection)
        except SQLAlchemyError as error:
            reason = error.orig if isinstance(error, DBAPIError) else error
            raise StoreUnavailable(
                f"the database could not be brought from revision {revision} to {REVISION} ({reason}); it is unchanged: "
                "make room if the disk is full, or use the version of fedplcc that wrote it"
            ) from error
    log.info("database_migrated", revision=REVISION, duration_s=round(time.monotonic() - begin, 3))


def _stamp(connection: Connection, revision: str) -> None:
    stamp.create(connection)
    connection.execute(insert(stamp).values(version_num=revision))


def _check_references(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        return  # PostgreSQL checks references itself
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if dangling is not None:
        raise StoreUnavailable(
            f"the migration to revision {REVISION} would lose rows that {dangling[0]} refers to; the database is unchanged: "
            "use the version of fedplcc that wrote it"
        )


def _keep_copy(file: Path, revision: str) -> Path:
    """Copy the committed database; replaces a copy of the same revision that a crash left."""
    target = copy_name(file, revision)
    temporary = target.with_name(f"{target.name}.tmp")
    try:
        disk.remove(temporary, "migration.copy")
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(temporary)) as copy:
            source.backup(copy)
        shutil.copymode(file, temporary)
        with temporary.open("rb") as written:
            disk.fsync_file(written.fileno(), "migration.copy")
        disk.rename(temporary, target, "migration.copy")
        disk.fsync_folder(target.parent, "migration.copy")
    except (OSError, sqlite3.Error) as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreUnavailable(
            f"cannot keep a copy of the database at {target} before it is migrated ({reason}); make room for "
            f"{file.stat().st_size:,} bytes"
        ) from error
    return target
