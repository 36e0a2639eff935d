"""Tables on a PostgreSQL server: migrations, and the state directory that a database belongs to."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from structlog.testing import capture_logs

from fedplcc.aggregator.store.database import revisions, schema
from fedplcc.aggregator.store.database.engines import postgres as postgres_database
from fedplcc.aggregator.store.database.engines.postgres import parse_url
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import BELONGING, open_store
from fedplcc.shared.errors import FedplccError, InvalidConfig, StoreUnavailable
from tests.support.hosts.postgres import PASSWORD, Server
from tests.support.records.builders import a_blob
from tests.support.records.later_revision import copy_migrations, write_revision
from tests.unit.aggregator.store.test_postgres import add, kept


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A revision to come, which changes a table that others refer to."""
    body = """
    with op.batch_alter_table("runs") as batch:
        batch.drop_constraint("uq_runs_request_id", type_="unique")
        batch.add_column(sa.Column("owner", sa.String(64), nullable=False, server_default="nobody"))
    with op.batch_alter_table("rounds") as batch:
        batch.drop_constraint("fk_rounds_run_id", type_="foreignkey")
"""
    copied = copy_migrations(tmp_path, monkeypatch)
    write_revision(copied, body)
    return copied


def columns(server: Server, url: str, table: str) -> set[object]:
    rows = server.execute(
        f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'", str(parse_url(url).database)
    )
    return {name for (name,) in rows}


def test_a_new_database_has_the_tables_of_schema_py(store: SqlStore) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with store.database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        collations = connection.exec_driver_sql(
            "SELECT DISTINCT collation_name, data_type, character_maximum_length FROM information_schema.columns "
            "WHERE table_schema = 'public' AND table_name <> 'alembic_version' "
            "AND data_type IN ('text', 'character varying')"
        ).all()
        assert [tuple(row) for row in collations] == [("C", "character varying", None)]
        numbers = connection.exec_driver_sql(
            "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = 'public' "
            "AND data_type IN ('integer', 'smallint', 'bigint', 'real', 'double precision')"
        ).scalars()
        assert sorted(numbers) == ["bigint", "double precision"]


def test_the_migrations_make_the_tables_of_schema_py(store: SqlStore) -> None:
    from alembic import command
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    engine = store.database.engine
    with engine.begin() as connection:
        schema.metadata.drop_all(connection)
        revisions.stamp.drop(connection)
        command.upgrade(revisions.alembic_config(connection), "head")
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), schema.metadata)
    kinds = {str(each[0][0] if isinstance(each, list) else each[0]) for each in found}
    assert kinds <= {"modify_comment", "add_table_comment"}, "comments are schema.py's alone"


def test_a_database_is_brought_to_a_later_revision_in_one_transaction(
    store: SqlStore, postgres: Server, database_url: str, migrations: Path
) -> None:
    add(store, "before")
    store.close()
    with capture_logs() as logs:
        later = SqlStore.at(database_url)
    assert [line["event"] for line in logs if line["event"] != "database_opened"] == [
        "database_migrating",
        "database_migrated",
    ]
    assert "owner" in columns(postgres, database_url, "runs")
    assert kept(later) == ["before"]
    add(later, "after")
    later.close()


