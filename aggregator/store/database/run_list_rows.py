"""Lists of runs by filters, with counts: the read that is mixed into the SQL store.

The filters use one index, which has all columns that they and the orders need. A page then reads the rows of its runs, of
their latest rounds and of those evaluated last, each in one statement and each checked by its digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, case, func, or_, select, tuple_

from fedplcc.aggregator.store.database import rows, schema
from fedplcc.aggregator.store.database.access import Reader
from fedplcc.aggregator.store.database.label_rows import labels_of
from fedplcc.aggregator.store.database.run_rows import damaged_run
from fedplcc.shared.errors import MalformedRequest, RowCorrupt
from fedplcc.shared.reasons import Reason, RowDamaged
from fedplcc.shared.run_lists import (
    COUNTED_STATUSES,
    MAX_BY_SCORE,
    SCORE_ORDERS,
    RunLabels,
    RunList,
    RunOrder,
    RunQuery,
    RunShow,
    RunSummary,
)
from fedplcc.shared.scoring.scores import ACCURACY, score_of, values_of
from fedplcc.shared.types import Round, Run, RunStatus

_SUMMARIES = ("mean", "worst")
"""Keys of an accuracy that name no domain."""
_NOT_EVALUATED = '{"accuracy":null,'
"""Beginning of the metrics of a round that was not evaluated: canonical JSON begins with the first key in the alphabet."""


class RunListReads:
    """Read of a `Store` (see base.py) for lists of runs."""

    def find_runs(self: Reader, query: RunQuery) -> RunList:
        table, filters = schema.runs, _filters(query)
        counts = select(table.c.status, func.count().label("number")).where(*filters).group_by(table.c.status)
        matching = select(table.c.run_id).where(*filters)
        if query.statuses:
            matching = matching.where(table.c.status.in_([status.value for status in with_stopping(query.statuses)]))
        wanted = set(query.statuses or COUNTED_STATUSES)
        with self._reading() as connection:
            totals = _totals(connection.execute(counts).all())
            total = sum(number for status, number in totals.items() if status in wanted)
            is_by_score = query.order in SCORE_ORDERS
            names: Sequence[str] = (
                _by_score(connection, matching, query, total)
                if is_by_score
                else connection.execute(_page(matching, query)).scalars().all()
            )
            found = _summaries(connection, names)
        return RunList(runs=found, totals=totals, total=total)


def with_stopping(statuses: Iterable[RunStatus]) -> set[RunStatus]:
    """Return statuses of a filter with what they stand for: a run that is stopping counts as running."""
    asked = set(statuses)
    return asked | {RunStatus.STOPPING} if RunStatus.RUNNING in asked else asked


def _totals(counted: Sequence[Row[Any]]) -> dict[RunStatus, int]:
    numbers = {str(row.status): int(row.number) for row in counted}
    totals = {status: numbers.get(status.value, 0) for status in COUNTED_STATUSES}
    totals[RunStatus.RUNNING] += numbers.get(RunStatus.STOPPING.value, 0)
    return totals


def _filters(query: RunQuery) -> list[ColumnElement[bool]]:
    """Return the conditions of a query but for the statuses and the cursor."""
    table, labels, tags = schema.runs, schema.run_labels, schema.run_tags
    left_out = select(labels.c.run_id)
    is_deleted, is_archived = labels.c.deleted_at.is_not(None), labels.c.is_archived.is_(True)
    shown: dict[RunShow, list[ColumnElement[bool]]] = {
        RunShow.CURRENT: [table.c.run_id.not_in(left_out.where(is_deleted | is_archived))],
        RunShow.ARCHIVED: [table.c.run_id.in_(left_out.where(~is_deleted & is_archived))],
        RunShow.DELETED: [table.c.run_id.in_(left_out.where(is_deleted))],
        RunShow.ALL: [],
    }
    filters = shown[query.show]
    filters += [table.c.run_id.in_(select(tags.c.run_id).where(tags.c.tag == tag)) for tag in query.tags]
    if query.method:
        filters.append(table.c.method == query.method)
    if query.name:
        part = query.name.lower()
        texts = (func.lower(table.c.name), func.lower(table.c.run_id))
        filters.append(or_(*(text.contains(part, autoescape=True) for text in texts)))
    if query.since is not None:
        filters.append(table.c.created_at >= query.since)
    return filters


def _page(matching: Select[Any], query: RunQuery) -> Select[Any]:
    """Return a page of ids in an order whose values are columns, after the cursor."""
    value, run_id = _value(query), schema.runs.c.run_id
    keys = (value, run_id) if query.rises else (value.desc(), run_id.desc())
    page = matching.order_by(*keys).limit(query.limit)
    if query.after is None:
        return page
    place, after = tuple_(value, run_id), (query.after.value, query.after.run_id)
    return page.where(place > after if query.rises else place < after)


def _value(query: RunQuery) -> ColumnElement[Any]:
    """Return what a run is sorted by."""
    table = schema.runs
    has_ended = table.c.status.in_([status.value for status in RunStatus if status.is_final])
    is_stopping = table.c.status == RunStatus.STOPPING.value
    values: Mapping[RunOrder, ColumnElement[Any]] = {
        RunOrder.UPDATED: table.c.updated_at,
        RunOrder.NAME: table.c.name,
        RunOrder.STATUS: case((is_stopping, RunStatus.RUNNING.value), else_=table.c.status),
        RunOrder.METHOD: table.c.method,
        RunOrder.ROUNDS: table.c.total_rounds,
        RunOrder.TOOK: case((has_ended, table.c.updated_at - table.c.created_at), else_=query.without_value),
    }
    return values.get(query.order, table.c.created_at)


def _by_score(connection: Connection, matching: Select[Any], query: RunQuery, total: int) -> list[str]:
    """Return a page of ids in the order of scores, after the cursor."""
    if total > MAX_BY_SCORE:
        raise MalformedRequest(
            f"{total} runs match, and at most {MAX_BY_SCORE} are sorted by {query.order.value}; narrow the search by "
            "name, tag, method or time",
            field="order",
        )
    names = connection.execute(matching).scalars().all()
    scores = _scores(connection, names, query.order.value)
    places = sorted(((scores.get(name, query.without_value), name) for name in names), reverse=not query.rises)
    if query.after is not None:
        after = (query.after.value, query.after.run_id)
        places = [place for place in places if (place > after if query.rises else place < after)]
    return [name for _, name in places[: query.limit]]


def _scores(connection: Connection, names: Sequence[str], key: str) -> dict[str, float]:
    """Return the mean or the worst score of each run that has one and whose row is whole, by its id."""
    found = _rounds(connection, _evaluated(connection, names).items())
    lines = {name: row.results_json for (name, _number), row in found.items() if row is not None}
    values = {name: (values_of(json.loads(line)) or {}).get(key) for name, line in lines.items()}
    return {name: float(value) for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Read:
    """What is known of the runs of a page, by their ids."""

    runs: Mapping[str, Run]
    numbers: Mapping[str, int]
    labels: Mapping[str, RunLabels | None]
    """None where the row is damaged."""
    rounds: Mapping[tuple[str, int], Round | None]
    evaluated: Mapping[str, int]
    """The last committed round that was evaluated."""


def _summaries(connection: Connection, names: Sequence[str]) -> list[RunSummary]:
    if not names:
        return []
    runs, numbers = _runs(connection, names)
    labels = _labels(connection, names)
    evaluated = _evaluated(connection, names)
    keys = {*numbers.items(), *evaluated.items()}
    read = _Read(runs, numbers, labels, _rounds(connection, keys), evaluated)
    return [_summary(name, read) for name in names]


def _summary(run_id: str, read: _Read) -> RunSummary:
    run, number = read.runs[run_id], read.numbers.get(run_id, -1)
    labels, reason = read.labels.get(run_id, RunLabels()), run.reason
    if labels is None:
        labels, reason = RunLabels(), RowDamaged(table=schema.run_labels.name, key=run_id)
    is_deleted = labels.deleted_at is not None
    current = read.rounds.get((run_id, number))
    last = read.evaluated.get(run_id)
    if not is_deleted and not isinstance(reason, RowDamaged):
        reason = reason or _damage_of_rounds(run_id, read)
    row = None if last is None else read.rounds.get((run_id, last))
    line: Mapping[str, Any] | None = None if row is None else json.loads(row.results_json)
    accuracy = {} if line is None else values_of(line) or {}
    domains = {name: value for name, value in accuracy.items() if name not in _SUMMARIES and value is not None}
    return RunSummary(
        run_id=run_id,
        name=run.name,
        status=run.status,
        method=run.method,
        round=number,
        total_rounds=run.total_rounds,
        phase=None if current is None else current.phase,
        num_clients=len(run.roster),
        is_pause_requested=run.is_pause_requested,
        reason=reason,
        created_at=run.created_at,
        updated_at=run.updated_at,
        config_hash=run.config_hash,
        tags=labels.tags,
        is_archived=labels.is_archived,
        is_deleted=is_deleted,
        score=ACCURACY if line is None else score_of(line),
        mean_accuracy=accuracy.get("mean"),
        worst_accuracy=accuracy.get("worst"),
        worst_domain=min(domains, key=lambda name: (domains[name], name), default=""),
    )


def _damage_of_rounds(run_id: str, read: _Read) -> Reason | None:
    """Return the reason of a run of which a round's row is damaged or missing."""
    for number in (read.numbers.get(run_id, -1), read.evaluated.get(run_id, -1)):
        if number >= 0 and read.rounds.get((run_id, number)) is None:
            return RowDamaged(table=schema.rounds.name, key=f"{run_id}/{number}")
    return None


