"""Rows of runs and rounds: the reads of them that are mixed into the SQL store, a damaged row included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Table, Text, bindparam, null, select

from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader
from fedplcc.shared.errors import RowCorrupt
from fedplcc.shared.reasons import RowDamaged
from fedplcc.shared.types import Evaluation, Retired, Round, Run, RunStatus

_FIRST_EVALUATION = (
    select(schema.evaluations)
    .where(schema.evaluations.c.run_id == bindparam("run_id"), schema.evaluations.c.client_id == bindparam("client_id"))
    .order_by(schema.evaluations.c.round)
    .limit(1)
)
_IS_KEPT = schema.runs.c.run_id.not_in(
    select(schema.run_labels.c.run_id).where(schema.run_labels.c.deleted_at.is_not(None))
)
"""Whether a run was not deleted."""


class RunReads:
    """Reads of a `Store` (see base.py) about runs and rounds."""

    def open_runs(self: Reader) -> list[Run]:
        ended = [status.value for status in RunStatus if status.is_final]
        query = select(schema.runs).where(schema.runs.c.status.not_in(ended))
        with self._reading() as connection:
            return _runs(connection, query.order_by(schema.runs.c.created_at, schema.runs.c.run_id), whole=True)

    def completed_runs(
        self: Reader, *, methods: Sequence[str], since: float, limit: int
    ) -> list[tuple[str, tuple[str, ...]]]:
        table = schema.runs
        query = (
            select(table.c.run_id, table.c.roster, table.c.retired)
            .where(table.c.status == RunStatus.COMPLETED.value, table.c.method.in_(methods))
            .where(table.c.updated_at >= since, _IS_KEPT)
            .order_by(table.c.updated_at.desc(), table.c.run_id)
        )
        with self._reading() as connection:
            found = connection.execute(query.limit(limit)).all()
        return [(row.run_id, _with_states(row.roster, rows.retirements(row.retired))) for row in found]

    def ended_retirements(self: Reader, *, limit: int) -> list[tuple[str, Mapping[str, Retired]]]:
        table, ended = schema.runs, [status.value for status in RunStatus if status.is_final]
        query = (
            select(table.c.run_id, table.c.retired)
            .where(table.c.retired.is_not(null()), table.c.status.in_(ended))
            .order_by(table.c.updated_at.desc(), table.c.run_id)
        )
        with self._reading() as connection:
            try:
                found = connection.execute(query.limit(limit)).all()
                return [(row.run_id, rows.retirements(row.retired)) for row in found]
            except rows.UNREADABLE:
                return []  # of a damaged row; no trainer is kept away for that

    def find_run(self: Reader, run_id: str, *, of: str | None = None) -> Run | None:
        with self._reading() as connection:
            query = select(schema.runs).where(schema.runs.c.run_id == run_id, _IS_KEPT)
            found = _runs(connection, query, whole=True, of=of)
        return found[0] if found else None

    def find_status(self: Reader, run_id: str) -> RunStatus | None:
        row = self._first(select(schema.runs.c.status).where(schema.runs.c.run_id == run_id, _IS_KEPT))
        return None if row is None else RunStatus(row.status)

    def list_runs(self: Reader, *, limit: int, before: str = "") -> list[Run]:
        table = schema.runs
        query = select(table).where(_IS_KEPT).order_by(table.c.created_at.desc(), table.c.run_id.desc()).limit(limit)
        with self._reading() as connection:
            if before:
                cursor = connection.execute(select(table.c.created_at).where(table.c.run_id == before)).scalar()
                older = table.c.created_at < cursor
                query = query.where(older | ((table.c.created_at == cursor) & (table.c.run_id < before)))
            return _runs(connection, query, whole=False)

    def run_ids(self: Reader) -> list[str]:
        table = schema.runs
        query = select(table.c.run_id).where(_IS_KEPT).order_by(table.c.created_at.desc(), table.c.run_id.desc())
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def runs_of_model(self: Reader, sha256: str) -> list[str]:
        runs, rounds = schema.runs, schema.rounds
        made = rounds.c.model.cast(Text).contains(sha256) | rounds.c.start.cast(Text).contains(sha256)
        query = (
            select(runs.c.run_id)
            .where(runs.c.run_id.in_(select(rounds.c.run_id).where(rounds.c.number > 0, made)), _IS_KEPT)
            .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        )
        with self._reading() as connection:
            return list(connection.execute(query).scalars())

    def list_rounds(self: Reader, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        table = schema.rounds
        query = select(table).where(table.c.run_id == run_id, table.c.number > after).order_by(table.c.number)
        with self._reading() as connection:
            return [rows.round_of(row) for row in connection.execute(query.limit(limit)).all()]

    def find_round(self: Reader, run_id: str, number: int, *, of: str | None = None) -> Round | None:
        with self._reading() as connection:
            return _find_round(connection, run_id, number, whole=True, of=of)

    def first_evaluation(self: Reader, run_id: str, client_id: str, *, before: int) -> Evaluation | None:
        values = {"run_id": run_id, "client_id": client_id}
        with self._reading() as connection:
            try:
                row = connection.execute(_FIRST_EVALUATION, values).first()
            except rows.UNREADABLE as error:
                raise rows.corrupt(schema.evaluations, {**values, "round": "*"}) from error
        return rows.evaluation_of(row) if row is not None and row.round < before else None


def _with_states(roster: Sequence[str], retired: Mapping[str, Retired]) -> tuple[str, ...]:
    """Return the clients of a roster that keep something of the run."""
    return tuple(name for name in roster if name not in retired or not retired[name].keeps_nothing)


def _runs(connection: Connection, query: Any, *, whole: bool, of: str | None = None) -> list[Run]:
    """Return the runs that a query of their table finds; a damaged one has a reason that says so, see `damaged_run`.

    Args:
        whole: Whether their latest rounds have updates and reports.
        of: The client whose update and report these are; None for all.
    """
    table = schema.runs
    try:
        found: Sequence[Row[Any]] = connection.execute(query).all()
    except rows.UNREADABLE:
        # The values of one row are none of their columns: each is read by itself.
        names = connection.execute(query.with_only_columns(table.c.run_id)).scalars().all()
        return [_run_alone(connection, name, whole=whole, of=of) for name in names]
    return [_with_round(connection, row, whole=whole, of=of) for row in found]


def _run_alone(connection: Connection, run_id: str, *, whole: bool, of: str | None) -> Run:
    try:
        row = connection.execute(select(schema.runs).where(schema.runs.c.run_id == run_id)).one()
    except rows.UNREADABLE:
        return damaged_run(connection, run_id, RowDamaged(table=schema.runs.name, key=run_id))
    return _with_round(connection, row, whole=whole, of=of)


def _with_round(connection: Connection, row: Row[Any], *, whole: bool, of: str | None) -> Run:
    try:
        run = rows.run_of(row)
        current = _find_round(connection, row.run_id, row.round, whole=whole, of=of)
        if current is None and row.round >= 0:
            raise rows.corrupt(schema.rounds, {"run_id": row.run_id, "number": row.round})
    except RowCorrupt as error:
        return damaged_run(connection, row.run_id, RowDamaged(**error.metadata))
    return replace(run, current_round=current)


def damaged_run(connection: Connection, run_id: str, reason: RowDamaged) -> Run:
    """Return a run of which a row cannot be trusted: paused unless it had ended, with nothing but what is plain text."""
    names = ("name", "status", "method", "config_hash")
    table = schema.runs
    row = connection.execute(select(*(table.c[name] for name in names)).where(table.c.run_id == run_id)).one()
    texts = {name: str(value) for name, value in row._mapping.items()}
    ended = {status.value: status for status in RunStatus if status.is_final}
    return Run(
        run_id=run_id,
        name=texts["name"],
        status=ended.get(texts["status"], RunStatus.PAUSED),
        config_json=_NO_CONFIGURATION,
        config_hash=texts["config_hash"],
        method=texts["method"],
        total_rounds=0,
        seed=0,
        reason=reason,
    )


_NO_CONFIGURATION = '{"run":{"seed":0}}'
"""Stands for a configuration that cannot be trusted."""


def _find_round(connection: Connection, run_id: str, number: int, *, whole: bool, of: str | None) -> Round | None:
    """Return a round, with its updates and reports, or those of one client, if it is to be whole."""
    table = schema.rounds
    key = {"run_id": run_id, "number": number}
    try:
        row = connection.execute(select(table).where(table.c.run_id == run_id, table.c.number == number)).first()
    except rows.UNREADABLE as error:
        raise rows.corrupt(table, key) from error
    if row is None:
        return None
    record = rows.round_of(row)
    if not whole:
        return record
    return replace(
        record,
        updates={
            child.client_id: rows.update_of(child)
            for child in _children(connection, schema.updates, record, run_id, of)
        },
        evaluations={
            child.client_id: rows.evaluation_of(child)
            for child in _children(connection, schema.evaluations, record, run_id, of)
        },
    )


def _children(connection: Connection, table: Table, record: Round, run_id: str, of: str | None) -> Sequence[Row[Any]]:
    query = select(table).where(table.c.run_id == run_id, table.c.round == record.number)
    if of is not None:
        query = query.where(table.c.client_id == of)
    try:
        return connection.execute(query.order_by(table.c.client_id)).all()
    except rows.UNREADABLE as error:
        raise rows.corrupt(table, {"run_id": run_id, "round": record.number, "client_id": "*"}) from error
