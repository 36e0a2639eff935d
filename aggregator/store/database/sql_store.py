"""Store in a SQL database through SQLAlchemy: SQLite (sqlite.py) or PostgreSQL (postgres.py).

Fields that queries use are columns; records that are only returned are JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Dialect, Row, Table, bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from fedplcc.aggregator.store.base import ControlRequest
from fedplcc.aggregator.store.database import revisions, rows, schema
from fedplcc.aggregator.store.database.audit_rows import AuditReads, AuditWrites
from fedplcc.aggregator.store.database.engines.connections import Database, database_errors
from fedplcc.aggregator.store.database.engines.sqlite import Sqlite, write_many
from fedplcc.aggregator.store.database.identity_rows import IdentityReads, IdentityWrites
from fedplcc.aggregator.store.database.key_rows import KeyReads, KeyWrites
from fedplcc.aggregator.store.database.label_rows import LabelReads, LabelWrites
from fedplcc.aggregator.store.database.releases import Changes, Committed, Releases, has_noise, read_releases
from fedplcc.aggregator.store.database.run_list_rows import RunListReads
from fedplcc.aggregator.store.database.run_rows import RunReads
from fedplcc.shared.errors import RowCorrupt
from fedplcc.shared.process.failpoints import failpoint
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import (
    BlobRef,
    Client,
    CommittedUpdate,
    Evaluation,
    Event,
    EventQuery,
    Run,
    RunSpec,
    RunStatus,
    Update,
)

log = get_logger("fedplcc.aggregator.store")

UNKNOWN_SIZE = -1
"""Stands for the size of a blob whose row is damaged."""


class SqlStore(AuditReads, IdentityReads, KeyReads, LabelReads, RunReads, RunListReads):
    """A `Store` (see base.py) on one database."""

    def __init__(self, database: Database) -> None:
        """Open the database; creates the tables of a new one, migrates an old one.

        Raises:
            StoreUnavailable: It cannot be opened or migrated, or a newer version wrote it.
        """
        self._database, self._engine = database, database.engine
        self._next_commit: int | None = None
        """Commit order of the next update, known once this process has written one: the table has no index of it alone."""
        self._releases = Releases()
        try:
            with database_errors("cannot open the database"):
                revisions.prepare(database)
                database.claim()
        except BaseException:
            database.close()
            raise

    @classmethod
    def in_folder(cls, folder: Path, *, on_lost: Callable[[str], None] = lambda _why: None) -> SqlStore:
        """Open the SQLite store of a state directory."""
        return cls(Sqlite(folder / "aggregator.sqlite", on_lost))

    @classmethod
    def at(cls, url: str, *, on_lost: Callable[[str], None] = lambda _why: None) -> SqlStore:
        """Open the store in a PostgreSQL database, which no other aggregator may use.

        Args:
            url: See postgres.py.
            on_lost: Called from any thread with the reason why this process must end: another aggregator took the database.

        Raises:
            InvalidConfig: The URL is wrong, psycopg is not installed, or another aggregator uses the database.
            StoreUnavailable: It cannot be opened or migrated, or a newer version wrote it.
        """
        from fedplcc.aggregator.store.database.engines.postgres import (
            Postgres,  # psycopg takes a tenth of a second to load
        )

        with database_errors("cannot open the database"):
            database = Postgres(url, on_lost)
        return cls(database)

    @property
    def database(self) -> Database:
        """The store's database."""
        return self._database

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        with database_errors("cannot write to the database"):
            with self._database.transaction() as connection:
                transaction = SqlTransaction(connection, self._next_commit)
                yield transaction
                transaction.write_gathered()
                self._next_commit = transaction.next_commit  # before the commit: one that fails leaves a gap at most
                failpoint("store.commit.before")
            self._releases.follow(transaction.changes)
            failpoint("store.commit.after")
            self._database.note_committed()

    def find_request(self, request_id: str) -> tuple[str, str] | None:
        table = schema.runs
        row = self._first(select(table.c.run_id, table.c.request_hash).where(table.c.request_id == request_id))
        return None if row is None else (row.run_id, row.request_hash)

    def find_control_request(self, request_id: str) -> ControlRequest | None:
        table = schema.control_requests
        row = self._first(select(table).where(table.c.request_id == request_id))
        return None if row is None else ControlRequest(**_without_digest(row))

    def list_evaluations(
        self, run_id: str, number: int | None = None, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Evaluation]]:
        table = schema.evaluations
        is_after = tuple_(table.c.round, table.c.client_id) > after
        query = select(table).where(table.c.run_id == run_id, is_after)
        query = query.order_by(table.c.round, table.c.client_id).limit(limit)
        if number is not None:
            query = query.where(table.c.round == number)
        with self._reading() as connection:
            return [(row.round, rows.evaluation_of(row)) for row in connection.execute(query).all()]

    def list_events(self, query: EventQuery) -> list[Event]:
        table = schema.events
        order = table.c.sequence.desc() if query.newest_first else table.c.sequence
        found = select(table).where(table.c.sequence > query.after).order_by(order).limit(query.limit)
        if query.before:
            found = found.where(table.c.sequence < query.before)
        if query.run_id:
            found = found.where(table.c.run_id == query.run_id)
        if query.types:
            found = found.where(table.c.type.in_(query.types))
        if query.client_id:
            found = found.where(table.c.client_id == query.client_id)
        with self._reading() as connection:
            return [Event(**_without_digest(row)) for row in connection.execute(found).all()]

    def list_clients(self, *, after: str = "", limit: int | None = None) -> list[Client]:
        table = schema.clients
        query = select(table).where(table.c.client_id > after).order_by(table.c.client_id).limit(limit)
        with self._reading() as connection:
            return [rows.client_of(row) for row in connection.execute(query).all()]

    def find_client(self, client_id: str) -> Client | None:
        row = self._first(select(schema.clients).where(schema.clients.c.client_id == client_id))
        return None if row is None else rows.client_of(row)

    def last_committed(self, client_id: str) -> CommittedUpdate | None:
        table = schema.updates
        query = select(table).where(table.c.client_id == client_id).order_by(table.c.commit_order.desc()).limit(1)
        try:
            row = self._first(query)
            if row is None:
                return None
            blobs = rows.update_of(row).payload.blobs
        except RowCorrupt as error:
            log.error("row_damaged", client_id=client_id, detail=error.detail)
            return None
        return CommittedUpdate(row.run_id, row.round, tuple(blob.sha256 for blob in blobs))

    def last_release(self, client_id: str) -> tuple[RunSpec, int] | None:
        def read() -> tuple[frozenset[str], list[Committed]]:
            with self._reading() as connection:
                return read_releases(connection)

        found = self._releases.newest_of(client_id, read)
        if found is None:
            return None
        table = schema.runs
        query = select(table.c.run_id, table.c.config_json, table.c.config_hash).where(table.c.run_id == found.run_id)
        row = self._first(query)
        return None if row is None else (RunSpec(**row._mapping), found.round)

    def list_updates(
        self, run_id: str, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Update]]:
        table = schema.updates
        is_after = tuple_(table.c.round, table.c.client_id) > after
        query = select(table).where(table.c.run_id == run_id, is_after).order_by(table.c.round, table.c.client_id)
        with self._reading() as connection:
            return [(row.round, rows.update_of(row)) for row in connection.execute(query.limit(limit)).all()]

    def newest_updates(self, run_id: str, *, first: int, end: int) -> dict[str, Update]:
        table = schema.updates
        is_asked = (table.c.run_id == run_id) & (table.c.round >= first) & (table.c.round < end)
        last = func.max(table.c.round).label("last")
        newest = select(table.c.client_id, last).where(is_asked).group_by(table.c.client_id).subquery()
        is_newest = (table.c.client_id == newest.c.client_id) & (table.c.round == newest.c.last)
        query = select(table).join(newest, is_newest).where(table.c.run_id == run_id).order_by(table.c.client_id)
        with self._reading() as connection:
            return {row.client_id: rows.update_of(row) for row in connection.execute(query).all()}

    def has_stored(self, client_id: str, sha256: str) -> bool:
        return self._first(_CLIENT_BLOB, {"client_id": client_id, "sha256": sha256}) is not None

    def find_blob(self, sha256: str) -> int | None:
        row = self._first(_BLOB_SIZE, {"sha256": sha256})
        return row.size_bytes if row is not None and isinstance(row.size_bytes, int) else None

    def list_blobs(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        table = schema.blobs
        query = select(table).where(table.c.sha256 > after).order_by(table.c.sha256).limit(limit)
        with self._reading() as connection:
            found = connection.execute(query).all()
        return [(row.sha256, row.size_bytes if isinstance(row.size_bytes, int) else UNKNOWN_SIZE) for row in found]

    def domains(self, clients: Sequence[str]) -> dict[str, str]:
        wanted = set(clients)
        with self._reading() as connection:
            found = connection.execute(select(schema.clients.c.client_id, schema.clients.c.domain)).all()
        return {row.client_id: row.domain for row in found if row.client_id in wanted}

    def close(self) -> None:
        self._database.close()

    def _first(self, query: Any, values: Mapping[str, Any] | None = None) -> Row[Any] | None:
        with self._reading() as connection:
            return connection.execute(query, values).first()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with database_errors("cannot read the database"), self._engine.connect() as connection:
            try:
                yield connection
            except rows.UNREADABLE as error:
                raise RowCorrupt(
                    "a row of the database cannot be read; 'fedplcc doctor' names it, and a backup has it"
                ) from error


class SqlTransaction(AuditWrites, IdentityWrites, KeyWrites, LabelWrites):
    """A `Transaction` (see base.py) on one connection.

    Updates, reports and blobs, which many clients send at the same time, are gathered: one statement a table writes all of
    them when the transaction ends, or before a statement that may concern one of them.
    """

    def __init__(self, connection: Connection, next_commit: int | None) -> None:
        self._connection = connection
        self._gathered: dict[Table, list[Mapping[str, Any]]] = {}
        self.next_commit = next_commit
        """Commit order of the next update; None where the database has to be asked."""
        self.changes = Changes()

    def write_gathered(self) -> None:
        """Write the rows that were gathered."""
        gathered, self._gathered = self._gathered, {}
        for table in _TABLES:
            if table in gathered:
                is_new = table in (schema.updates, schema.evaluations)
                self._write(table, gathered[table], is_new=is_new)

    def add_run(self, run: Run, *, request_id: str, request_hash: str) -> None:
        self._insert(schema.runs, {**rows.run_row(run), "request_id": request_id, "request_hash": request_hash})
        self.changes.is_read_again |= has_noise(run.config_json)

    def add_control_request(self, request: ControlRequest) -> None:
        self._insert(schema.control_requests, rows.control_request_row(request))

    def save_run(self, run: Run) -> None:
        values = rows.run_row(run)
        self._connection.execute(_SAVE_RUN, {"key": values.pop("run_id"), **values})
        if run.current_round is not None:
            self._upsert(schema.rounds, rows.round_row(run.run_id, run.current_round))

    def add_update(self, run_id: str, round_number: int, committed: Update) -> None:
        if self.next_commit is None:
            self.next_commit = self._connection.execute(_NEXT_COMMIT).scalar_one()
        self._gather(schema.updates, rows.update_row(run_id, round_number, committed, self.next_commit))
        self.changes.added.append(Committed(self.next_commit, run_id, round_number, committed.client_id))
        self.next_commit += 1
        for blob in committed.payload.blobs:
            self.add_blob(blob)
            self._gather(schema.client_blobs, {"client_id": committed.client_id, "sha256": blob.sha256})

    def end_damaged_run(self, run_id: str) -> None:
        table = schema.runs
        stopped = update(table).where(table.c.run_id == run_id).values(status=RunStatus.STOPPED.value)
        self._connection.execute(stopped)

    def remove_update(self, run_id: str, round_number: int, removed: Update) -> None:
        client_id, table, stored = removed.client_id, schema.updates, schema.client_blobs
        is_it = (table.c.run_id == run_id) & (table.c.round == round_number) & (table.c.client_id == client_id)
        self.write_gathered()
        self._connection.execute(delete(table).where(is_it))
        self.changes.is_read_again = True
        names = [blob.sha256 for blob in removed.payload.blobs]
        self._connection.execute(delete(stored).where(stored.c.client_id == client_id, stored.c.sha256.in_(names)))

    def remove_evaluation(self, run_id: str, round_number: int, client_id: str) -> None:
        table = schema.evaluations
        is_it = (table.c.run_id == run_id) & (table.c.round == round_number) & (table.c.client_id == client_id)
        self.write_gathered()
        self._connection.execute(delete(table).where(is_it))

    def add_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        self._gather(schema.evaluations, rows.evaluation_row(run_id, round_number, evaluation))

    def save_client(self, client: Client) -> None:
        self._upsert(schema.clients, rows.client_row(client))

    def add_blob(self, blob: BlobRef) -> None:
        self._gather(schema.blobs, rows.blob_row(blob))

    def forget_blobs(self, sha256s: Sequence[str]) -> None:
        self.write_gathered()
        for table in (schema.client_blobs, schema.blobs):
            self._connection.execute(delete(table).where(table.c.sha256.in_(sha256s)))

    def add_event(self, event: Event) -> None:
        self.add_events([event])

    def add_events(self, events: Sequence[Event]) -> None:
        if events:
            self._write(schema.events, [rows.event_row(event) for event in events], is_new=True)

    def _gather(self, table: Table, row: Mapping[str, Any]) -> None:
        self._gathered.setdefault(table, []).append(row)

    def _write(self, table: Table, found: Sequence[Mapping[str, Any]], *, is_new: bool) -> None:
        """Insert rows with the same columns; one that is not new may be there, and is replaced."""
        connection, names = self._connection, tuple(found[0])
        if connection.dialect.name == "sqlite":
            text, convert = _driver_statement(table, names, is_new, connection.dialect)
            write_many(connection, text, [convert(row) for row in found])
        elif table is schema.events:
            connection.execute(_ADD_EVENT, found)
        else:
            statement = _insert_into(table) if is_new else _upsert_into(table, names, connection.dialect.name)
            connection.execute(statement, found)

    def _insert(self, table: Table, values: Mapping[str, Any]) -> None:
        self._connection.execute(_insert_into(table), values)

    def _upsert(self, table: Table, values: Mapping[str, Any]) -> None:
        statement = _upsert_into(table, tuple(values), self._connection.dialect.name)
        self._connection.execute(statement, values)


# Frequent statements are built once, with values as parameters: building one costs more than running it.


@functools.cache
def _insert_into(table: Table) -> Any:
    return insert(table)


@functools.cache
def _upsert_into(table: Table, names: tuple[str, ...], dialect: str) -> Any:
    """Return INSERT ... ON CONFLICT DO UPDATE for these columns; standard SQL has none, both databases the same."""
    statement: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    key = table.primary_key.columns
    changed = {name: statement.excluded[name] for name in names if name not in key}
    if not changed:
        return statement.on_conflict_do_nothing(index_elements=key)
    return statement.on_conflict_do_update(index_elements=key, set_=changed)


@functools.cache
def _driver_statement(
    table: Table, names: tuple[str, ...], is_new: bool, dialect: Dialect
) -> tuple[str, Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Return the text of a statement that writes rows of SQLite, and what makes a row its values.

    Compiled once: to look a statement up and to prepare for its results takes SQLAlchemy longer than it takes the database.
    """
    statement = _insert_into(table) if is_new else _upsert_into(table, names, dialect.name)
    compiled = statement.compile(dialect=dialect, column_keys=names)
    found = [(name, table.c[name].type.dialect_impl(dialect).bind_processor(dialect)) for name in compiled.positiontup]

    def convert(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] if processor is None else processor(row[name]) for name, processor in found)

    return compiled.string, convert


_TABLES = tuple(schema.metadata.sorted_tables)
"""All tables; those whose rows others refer to come first."""
_SAVE_RUN = update(schema.runs).where(schema.runs.c.run_id == bindparam("key"))
_NEXT_COMMIT = select(func.coalesce(func.max(schema.updates.c.commit_order), 0) + 1)
_ADD_EVENT = insert(schema.events).values(
    # A sequence of PostgreSQL would leave gaps. Only one transaction is open at a time, and no event is ever deleted.
    sequence=select(func.coalesce(func.max(schema.events.c.sequence), 0) + 1).scalar_subquery()
)
_CLIENT_BLOB = select(schema.client_blobs).where(
    schema.client_blobs.c.client_id == bindparam("client_id"), schema.client_blobs.c.sha256 == bindparam("sha256")
)
_BLOB_SIZE = select(schema.blobs.c.size_bytes).where(schema.blobs.c.sha256 == bindparam("sha256"))


def _without_digest(row: Row[Any]) -> dict[str, Any]:
    return {name: value for name, value in row._mapping.items() if name != rows.DIGEST}
