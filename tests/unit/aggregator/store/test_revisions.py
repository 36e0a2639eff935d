"""A database is brought to later tables whole or not at all; one of an unknown revision is left alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event
from structlog.testing import capture_logs

from docs.site import store as generated
from fedplcc.aggregator.store.database import revisions, schema
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import StoreUnavailable
from tests.support import ROOT
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.later_revision import copy_migrations, write_revision

OLD = ROOT / "tests" / "golden" / "0.2.0" / "aggregator.sql"
"""What an aggregator of 0.2.0 wrote: runs, clients, updates, evaluations, events and more."""
OLD_COPY = "aggregator.sqlite.revision-0001"

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture
def old(folder: Path) -> Path:
    """A state directory whose database is one of 0.2.0."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.executescript(OLD.read_text(encoding="utf-8"))
        connection.execute("PRAGMA journal_mode = WAL")
    return folder


def rows_of(file: Path) -> Rows:
    """Every row of every table that holds data."""
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory = sqlite3.Row
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        data = sorted(set(names) - {"alembic_version", "sqlite_sequence", "writer"})
        return {
            name: sorted((dict(row) for row in connection.execute(f"SELECT * FROM {name}")), key=repr) for name in data
        }


def tables_of(file: Path) -> dict[str, str]:
    """The statements that made tables and indexes, without the quotes and spaces that changes leave."""
    with closing(sqlite3.connect(file)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    plain = {name: " ".join(re.sub(r'TABLE "(\w+)"', r"TABLE \1", sql).split()) for name, sql in found}
    return {name: re.sub(r" (?=[,)])", "", sql) for name, sql in plain.items()}


def upgraded(file: Path, revision: str) -> None:
    """Bring a database to some revision with Alembic alone."""
    engine = create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        command.upgrade(revisions.alembic_config(connection), revision)
    engine.dispose()


def differences(file: Path) -> list[Any]:
    """What Alembic finds to change before a database is like schema.py."""
    engine = create_engine(f"sqlite:///{file}")
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    engine.dispose()
    return list(found)


def all_revisions() -> list[str]:
    """Every revision, oldest first."""
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        scripts = ScriptDirectory.from_config(revisions.alembic_config(connection))
        names = [script.revision for script in scripts.walk_revisions()]
    engine.dispose()
    return names[::-1]


# One schema, two ways to it


def test_the_newest_revision_is_the_one_that_the_tables_name() -> None:
    names = all_revisions()
    assert names[-1] == schema.REVISION
    assert names == [f"{number:04}" for number in range(1, len(names) + 1)], "one line of revisions, in order"


def test_a_new_database_is_what_the_migrations_make_from_nothing(folder: Path) -> None:
    SqlStore.in_folder(folder).close()
    upgraded(folder / "migrated.sqlite", "head")
    assert tables_of(folder / "migrated.sqlite") == tables_of(folder / "aggregator.sqlite")
    assert differences(folder / "aggregator.sqlite") == differences(folder / "migrated.sqlite") == []


def test_a_difference_would_be_found(folder: Path) -> None:
    SqlStore.in_folder(folder).close()
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN reason")
    assert [found[0] for found in differences(folder / "aggregator.sqlite")] == ["add_column"]


# A later revision

NEXT = """
    with op.batch_alter_table("runs") as batch:
        batch.drop_constraint("uq_runs_request_id", type_="unique")
        batch.alter_column("name", type_=sa.String(128))
        batch.add_column(sa.Column("owner", sa.String(64), nullable=False, server_default=""))
    with op.batch_alter_table("rounds") as batch:
        batch.drop_constraint("fk_rounds_run_id", type_="foreignkey")
"""
"""Changes what others refer to, in the ways that SQLite can only do by copying."""


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations to which a test may add one."""
    return copy_migrations(tmp_path, monkeypatch)


@pytest.fixture
def later(migrations: Path) -> Path:
    """The migrations with a later one, `NEXT`, to which the store brings databases."""
    write_revision(migrations, NEXT)
    return migrations


def with_owners(rows: Rows) -> Rows:
    """Rows as they are after `NEXT`."""
    return {**rows, "runs": [{**row, "owner": ""} for row in rows["runs"]]}


def is_changed(file: Path) -> bool:
    """Whether a database is at the later revision."""
    return "owner" in tables_of(file)["runs"]


def test_a_migration_is_logged_and_keeps_a_copy_of_what_was(old: Path, later: Path) -> None:
    os.chmod(old / "aggregator.sqlite", 0o640)
    was = rows_of(old / "aggregator.sqlite"), tables_of(old / "aggregator.sqlite")
    with capture_logs() as logs:
        SqlStore.in_folder(old).close()
    assert [(line["event"], line["revision"]) for line in logs] == [
        ("database_migrating", "0001"),
        ("database_migrated", "9000"),
    ]
    assert logs[0]["copy"] == OLD_COPY
    assert (rows_of(old / OLD_COPY), tables_of(old / OLD_COPY)) == was
    assert (old / OLD_COPY).stat().st_mode & 0o777 == 0o640
    assert not list(old.glob("*.tmp*"))
    with capture_logs() as logs:
        SqlStore.in_folder(old).close()
    assert logs == [], "the next start has nothing to do"


def test_the_copy_can_be_put_back(old: Path, later: Path) -> None:
    SqlStore.in_folder(old).close()
    for name in ("aggregator.sqlite", "aggregator.sqlite-wal", "aggregator.sqlite-shm", "committed"):
        (old / name).unlink(missing_ok=True)
    (old / OLD_COPY).rename(old / "aggregator.sqlite")
    store = SqlStore.in_folder(old)
    assert len(store.list_runs(limit=9)) == 3
    store.close()


class Died(Exception):
    """The process would end here."""


def statements(change: Callable[[], object], fail_at: int = 0) -> list[str]:
    """What a piece of work does to the database; at `fail_at`, counted from 1, it dies."""
    seen: list[str] = []

    def watch(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement)
        if len(seen) == fail_at:
            raise Died(statement)

    event.listen(Engine, "before_cursor_execute", watch)
    try:
        change()
    finally:
        event.remove(Engine, "before_cursor_execute", watch)
    return seen


def test_a_migration_that_dies_at_any_statement_leaves_the_old_database(old: Path, later: Path) -> None:
    file = old / "aggregator.sqlite"
    was = rows_of(file), tables_of(file)
    with memory_folder() as other:
        shutil.copy(file, other)
        steps = statements(lambda: SqlStore.in_folder(Path(other)).close())
    steps = steps[: next(index for index, text in enumerate(steps) if "FROM writer" in text) - 1]  # what migrates
    changing = [
        step for step, text in enumerate(steps, 1) if re.match(r"CREATE|INSERT|DROP|ALTER|UPDATE|BEGIN", text.strip())
    ]
    assert len(changing) > 10
    for step in changing:
        with pytest.raises(Died):
            statements(lambda: SqlStore.in_folder(old).close(), fail_at=step)
        assert (rows_of(file), tables_of(file)) == was, f"died at {steps[step - 1]}"
    SqlStore.in_folder(old).close()
    assert is_changed(file)


@pytest.mark.parametrize("place", ["INSERT INTO _alembic_tmp_runs", "UPDATE alembic_version"])
def test_a_process_that_is_killed_in_a_migration_leaves_the_old_database(old: Path, later: Path, place: str) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from sqlalchemy import Engine, event
from fedplcc.aggregator.store.database import revisions
from fedplcc.aggregator.store.database.sql_store import SqlStore

revisions.MIGRATIONS, revisions.REVISION = Path(sys.argv[2]), "9000"

@event.listens_for(Engine, "after_cursor_execute")
def kill(connection, cursor, statement, *rest):
    if {place!r} in statement:
        os.kill(os.getpid(), signal.SIGKILL)

SqlStore.in_folder(Path(sys.argv[1]))
"""
    was = rows_of(old / "aggregator.sqlite")
    done = subprocess.run([sys.executable, "-c", program, old, later], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert rows_of(old / "aggregator.sqlite") == was
    assert not is_changed(old / "aggregator.sqlite")
    SqlStore.in_folder(old).close()
    assert rows_of(old / "aggregator.sqlite") == with_owners(was)
    assert rows_of(old / OLD_COPY) == was


def test_nobody_writes_between_the_copy_and_the_end_of_a_migration(
    old: Path, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    keep_copy = revisions._keep_copy

    def keep_copy_and_write(file: Path, revision: str) -> Path:
        kept = keep_copy(file, revision)
        with closing(sqlite3.connect(file, timeout=0)) as connection:
            try:
                connection.execute("DELETE FROM events")
            except sqlite3.OperationalError as error:
                refused.append(str(error))
        return kept

    monkeypatch.setattr(revisions, "_keep_copy", keep_copy_and_write)
    SqlStore.in_folder(old).close()
    assert refused == ["database is locked"]


def test_without_room_for_a_copy_nothing_is_migrated(old: Path, later: Path) -> None:
    was = tables_of(old / "aggregator.sqlite")
    (old / OLD_COPY).mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot keep a copy .*revision-0001.*; make room for [\d,]+ bytes"):
        SqlStore.in_folder(old)
    assert tables_of(old / "aggregator.sqlite") == was
    assert not list(old.glob("*.tmp"))


# Databases of other versions


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "revision 9999"),
        ("DELETE FROM alembic_version", "revision None"),
    ],
)
def test_a_database_of_an_unknown_revision_is_refused_and_left_alone(folder: Path, change: str, said: str) -> None:
    SqlStore.in_folder(folder).close()
    file = folder / "aggregator.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(change)
    before = file.read_bytes()
    with pytest.raises(
        StoreUnavailable, match=f"has .*{said}, which .* use the version that wrote it, or restore a backup"
    ):
        SqlStore.in_folder(folder)
    assert file.read_bytes() == before
    assert not list(folder.glob("*.revision-*"))


