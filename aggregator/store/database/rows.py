"""Rows of the tables: from records and back, each with a digest.

A digest covers what a row says, so that a changed row is noticed when it is read and by `fedplcc doctor`. It leaves out
what the database numbers by itself and what a later write of the row does not know (`UNCOVERED`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Float, Row, Table

from fedplcc.aggregator.store.base import ControlRequest
from fedplcc.aggregator.store.database import schema
from fedplcc.shared.errors import RowCorrupt
from fedplcc.shared.reasons import (
    AggregationFailed,
    BlobDamaged,
    Dropped,
    NobodyJoined,
    NobodyLeft,
    NoQuorum,
    Parked,
    Reason,
    Stated,
    StoppedEarly,
    UpdateDamaged,
    WaitsForApproval,
    WaitsForClients,
)
from fedplcc.shared.types import (
    AskedAgain,
    BlobRef,
    Client,
    ClientProblem,
    Environment,
    Evaluation,
    Event,
    PrototypeCounts,
    Rejections,
    Retired,
    Round,
    RoundPhase,
    Run,
    RunStatus,
    Update,
)

_Record = TypeVar("_Record")

DIGEST = "digest"
UNCOVERED: Mapping[str, frozenset[str]] = {
    "runs": frozenset({"request_id", "request_hash"}),
    "events": frozenset({"sequence"}),
}
"""Columns that a table's digests leave out, besides the digest itself."""
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)
"""Errors of a row whose values are no values of its columns or records."""

_COVERED: Mapping[str, tuple[tuple[str, bool], ...]] = {
    table.name: tuple(
        (column.name, isinstance(column.type, Float))
        for column in sorted(table.columns, key=lambda column: column.name)
        if column.name != DIGEST and column.name not in UNCOVERED.get(table.name, ())
    )
    for table in schema.metadata.sorted_tables
    if DIGEST in table.columns
}
"""Columns that digests cover, sorted, each with whether it holds a float."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def digest_of(table: Table, values: Mapping[str, Any]) -> str:
    """Return the digest of a row: BLAKE2b of its columns' values as canonical JSON, in the order of their names."""
    covered = [values[name] for name, _is_float in _COVERED[table.name]]
    return hashlib.blake2b(_CANONICAL.encode(covered).encode(), digest_size=16).hexdigest()


