"""Messages of tasks and polls."""

from __future__ import annotations

import re

from fedplcc.shared.bounds import RUN_ID_PATTERN
from fedplcc.shared.convert.payloads import a_sha256, payload_from_proto, payload_to_proto
from fedplcc.shared.convert.reading.enums import TASK
from fedplcc.shared.convert.reading.fields import (
    at_least,
    bounded_text,
    duration,
    limited,
    malformed,
    message_like,
    present,
    seconds_of,
)
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, types_pb2
from fedplcc.shared.types import Poll, RunSpec, TakenInline, Task, TaskKind

_RUN_ID = re.compile(RUN_ID_PATTERN)
MAX_STARTER = 120
"""Most characters of who began a run; what is longer is cut."""


def task_to_proto(task: Task) -> types_pb2.RoundTask:
    """Return the message of a task."""
    return message_like(
        types_pb2.RoundTask,
        task,
        kind=TASK.number(task.kind),
        run=None if task.run is None else message_like(types_pb2.RunSpec, task.run),
        payload=payload_to_proto(task.payload),
        missing_sha256s=task.missing,
    )


def task_from_proto(message: types_pb2.RoundTask) -> Task:
    """Return the task of a message; only WAIT may come without a run."""
    kind = TASK.member(message.kind, "kind")
    run = _run_spec_from_proto(message.run) if message.HasField("run") else None
    if run is None and kind is not TaskKind.WAIT:
        raise malformed("run", f"a task {kind} names a run")
    return Task(
        kind=kind,
        run=run,
        round=at_least(0, "round", message.round),
        total_rounds=at_least(0, "total_rounds", message.total_rounds),
        payload=payload_from_proto(message.payload),
        detail=message.detail,
        missing=tuple(limited("missing_sha256s", message.missing_sha256s)),
        times_asked=at_least(0, "times_asked", message.times_asked),
    )


def _run_spec_from_proto(message: types_pb2.RunSpec) -> RunSpec:
    run_id = present("run_id", message.run_id)
    if not _RUN_ID.fullmatch(run_id):  # it is in each line of a site's log, and names files there
        raise malformed(
            "run_id", "it is not 1 to 128 letters, digits, '.', '_' or '-' that begin with a letter or a digit"
        )
    starter = "".join(each if each.isprintable() else "?" for each in message.started_by[:MAX_STARTER])
    return RunSpec(run_id=run_id, config_json=message.config_json, config_hash=message.config_hash, started_by=starter)


def poll_to_proto(poll: Poll) -> round_service_pb2.Poll:
    """Return the message of a poll."""
    known = None
    if poll.known is not None:
        run_id, number, kind, times = poll.known
        known = round_service_pb2.TaskKey(run_id=run_id, round=number, kind=TASK.number(kind), times_asked=times)
    return round_service_pb2.Poll(known=known, hold=duration(poll.hold_s))


def poll_from_proto(message: round_service_pb2.Poll) -> Poll:
    """Return the poll of a message."""
    hold_s = seconds_of(message.hold)
    if hold_s < 0:
        raise malformed("hold", f"{hold_s:g} s is no time to wait")
    known = None
    if message.HasField("known"):
        key = message.known
        run_id, number = bounded_text("run_id", key.run_id), at_least(0, "round", key.round)
        times = at_least(0, "times_asked", key.times_asked)
        known = (run_id, number, TASK.member(key.kind, "kind"), times)
    return Poll(known, hold_s)


def taken_inline_to_proto(taken: TakenInline) -> round_service_pb2.InlineBlobs:
    """Return the message of the small blobs that a trainer takes inside tasks."""
    return round_service_pb2.InlineBlobs(max_bytes=taken.max_bytes, held_sha256s=sorted(taken.held))


def taken_inline_from_proto(message: round_service_pb2.InlineBlobs) -> TakenInline:
    """Return the small blobs that a trainer takes inside tasks."""
    held = frozenset(map(a_sha256, limited("held_sha256s", message.held_sha256s)))
    return TakenInline(at_least(0, "max_bytes", message.max_bytes), held)