def _runs(connection: Connection, names: Sequence[str]) -> tuple[dict[str, Run], dict[str, int]]:
    """Return the runs of a page without their rounds, and the number of each one's latest round."""
    table, runs, numbers = schema.runs, dict[str, Run](), dict[str, int]()
    for name, row in _rows_of(connection, table, names):
        try:
            if row is None:
                raise rows.corrupt(table, {"run_id": name})
            runs[name], numbers[name] = rows.run_of(row), row.round
        except RowCorrupt as error:
            runs[name] = damaged_run(connection, name, RowDamaged(**error.metadata))
    return runs, numbers


def _rows_of(
    connection: Connection, table: Table, names: Sequence[str], *conditions: ColumnElement[bool]
) -> Iterable[tuple[str, Row[Any] | None]]:
    """Yield a table's row of each run that has one; None for one whose values are none of its columns."""
    try:
        found = connection.execute(select(table).where(table.c.run_id.in_(names), *conditions)).all()
    except rows.UNREADABLE:
        found = None
    if found is not None:
        yield from ((row.run_id, row) for row in found)
        return
    for name in names:
        try:
            row = connection.execute(select(table).where(table.c.run_id == name, *conditions)).first()
        except rows.UNREADABLE:
            yield name, None
        else:
            if row is not None:
                yield name, row


