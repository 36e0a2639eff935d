"""Messages of updates."""

from __future__ import annotations

from collections.abc import Iterable

from fedplcc.shared.convert.payloads import payload_from_proto, payload_to_proto
from fedplcc.shared.convert.reading.fields import MAX_CLASSES, at_least, bounded_map, limited, message_like, present
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2
from fedplcc.shared.types import CommittedUpdate, Update


def update_to_commit(
    update: Update, *, run_id: str, round_number: int, instance_token: str, inline_blobs: Iterable[bytes] = ()
) -> round_service_pb2.CommitUpdateRequest:
    """Return the request that commits an update, with the bytes of blobs that were not uploaded."""
    return message_like(
        round_service_pb2.CommitUpdateRequest,
        update,
        run_id=run_id,
        round=round_number,
        instance_token=instance_token,
        payload=payload_to_proto(update.payload),
        inline_blobs=inline_blobs,
    )


def update_from_commit(request: round_service_pb2.CommitUpdateRequest) -> Update:
    """Return the update of a request, values unchecked; the number of prototypes is set when they are read."""
    present("run_id", request.run_id)
    at_least(0, "round", request.round)
    return Update(
        client_id=request.client_id,
        payload=payload_from_proto(request.payload),
        num_examples=request.num_examples,
        num_excluded=request.num_excluded,
        class_counts=tuple(limited("class_counts", request.class_counts, MAX_CLASSES)),
        losses=bounded_map("losses", request.losses),
        timings=bounded_map("timings", request.timings),
    )


def inline_blobs_of(request: round_service_pb2.CommitUpdateRequest) -> tuple[bytes, ...]:
    """Return the bytes of blobs that came with a request, unchecked but for their number."""
    return tuple(limited("inline_blobs", request.inline_blobs))


def committed_to_proto(committed: CommittedUpdate) -> round_service_pb2.CommittedUpdate:
    """Return the message of a committed update."""
    return message_like(round_service_pb2.CommittedUpdate, committed)


def committed_from_proto(message: round_service_pb2.CommittedUpdate) -> CommittedUpdate:
    """Return the committed update of a message."""
    return CommittedUpdate(present("run_id", message.run_id), message.round, tuple(message.sha256s))
