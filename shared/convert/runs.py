"""Messages of runs, with the fields that people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedplcc.shared.chance import RunWarning, RunWarningKind
from fedplcc.shared.convert.reading.enums import PHASE, STATUS
from fedplcc.shared.convert.reading.fields import (
    at_least,
    bounded_map,
    json_object,
    malformed,
    message_like,
    present,
    time_of,
    timestamp,
)
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.reasons import Stated, sentence_of
from fedplcc.shared.run_lists import NO_LABELS, RunLabels
from fedplcc.shared.types import START, Rejections, Retired, Round, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A run as it is shown to people.

    Attributes:
        run: The run. Its round has number, phase and cohort; blobs, updates and reports are not shown, and its seed is the
            configuration's.
        done_clients: Clients whose part in the present phase is done, sorted.
        best_round: The best round by validation; None if none was validated.
        warnings: Trouble with which it goes on all the same; those of kinds that this version knows.
        server_state_bytes: Bytes of what the server keeps for the next round besides model and prototypes, by role.
    """

    run: Run
    config: Mapping[str, Any]
    done_clients: tuple[str, ...] = ()
    manifest_json: str = ""
    best_round: int | None = None
    labels: RunLabels = NO_LABELS
    warnings: tuple[RunWarning, ...] = ()
    server_state_bytes: Mapping[str, int] = field(default_factory=dict)


def run_to_proto(
    run: Run,
    *,
    manifest_json: str = "",
    best_round: int | None = None,
    labels: RunLabels = NO_LABELS,
    warnings: Sequence[RunWarning] = (),
) -> types_pb2.Run:
    """Return the message of a run; `manifest_json` is the content of its run.json."""
    current = run.current_round
    return message_like(
        types_pb2.Run,
        run,
        status=STATUS.number(run.status),
        round=run.round_number,
        phase=PHASE.number(current.phase if current else None),
        cohort=current.cohort if current else (),
        done_clients=current.done_clients if current else (),
        reason=sentence_of(run.reason),
        create_time=timestamp(run.created_at),
        update_time=timestamp(run.updated_at),
        manifest_json=manifest_json,
        best_round=best_round,
        rejections=[_rejections_to_proto(*entry) for entry in sorted(run.rejections.items())],
        quarantined=[
            types_pb2.QuarantinedClient(client_id=client_id, reason=reason)
            for client_id, reason in sorted(run.quarantined.items())
        ],
        retired=[
            message_like(types_pb2.RetiredClient, retired, client_id=client_id)
            for client_id, retired in sorted(run.retired.items())
            if not retired.is_back
        ],
        tags=labels.tags,
        notes=labels.notes,
        is_archived=labels.is_archived,
        warnings=[message_like(types_pb2.RunWarning, each) for each in warnings],
        server_state_bytes=server_state_bytes(run),
    )


def server_state_bytes(run: Run) -> dict[str, int]:
    """Return the bytes of what the server keeps for the next round besides model and prototypes, by role."""
    start = {} if run.start is None else {START: run.start}
    return {role: blob.size_bytes for role, blob in sorted({**run.server_state, **start}.items())}


def run_from_proto(message: types_pb2.Run) -> RunView:
    """Return the run of a message, with the fields that it has."""
    current = None
    if message.round >= 0:
        phase = PHASE.member(message.phase, "phase")
        current = Round(number=message.round, phase=phase, cohort=tuple(message.cohort))
    config = json_object("config_json", message.config_json)
    run = Run(
        run_id=present("run_id", message.run_id),
        name=message.name,
        status=STATUS.member(message.status, "status"),
        config_json=message.config_json,
        config_hash=message.config_hash,
        method=message.method,
        total_rounds=message.total_rounds,
        seed=_seed(config),
        roster=tuple(message.roster),
        current_round=current,
        is_pause_requested=message.is_pause_requested,
        reason=Stated(message.reason) if message.reason else None,
        created_at=time_of("create_time", message.create_time),
        updated_at=time_of("update_time", message.update_time),
        rejections={entry.client_id: _rejections_from_proto(entry) for entry in message.rejections},
        quarantined={client.client_id: client.reason for client in message.quarantined},
        retired={
            client.client_id: Retired(round=client.round, is_forgotten=client.is_forgotten)
            for client in message.retired
        },
    )
    return RunView(
        run=run,
        config=config,
        done_clients=tuple(message.done_clients),
        manifest_json=message.manifest_json,
        best_round=message.best_round if message.HasField("best_round") else None,
        labels=RunLabels(tags=tuple(message.tags), notes=message.notes, is_archived=message.is_archived),
        warnings=tuple(
            RunWarning(RunWarningKind(each.kind), each.round, each.sentence, tuple(each.keys))
            for each in message.warnings
            if each.kind in set(RunWarningKind)
        ),
        server_state_bytes={
            role: at_least(0, "server_state_bytes", size)
            for role, size in sorted(bounded_map("server_state_bytes", message.server_state_bytes).items())
        },
    )


def _rejections_to_proto(client_id: str, refused: Rejections) -> types_pb2.Rejections:
    return message_like(types_pb2.Rejections, refused, client_id=client_id, last_time=timestamp(refused.last_at))


def _rejections_from_proto(message: types_pb2.Rejections) -> Rejections:
    return Rejections(
        count=at_least(1, "count", message.count),
        reason=message.reason,
        check=message.check,
        detail=message.detail,
        round=message.round,
        last_at=time_of("last_time", message.last_time),
    )


def _seed(config: Mapping[str, Any]) -> int:
    section = config.get("run")
    seed = section.get("seed") if isinstance(section, dict) else None
    if not isinstance(seed, int):
        raise malformed("config_json", "it has no run.seed")
    return seed