def test_a_migration_that_dies_at_any_statement_leaves_the_old_database(
    store: SqlStore, postgres: Server, database_url: str, migrations: Path
) -> None:
    store.close()
    seen: list[str] = []

    class Died(Exception):
        """The process would end here."""

    def watch(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if (
            statement.lstrip().startswith(("ALTER", "CREATE", "DROP", "UPDATE alembic_version"))
            and statement not in seen
        ):
            seen.append(statement)
            raise Died(statement)

    event.listen(Engine, "after_cursor_execute", watch)
    try:
        while True:
            try:
                SqlStore.at(database_url).close()
            except Died:
                changed_at_all = "owner" in columns(postgres, database_url, "runs")
                assert not changed_at_all, f"died after {seen[-1]}"
            else:
                break
    finally:
        event.remove(Engine, "after_cursor_execute", watch)
    assert len(seen) == 4, "three changes of tables, and the revision"
    assert "owner" in columns(postgres, database_url, "runs")


@pytest.mark.parametrize("is_new", [True, False])
def test_of_two_that_start_at_once_one_makes_the_tables_and_the_other_is_refused(
    postgres: Server, database_url: str, is_new: bool, migrations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_database, "LOCK_WAIT_S", 1)
    if not is_new:
        monkeypatch.setattr(revisions, "REVISION", schema.REVISION)
        SqlStore.at(database_url).close()
        monkeypatch.setattr(revisions, "REVISION", "9000")
    else:
        monkeypatch.setattr(revisions, "REVISION", schema.REVISION)
    together = threading.Barrier(2)
    opened: list[SqlStore] = []
    refused: list[FedplccError] = []

    def start() -> None:
        together.wait()
        try:
            opened.append(SqlStore.at(database_url))
        except FedplccError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(opened), [type(error) for error in refused]) == (1, [InvalidConfig])
    add(opened[0], "one")
    assert kept(opened[0]) == ["one"]
    opened[0].close()


@pytest.mark.parametrize(
    ("change", "said"),
    [("UPDATE alembic_version SET version_num = '9999'", "revision 9999"), ("DELETE FROM alembic_version", "None")],
)
def test_a_database_of_an_unknown_revision_is_refused(
    store: SqlStore, postgres: Server, database_url: str, change: str, said: str
) -> None:
    store.close()
    postgres.execute(change, str(parse_url(database_url).database))
    with pytest.raises(StoreUnavailable, match=f"has .*{said}, which .* use the version that wrote it"):
        SqlStore.at(database_url)


# The state directory that it belongs to


def opened(folder: Path, url: str | None) -> SqlStore:
    folder.mkdir(exist_ok=True)
    return open_store(folder, url, on_lost=lambda _why: None)


def test_a_database_and_its_state_directory_know_each_other(
    postgres: Server, database_url: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    store = opened(first, database_url)
    with store.transaction() as transaction:
        transaction.add_blob(a_blob("x"))
    store.close()
    assert PASSWORD not in (first / BELONGING).read_text()
    opened(first, database_url).close()
    with pytest.raises(
        InvalidConfig, match=r"^the state directory .*first belongs to the database postgresql://127.*: give"
    ):
        opened(first, None)
    with pytest.raises(InvalidConfig, match=r"^the database .* belongs to another state directory than .*second"):
        opened(second, database_url)
    with postgres.database() as other:
        with pytest.raises(InvalidConfig, match=r"first belongs to the database .* and not to .*, which is another"):
            opened(first, other)
        (second / "blobs" / "ab").mkdir(parents=True)
        (second / "blobs" / "ab" / ("ab" * 32)).write_bytes(b"x")
        with pytest.raises(InvalidConfig, match=r"has blobs of another database than .*, which is new: choose"):
            opened(second, other)


def test_runs_that_are_in_a_sqlite_file_are_not_left_behind(database_url: str, tmp_path: Path) -> None:
    opened(tmp_path, None).close()
    with pytest.raises(
        InvalidConfig, match=r"keeps its runs in aggregator\.sqlite, and nothing moves them to PostgreSQL"
    ):
        opened(tmp_path, database_url)
    opened(tmp_path, None).close()


def test_a_start_that_died_before_it_wrote_down_where_it_belongs_is_taken_up(database_url: str, tmp_path: Path) -> None:
    SqlStore.at(database_url).close()  # the database has drawn its state, the directory has no file
    opened(tmp_path, database_url).close()
    opened(tmp_path, database_url).close()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]"])
def test_a_damaged_file_is_told_of(tmp_path: Path, content: bytes) -> None:
    (tmp_path / BELONGING).write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"database\.json is damaged: restore a backup of the state directory"):
        opened(tmp_path, None)