def _labels(connection: Connection, names: Sequence[str]) -> dict[str, RunLabels | None]:
    table, found = schema.run_labels, dict[str, RunLabels | None]()
    for name, row in _rows_of(connection, table, names):
        try:
            found[name] = None if row is None else labels_of(row)
        except RowCorrupt:
            found[name] = None
    return found


def _evaluated(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    """Return the number of the last evaluated round of each run that has one; the search goes back from the last round."""
    table, of_run = schema.rounds, schema.runs.c.run_id
    was_evaluated = (table.c.metrics_json != "") & ~table.c.metrics_json.startswith(_NOT_EVALUATED)
    last = select(table.c.number).where(table.c.run_id == of_run, was_evaluated)
    last = last.order_by(table.c.number.desc()).limit(1)
    query = select(of_run, last.correlate(schema.runs).scalar_subquery().label("last")).where(of_run.in_(names))
    return {row.run_id: row.last for row in connection.execute(query).all() if row.last is not None}


def _rounds(connection: Connection, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Round | None]:
    """Return rounds by run and number; None for a damaged one.

    Rounds of one number are one statement: most runs of a page end with the same number. For (run_id, number) IN (...)
    SQLite would read the whole table.
    """
    table, found = schema.rounds, dict[tuple[str, int], Round | None]()
    by_number: dict[int, list[str]] = {}
    for run_id, number in keys:
        if number >= 0:
            by_number.setdefault(number, []).append(run_id)
    for number, names in by_number.items():
        for run_id, row in _rows_of(connection, table, names, table.c.number == number):
            try:
                found[run_id, number] = None if row is None else rows.round_of(row)
            except RowCorrupt:
                found[run_id, number] = None
    return found
