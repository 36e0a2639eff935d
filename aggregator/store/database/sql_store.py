"""Store in a SQL database through SQLAlchemy: SQLite (sqlite.py) or PostgreSQL (postgres.py).

Fields that queries use are columns; records that are only returned are JSON.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, Table, bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from aggregator.store.base import ControlRequest
from aggregator.store.database import revisions, schema
from aggregator.store.database.connections import Database, database_errors
from aggregator.store.database.sqlite import Sqlite
from shared.process.failpoints import failpoint
from shared.reasons import (
    AggregationFailed,
    Dropped,
    NobodyJoined,
    NobodyLeft,
    NoQuorum,
    Parked,
    Reason,
    Stated,
    WaitsForClients,
)
from shared.types import (
    BlobRef,
    Client,
    ClientProblem,
    CommittedUpdate,
    Environment,
    Evaluation,
    Event,
    EventQuery,
    PrototypeCounts,
    Rejections,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)

_Record = TypeVar("_Record")


class SqlStore:
    """A `Store` (see base.py) on one database."""

    def __init__(self, database: Database) -> None:
        """Open the database; creates the tables of a new one, migrates an old one.

        Raises:
            StoreUnavailable: It cannot be opened or migrated, or a newer version wrote it.
        """
        self._database, self._engine = database, database.engine
        try:
            with database_errors("cannot open the database"):
                revisions.prepare(database)
                database.claim()
        except BaseException:
            database.close()
            raise

    @classmethod
    def in_folder(cls, folder: Path) -> SqlStore:
        """Open the SQLite store of a state directory."""
        return cls(Sqlite(folder / "aggregator.sqlite"))

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
        from aggregator.store.database.postgres import Postgres  # psycopg takes a tenth of a second to load

        with database_errors("cannot open the database"):
            database = Postgres(url, on_lost)
        return cls(database)

    @property
    def database(self) -> Database:
        """The store's database."""
        return self._database

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        """See `Store.transaction`."""
        with database_errors("cannot write to the database"):
            with self._database.transaction() as connection:
                yield SqlTransaction(connection)
                failpoint("store.commit.before")
            failpoint("store.commit.after")

    def open_runs(self) -> list[Run]:
        """See `Store.open_runs`."""
        ended = [status.value for status in RunStatus if status.is_final]
        query = select(schema.runs).where(schema.runs.c.status.not_in(ended))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(schema.runs.c.created_at, schema.runs.c.run_id)).all()
            return [_with_round(connection, row, whole=True) for row in rows]

    def find_run(self, run_id: str) -> Run | None:
        """See `Store.find_run`."""
        with self._reading() as connection:
            row = connection.execute(select(schema.runs).where(schema.runs.c.run_id == run_id)).first()
            return None if row is None else _with_round(connection, row, whole=True)

    def find_request(self, request_id: str) -> tuple[str, str] | None:
        """See `Store.find_request`."""
        table = schema.runs
        row = self._first(select(table.c.run_id, table.c.request_hash).where(table.c.request_id == request_id))
        return None if row is None else (row.run_id, row.request_hash)

    def find_control_request(self, request_id: str) -> ControlRequest | None:
        """See `Store.find_control_request`."""
        table = schema.control_requests
        row = self._first(select(table).where(table.c.request_id == request_id))
        return None if row is None else ControlRequest(**row._mapping)

    def list_runs(self, *, limit: int, before: str = "") -> list[Run]:
        """See `Store.list_runs`."""
        table = schema.runs
        query = select(table).order_by(table.c.created_at.desc(), table.c.run_id.desc()).limit(limit)
        with self._reading() as connection:
            if before:
                cursor = connection.execute(select(table.c.created_at).where(table.c.run_id == before)).scalar()
                older = table.c.created_at < cursor
                query = query.where(older | ((table.c.created_at == cursor) & (table.c.run_id < before)))
            return [_with_round(connection, row, whole=False) for row in connection.execute(query).all()]

    def list_rounds(self, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        """See `Store.list_rounds`."""
        table = schema.rounds
        query = select(table).where(table.c.run_id == run_id, table.c.number > after).order_by(table.c.number)
        with self._reading() as connection:
            return [_round(row) for row in connection.execute(query.limit(limit)).all()]

    def find_round(self, run_id: str, number: int) -> Round | None:
        """See `Store.find_round`."""
        with self._reading() as connection:
            return _find_round(connection, run_id, number, whole=True)

    def list_evaluations(
        self, run_id: str, number: int | None = None, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Evaluation]]:
        """See `Store.list_evaluations`."""
        table = schema.evaluations
        is_after = tuple_(table.c.round, table.c.client_id) > after
        query = select(table).where(table.c.run_id == run_id, is_after)
        query = query.order_by(table.c.round, table.c.client_id).limit(limit)
        if number is not None:
            query = query.where(table.c.round == number)
        with self._reading() as connection:
            return [(row.round, _load(Evaluation, row.evaluation)) for row in connection.execute(query).all()]

    def list_events(self, query: EventQuery) -> list[Event]:
        """See `Store.list_events`."""
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
            return [Event(**row._mapping) for row in connection.execute(found).all()]

    def list_clients(self, *, after: str = "", limit: int | None = None) -> list[Client]:
        """See `Store.list_clients`."""
        table = schema.clients
        query = select(table).where(table.c.client_id > after).order_by(table.c.client_id).limit(limit)
        with self._reading() as connection:
            return [_client(row) for row in connection.execute(query).all()]

    def find_client(self, client_id: str) -> Client | None:
        """See `Store.find_client`."""
        row = self._first(select(schema.clients).where(schema.clients.c.client_id == client_id))
        return None if row is None else _client(row)

    def last_committed(self, client_id: str) -> CommittedUpdate | None:
        """See `Store.last_committed`."""
        table = schema.updates
        query = select(table).where(table.c.client_id == client_id).order_by(table.c.commit_order.desc()).limit(1)
        row = self._first(query)
        if row is None:
            return None
        blobs = _load(Update, row.update).payload.blobs
        return CommittedUpdate(row.run_id, row.round, tuple(blob.sha256 for blob in blobs))

    def list_updates(
        self, run_id: str, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Update]]:
        """See `Store.list_updates`."""
        table = schema.updates
        is_after = tuple_(table.c.round, table.c.client_id) > after
        query = select(table).where(table.c.run_id == run_id, is_after).order_by(table.c.round, table.c.client_id)
        with self._reading() as connection:
            return [(row.round, _load(Update, row.update)) for row in connection.execute(query.limit(limit)).all()]

    def newest_updates(self, run_id: str, *, first: int, end: int) -> dict[str, Update]:
        """See `Store.newest_updates`."""
        table = schema.updates
        is_asked = (table.c.run_id == run_id) & (table.c.round >= first) & (table.c.round < end)
        last = func.max(table.c.round).label("last")
        newest = select(table.c.client_id, last).where(is_asked).group_by(table.c.client_id).subquery()
        is_newest = (table.c.client_id == newest.c.client_id) & (table.c.round == newest.c.last)
        query = select(table).join(newest, is_newest).where(table.c.run_id == run_id).order_by(table.c.client_id)
        with self._reading() as connection:
            return {row.client_id: _load(Update, row.update) for row in connection.execute(query).all()}

    def has_stored(self, client_id: str, sha256: str) -> bool:
        """See `Store.has_stored`."""
        return self._first(_CLIENT_BLOB, {"client_id": client_id, "sha256": sha256}) is not None

    def find_blob(self, sha256: str) -> int | None:
        """See `Store.find_blob`."""
        row = self._first(_BLOB_SIZE, {"sha256": sha256})
        return None if row is None else int(row.size_bytes)

    def list_blobs(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """See `Store.list_blobs`."""
        table = schema.blobs
        query = select(table).where(table.c.sha256 > after).order_by(table.c.sha256).limit(limit)
        with self._reading() as connection:
            return [(row.sha256, row.size_bytes) for row in connection.execute(query).all()]

    def domains(self, clients: Sequence[str]) -> dict[str, str]:
        """See `Store.domains`."""
        wanted = set(clients)
        with self._reading() as connection:
            rows = connection.execute(select(schema.clients.c.client_id, schema.clients.c.domain)).all()
        return {row.client_id: row.domain for row in rows if row.client_id in wanted}

    def close(self) -> None:
        """See `Store.close`."""
        self._database.close()

    def _first(self, query: Any, values: Mapping[str, Any] | None = None) -> Row[Any] | None:
        with self._reading() as connection:
            return connection.execute(query, values).first()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with database_errors("cannot read the database"), self._engine.connect() as connection:
            yield connection


class SqlTransaction:
    """A `Transaction` (see base.py) on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_run(self, run: Run, *, request_id: str, request_hash: str) -> None:
        """See `Transaction.add_run`."""
        self._insert(schema.runs, {**_run_values(run), "request_id": request_id, "request_hash": request_hash})

    def add_control_request(self, request: ControlRequest) -> None:
        """See `Transaction.add_control_request`."""
        self._insert(schema.control_requests, asdict(request))

    def save_run(self, run: Run) -> None:
        """See `Transaction.save_run`."""
        values = _run_values(run)
        self._connection.execute(_SAVE_RUN, {"key": values.pop("run_id"), **values})
        if run.current_round is not None:
            self._upsert(
                schema.rounds,
                {"run_id": run.run_id, "number": run.current_round.number, **_round_values(run.current_round)},
            )

    def add_update(self, run_id: str, round_number: int, committed: Update) -> None:
        """See `Transaction.add_update`."""
        key = {"run_id": run_id, "round": round_number, "client_id": committed.client_id}
        self._connection.execute(_ADD_UPDATE, {**key, "update": _dump(committed)})
        for blob in committed.payload.blobs:
            self.add_blob(blob)
            self._upsert(schema.client_blobs, {"client_id": committed.client_id, "sha256": blob.sha256})

    def remove_update(self, run_id: str, round_number: int, removed: Update) -> None:
        """See `Transaction.remove_update`."""
        client_id, table, stored = removed.client_id, schema.updates, schema.client_blobs
        is_it = (table.c.run_id == run_id) & (table.c.round == round_number) & (table.c.client_id == client_id)
        self._connection.execute(delete(table).where(is_it))
        names = [blob.sha256 for blob in removed.payload.blobs]
        self._connection.execute(delete(stored).where(stored.c.client_id == client_id, stored.c.sha256.in_(names)))

    def remove_evaluation(self, run_id: str, round_number: int, client_id: str) -> None:
        """See `Transaction.remove_evaluation`."""
        table = schema.evaluations
        is_it = (table.c.run_id == run_id) & (table.c.round == round_number) & (table.c.client_id == client_id)
        self._connection.execute(delete(table).where(is_it))

    def add_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """See `Transaction.add_evaluation`."""
        key = {"run_id": run_id, "round": round_number, "client_id": evaluation.client_id}
        self._insert(schema.evaluations, {**key, "evaluation": _dump(evaluation)})

    def save_client(self, client: Client) -> None:
        """See `Transaction.save_client`."""
        values = {
            "client_id": client.client_id,
            "domain": client.domain,
            "num_examples": client.num_examples,
            "class_counts": dict(client.class_counts),
            "environment": _dump(client.environment),
            "last_seen_at": client.last_seen_at,
            "problem": None if client.problem is None else _dump(client.problem),
        }
        self._upsert(schema.clients, values)

    def add_blob(self, blob: BlobRef) -> None:
        """See `Transaction.add_blob`."""
        self._upsert(schema.blobs, {"sha256": blob.sha256, "size_bytes": blob.size_bytes})

    def forget_blobs(self, sha256s: Sequence[str]) -> None:
        """See `Transaction.forget_blobs`."""
        for table in (schema.client_blobs, schema.blobs):
            self._connection.execute(delete(table).where(table.c.sha256.in_(sha256s)))

    def add_event(self, event: Event) -> None:
        """See `Transaction.add_event`."""
        values = {"time": event.time, "type": event.type, "run_id": event.run_id, "round": event.round}
        values |= {"client_id": event.client_id, "data": dict(event.data)}
        is_sqlite = self._connection.dialect.name == "sqlite"
        self._connection.execute(_insert_into(schema.events) if is_sqlite else _ADD_EVENT, values)

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


_SAVE_RUN = update(schema.runs).where(schema.runs.c.run_id == bindparam("key"))
_ADD_UPDATE = insert(schema.updates).values(
    commit_order=select(func.coalesce(func.max(schema.updates.c.commit_order), 0) + 1).scalar_subquery()
)
_ADD_EVENT = insert(schema.events).values(
    # A sequence of PostgreSQL would leave gaps. Only one transaction is open at a time, and no event is ever deleted.
    sequence=select(func.coalesce(func.max(schema.events.c.sequence), 0) + 1).scalar_subquery()
)
_CLIENT_BLOB = select(schema.client_blobs).where(
    schema.client_blobs.c.client_id == bindparam("client_id"), schema.client_blobs.c.sha256 == bindparam("sha256")
)
_BLOB_SIZE = select(schema.blobs.c.size_bytes).where(schema.blobs.c.sha256 == bindparam("sha256"))


_REASONS: Mapping[str, type[Reason]] = {
    "waits_for_clients": WaitsForClients,
    "nobody_joined": NobodyJoined,
    "no_quorum": NoQuorum,
    "nobody_left": NobodyLeft,
    "aggregation_failed": AggregationFailed,
    "parked": Parked,
}
"""Kinds of reasons that are kept as JSON, by their name there."""
_KIND_OF_REASON = {kind: name for name, kind in _REASONS.items()}

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind)
    for kind in (
        *(BlobRef, ClientProblem, Dropped, Environment, Evaluation, PrototypeCounts, Rejections, Update),
        *_KIND_OF_REASON,
    )
}
"""Adapters of the records that are stored as JSON."""


def _dump(record: Any) -> Any:
    return _ADAPTERS[type(record)].dump_python(record, mode="json")


def _load(kind: type[_Record], value: Any) -> _Record:
    record: _Record = _ADAPTERS[kind].validate_python(value)
    return record


def _blob(value: Any) -> BlobRef | None:
    return None if value is None else _load(BlobRef, value)


def _run_values(run: Run) -> dict[str, Any]:
    names = ["run_id", "name", "method", "config_json", "config_hash", "total_rounds", "seed", "is_pause_requested"]
    names += ["created_at", "updated_at"]
    values: dict[str, Any] = {name: getattr(run, name) for name in names}
    values |= {"status": run.status.value, "roster": list(run.roster), "round": run.round_number}
    values |= {name: None if blob is None else _dump(blob) for name, blob in _blobs_of(run)}
    values |= {"reason": "", "reason_record": None}
    if isinstance(run.reason, Stated):
        values["reason"] = run.reason.sentence
    elif run.reason is not None:
        values["reason_record"] = {"kind": _KIND_OF_REASON[type(run.reason)], **_dump(run.reason)}
    values["quarantined"] = dict(run.quarantined) or None
    values["rejections"] = {name: _dump(refused) for name, refused in run.rejections.items()} or None
    return values


def _round_values(record: Round) -> dict[str, Any]:
    values: dict[str, Any] = {"phase": record.phase.value, "cohort": list(record.cohort)}
    values |= {"metrics_json": record.results_json, "timings_json": record.timings_json}
    values |= {"phase_started_at": dict(record.phase_started_at)}
    values |= {name: None if blob is None else _dump(blob) for name, blob in _blobs_of(record)}
    values["dropped"] = {client_id: _dump(why) for client_id, why in record.dropped.items()} or None
    values["prototype_counts"] = None if record.prototype_counts is None else _dump(record.prototype_counts)
    return values


def _blobs_of(record: Run | Round) -> tuple[tuple[str, BlobRef | None], ...]:
    return (("model", record.model), ("prototypes", record.prototypes))


def _run(row: Row[Any]) -> Run:
    values = dict(row._mapping)
    for name in ("request_id", "request_hash", "round"):
        del values[name]
    values["status"] = RunStatus(values["status"])
    values["roster"] = tuple(values["roster"])
    values["reason"] = _reason(values.pop("reason_record"), values["reason"])
    values["quarantined"] = values["quarantined"] or {}
    rejections = values["rejections"] or {}
    values["rejections"] = {name: _load(Rejections, refused) for name, refused in rejections.items()}
    values["model"], values["prototypes"] = _blob(values["model"]), _blob(values["prototypes"])
    return Run(**values)


def _reason(record: dict[str, Any] | None, sentence: str) -> Reason | None:
    if record is None:
        return Stated(sentence) if sentence else None
    reason: Reason = _load(_REASONS[record["kind"]], {name: record[name] for name in record if name != "kind"})
    return reason


def _with_round(connection: Connection, row: Row[Any], *, whole: bool) -> Run:
    return replace(_run(row), current_round=_find_round(connection, row.run_id, row.round, whole=whole))


def _find_round(connection: Connection, run_id: str, number: int, *, whole: bool) -> Round | None:
    table = schema.rounds
    row = connection.execute(select(table).where(table.c.run_id == run_id, table.c.number == number)).first()
    if row is None:
        return None
    record = _round(row)
    if not whole:
        return record

    def of_round(children: Table) -> Any:
        query = select(children).where(children.c.run_id == run_id, children.c.round == number)
        return connection.execute(query.order_by(children.c.client_id)).all()

    return replace(
        record,
        updates={child.client_id: _load(Update, child.update) for child in of_round(schema.updates)},
        evaluations={child.client_id: _load(Evaluation, child.evaluation) for child in of_round(schema.evaluations)},
    )


def _round(row: Row[Any]) -> Round:
    values = dict(row._mapping)
    del values["run_id"]
    values["results_json"] = values.pop("metrics_json")
    values["phase"] = RoundPhase(values["phase"])
    values["cohort"] = tuple(values["cohort"])
    dropped = values["dropped"] or {}
    values["dropped"] = {client_id: _load(Dropped, why) for client_id, why in dropped.items()}
    counts = values["prototype_counts"]
    values["prototype_counts"] = None if counts is None else _load(PrototypeCounts, counts)
    values["model"], values["prototypes"] = _blob(values["model"]), _blob(values["prototypes"])
    return Round(**values)


def _client(row: Row[Any]) -> Client:
    values = dict(row._mapping)
    values["environment"] = _load(Environment, values["environment"])
    values["problem"] = None if values["problem"] is None else _load(ClientProblem, values["problem"])
    return Client(**values)
