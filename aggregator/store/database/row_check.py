"""The check of every row's digest, over a whole database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, select, tuple_

from fedplcc.aggregator.store.database import rows, schema

PAGE = 1000


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row whose digest is not that of its values, or whose values cannot be read."""

    table: str
    key: tuple[Any, ...]
    run_id: str
    """The run that it belongs to; empty if to none."""


def damaged_rows(connection: Connection) -> Iterator[DamagedRow]:
    """Yield every damaged row of the tables that have digests."""
    for table in schema.metadata.sorted_tables:
        if rows.DIGEST in table.columns:
            yield from _of_table(connection, table)


def _of_table(connection: Connection, table: Table) -> Iterator[DamagedRow]:
    key = list(table.primary_key.columns)
    page = select(*key).order_by(*key).limit(PAGE)
    names = connection.execute(page).all()
    while names:
        yield from _of_page(connection, table, [tuple(name) for name in names])
        names = connection.execute(page.where(tuple_(*key) > tuple(names[-1]))).all()


def _of_page(connection: Connection, table: Table, names: list[tuple[Any, ...]]) -> Iterator[DamagedRow]:
    key = list(table.primary_key.columns)
    query = select(table).where(tuple_(*key) >= names[0], tuple_(*key) <= names[-1]).order_by(*key)
    try:
        found = [(name, _values(row)) for name, row in zip(names, connection.execute(query).all(), strict=True)]
    except rows.UNREADABLE:
        found = [(name, _alone(connection, table, name)) for name in names]
    for name, values in found:
        if not _is_whole(table, values):
            named = dict(zip((column.name for column in key), name, strict=True))
            run_id = str(named.get("run_id", values.get("run_id", "")))
            yield DamagedRow(table.name, name, run_id)


def _alone(connection: Connection, table: Table, name: tuple[Any, ...]) -> dict[str, Any]:
    """Return the values of one row; none if they are no values of its columns."""
    is_it = [column == value for column, value in zip(table.primary_key.columns, name, strict=True)]
    try:
        return _values(connection.execute(select(table).where(*is_it)).one())
    except rows.UNREADABLE:
        return {}


def _values(row: Row[Any]) -> dict[str, Any]:
    return dict(row._mapping)


def _is_whole(table: Table, values: Mapping[str, Any]) -> bool:
    try:
        return bool(values[rows.DIGEST] == rows.digest_of(table, values))
    except rows.UNREADABLE:
        return False