def test_a_later_revision_can_change_what_others_refer_to(old: Path, later: Path) -> None:
    before = rows_of(old / "aggregator.sqlite")
    assert sum(map(len, before.values())) > 50
    SqlStore.in_folder(old).close()
    after = rows_of(old / "aggregator.sqlite")
    assert after == with_owners(before)
    tables = tables_of(old / "aggregator.sqlite")
    assert "UNIQUE" not in tables["runs"]
    assert "VARCHAR(128)" in tables["runs"]
    assert "REFERENCES" not in tables["rounds"]
    assert "fk_updates_run_id" in tables["updates"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    op.execute(\"DELETE FROM runs WHERE name = 'done'\")\n", "would lose rows that"),
        (
            "    op.execute('ALTER TABLE nowhere RENAME TO somewhere')\n",
            "could not be brought from revision 0001 to 9000",
        ),
    ],
)
def test_a_revision_that_goes_wrong_changes_nothing(old: Path, migrations: Path, body: str, said: str) -> None:
    before = tables_of(old / "aggregator.sqlite"), rows_of(old / "aggregator.sqlite")
    write_revision(migrations, body)
    with pytest.raises(StoreUnavailable, match=f"{said}.* use the version of fedplcc that wrote it"):
        SqlStore.in_folder(old)
    assert (tables_of(old / "aggregator.sqlite"), rows_of(old / "aggregator.sqlite")) == before


# The README


def test_the_readme_shows_the_tables_as_they_are() -> None:
    text = generated.README.read_text(encoding="utf-8")
    assert text == generated.with_generated(text), "run: python -m docs.site.store"
    assert generated.with_generated(text.replace("integer seed", "float seed")) == text
    for table in schema.metadata.sorted_tables:
        assert f"### `{table.name}`" in text
    with pytest.raises(ValueError, match="needs the two lines"):
        generated.with_generated(text.replace(generated.END, ""))