def sealed(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's values with their digest."""
    row = dict(values)
    for name, is_float in _COVERED[table.name]:
        if is_float and row[name] is not None:
            row[name] = float(row[name])  # as the database returns it
    row[DIGEST] = digest_of(table, row)
    return row


def checked(table: Table, row: Row[Any]) -> dict[str, Any]:
    """Return the values of a row without its digest.

    Raises:
        RowCorrupt: The digest is not that of the values.
    """
    values = dict(row._mapping)
    if values.pop(DIGEST) != digest_of(table, values):
        raise corrupt(table, values)
    return values


def corrupt(table: Table, values: Mapping[str, Any]) -> RowCorrupt:
    """Return the error for a row of which at least the key is known."""
    key = "/".join(str(values[column.name]) for column in table.primary_key.columns)
    return RowCorrupt(
        f"the row {key} of the table {table.name} is damaged; restore a backup of the state directory",
        table=table.name,
        key=key,
    )


_REASONS: Mapping[str, type[Reason]] = {
    "waits_for_clients": WaitsForClients,
    "nobody_joined": NobodyJoined,
    "no_quorum": NoQuorum,
    "waits_for_approval": WaitsForApproval,
    "nobody_left": NobodyLeft,
    "aggregation_failed": AggregationFailed,
    "parked": Parked,
    "update_damaged": UpdateDamaged,
    "blob_damaged": BlobDamaged,
    "stopped_early": StoppedEarly,
}
"""Kinds of reasons that are kept as JSON, by their name there."""
_KIND_OF_REASON = {kind: name for name, kind in _REASONS.items()}

_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {
    kind: TypeAdapter(kind)
    for kind in (
        *(
            AskedAgain,
            BlobRef,
            ClientProblem,
            Dropped,
            Environment,
            Evaluation,
            PrototypeCounts,
            Rejections,
            Retired,
            Update,
        ),
        *_KIND_OF_REASON,
    )
}
"""Adapters of the records that are stored as JSON."""


def _dump(record: Any) -> Any:
    return _ADAPTERS[type(record)].dump_python(record, mode="json")


def _load(kind: type[_Record], value: Any) -> _Record:
    record: _Record = _ADAPTERS[kind].validate_python(value)
    return record


def run_row(run: Run) -> dict[str, Any]:
    """Return the row of a run, without the request that made it."""
    names = ["run_id", "name", "method", "config_json", "config_hash", "total_rounds", "seed", "is_pause_requested"]
    names += ["created_at", "updated_at"]
    values: dict[str, Any] = {name: getattr(run, name) for name in names}
    values |= {"status": run.status.value, "roster": list(run.roster), "round": run.round_number}
    values |= _results_in(run)
    values |= {"reason": "", "reason_record": None}
    if isinstance(run.reason, Stated):
        values["reason"] = run.reason.sentence
    elif run.reason is not None:
        values["reason_record"] = {"kind": _KIND_OF_REASON[type(run.reason)], **_dump(run.reason)}
    values["quarantined"] = dict(run.quarantined) or None
    values["rejections"] = {name: _dump(refused) for name, refused in run.rejections.items()} or None
    values["admitted_examples"] = dict(run.admitted_examples) or None
    values["retired"] = {name: _dump(retired) for name, retired in run.retired.items()} or None
    values["num_admissions"] = run.num_admissions or None
    values["without_data"] = {name: list(stages) for name, stages in run.without_data.items()} or None
    values["stage_began"] = list(run.stage_began) or None
    return sealed(schema.runs, values)


def round_row(run_id: str, record: Round) -> dict[str, Any]:
    """Return the row of a round."""
    values: dict[str, Any] = {"run_id": run_id, "number": record.number}
    values |= {"phase": record.phase.value, "cohort": list(record.cohort)}
    values |= {"metrics_json": record.results_json, "timings_json": record.timings_json}
    values |= {"phase_started_at": dict(record.phase_started_at)}
    values |= _results_in(record)
    values["dropped"] = {client_id: _dump(why) for client_id, why in record.dropped.items()} or None
    values["prototype_counts"] = None if record.prototype_counts is None else _dump(record.prototype_counts)
    values["asked_again"] = {client_id: _dump(asked) for client_id, asked in record.asked_again.items()} or None
    return sealed(schema.rounds, values)


def update_row(run_id: str, number: int, update: Update, commit_order: int) -> dict[str, Any]:
    """Return the row of a committed update."""
    values = {"run_id": run_id, "round": number, "client_id": update.client_id, "commit_order": commit_order}
    return sealed(schema.updates, {**values, "update": _dump(update)})


def evaluation_row(run_id: str, number: int, evaluation: Evaluation) -> dict[str, Any]:
    """Return the row of a report."""
    values = {"run_id": run_id, "round": number, "client_id": evaluation.client_id}
    return sealed(schema.evaluations, {**values, "evaluation": _dump(evaluation)})


def client_row(client: Client) -> dict[str, Any]:
    """Return the row of a client."""
    values = {
        "client_id": client.client_id,
        "domain": client.domain,
        "display_name": client.display_name or None,
        "model_kind": client.model_kind or None,
        "num_examples": client.num_examples,
        "class_counts": dict(client.class_counts),
        "environment": _dump(client.environment),
        "last_seen_at": client.last_seen_at,
        "problem": None if client.problem is None else _dump(client.problem),
    }
    return sealed(schema.clients, values)


def blob_row(blob: BlobRef) -> dict[str, Any]:
    """Return the row of a blob."""
    return sealed(schema.blobs, {"sha256": blob.sha256, "size_bytes": blob.size_bytes})


def control_request_row(request: ControlRequest) -> dict[str, Any]:
    """Return the row of a request that was done."""
    return sealed(schema.control_requests, asdict(request))


def event_row(event: Event) -> dict[str, Any]:
    """Return the row of an event, without its sequence."""
    values = {"time": event.time, "type": event.type, "run_id": event.run_id, "round": event.round}
    return sealed(schema.events, {**values, "client_id": event.client_id, "data": dict(event.data)})


def _results_in(record: Run | Round) -> dict[str, Any]:
    """Return the columns with a round's results."""
    blobs = (("model", record.model), ("prototypes", record.prototypes), ("start", record.start))
    values: dict[str, Any] = {name: None if blob is None else _dump(blob) for name, blob in blobs}
    return values | {"server_state": {role: _dump(blob) for role, blob in record.server_state.items()} or None}


def _load_results(values: dict[str, Any]) -> None:
    """Put records in the place of the columns with a round's results."""
    for name in ("model", "prototypes", "start"):
        values[name] = None if values[name] is None else _load(BlobRef, values[name])
    values["server_state"] = {role: _load(BlobRef, blob) for role, blob in (values["server_state"] or {}).items()}


def run_of(row: Row[Any]) -> Run:
    """Return the run of a row, without its round.

    Raises:
        RowCorrupt: The row is damaged.
    """
    values = checked(schema.runs, row)
    for name in ("request_id", "request_hash", "round"):
        del values[name]
    values["status"] = RunStatus(values["status"])
    values["roster"] = tuple(values["roster"])
    values["reason"] = _reason(values.pop("reason_record"), values["reason"])
    values["quarantined"] = values["quarantined"] or {}
    values["admitted_examples"] = values["admitted_examples"] or {}
    values["retired"] = retirements(values["retired"])
    values["num_admissions"] = values["num_admissions"] or 0
    values["without_data"] = {name: tuple(stages) for name, stages in (values["without_data"] or {}).items()}
    values["stage_began"] = tuple(values["stage_began"] or ())
    rejections = values["rejections"] or {}
    values["rejections"] = {name: _load(Rejections, refused) for name, refused in rejections.items()}
    _load_results(values)
    return Run(**values)


def retirements(column: dict[str, Any] | None) -> dict[str, Retired]:
    """Return the retirements of a run by client id."""
    return {name: _load(Retired, retired) for name, retired in (column or {}).items()}


def _reason(record: dict[str, Any] | None, sentence: str) -> Reason | None:
    if record is None:
        return Stated(sentence) if sentence else None
    reason: Reason = _load(_REASONS[record["kind"]], {name: record[name] for name in record if name != "kind"})
    return reason


def round_of(row: Row[Any]) -> Round:
    """Return the round of a row, without updates and reports.

    Raises:
        RowCorrupt: The row is damaged.
    """
    values = checked(schema.rounds, row)
    del values["run_id"]
    values["results_json"] = values.pop("metrics_json")
    values["phase"] = RoundPhase(values["phase"])
    values["cohort"] = tuple(values["cohort"])
    dropped = values["dropped"] or {}
    values["dropped"] = {client_id: _load(Dropped, why) for client_id, why in dropped.items()}
    counts = values["prototype_counts"]
    values["prototype_counts"] = None if counts is None else _load(PrototypeCounts, counts)
    asked_again = values["asked_again"] or {}
    values["asked_again"] = {client_id: _load(AskedAgain, asked) for client_id, asked in asked_again.items()}
    _load_results(values)
    return Round(**values)


def update_of(row: Row[Any]) -> Update:
    """Return the update of a row.

    Raises:
        RowCorrupt: The row is damaged.
    """
    return _load(Update, checked(schema.updates, row)["update"])


def evaluation_of(row: Row[Any]) -> Evaluation:
    """Return the report of a row.

    Raises:
        RowCorrupt: The row is damaged.
    """
    return _load(Evaluation, checked(schema.evaluations, row)["evaluation"])


def client_of(row: Row[Any]) -> Client:
    """Return the client of a row. The next time it joins, it says everything again: a damaged row is not an error."""
    values = dict(row._mapping)
    del values[DIGEST]
    values["display_name"], values["model_kind"] = values["display_name"] or "", values["model_kind"] or ""
    values["environment"] = _load(Environment, values["environment"])
    values["problem"] = None if values["problem"] is None else _load(ClientProblem, values["problem"])
    return Client(**values)
