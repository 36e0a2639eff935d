"""Messages of rounds, with the fields that people see."""

from __future__ import annotations

from fedplcc.shared.convert.payloads import blob_from_proto, blob_to_proto
from fedplcc.shared.convert.reading.enums import PHASE
from fedplcc.shared.convert.reading.fields import at_least, malformed
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.reasons import Dropped, DropReason
from fedplcc.shared.types import Round


def round_to_proto(current: Round) -> types_pb2.Round:
    """Return the message of a round, without updates, reports and times of phases."""
    return types_pb2.Round(
        round=current.number,
        phase=PHASE.number(current.phase),
        cohort=current.cohort,
        model=None if current.model is None else blob_to_proto(current.model),
        prototypes=None if current.prototypes is None else blob_to_proto(current.prototypes),
        metrics_json=current.results_json,
        timings_json=current.timings_json,
        dropped=[_dropped_to_proto(*entry) for entry in sorted(current.dropped.items())],
    )


def round_from_proto(message: types_pb2.Round) -> Round:
    """Return the round of a message, with the fields that it has."""
    return Round(
        number=at_least(0, "round", message.round),
        phase=PHASE.member(message.phase, "phase"),
        cohort=tuple(message.cohort),
        model=blob_from_proto(message.model) if message.HasField("model") else None,
        prototypes=blob_from_proto(message.prototypes) if message.HasField("prototypes") else None,
        results_json=message.metrics_json,
        timings_json=message.timings_json,
        dropped={client.client_id: _dropped_from_proto(client) for client in message.dropped},
    )


def _dropped_to_proto(client_id: str, why: Dropped) -> types_pb2.DroppedClient:
    # A gateway of 0.2 knows no "approval", and would refuse the whole answer; the detail says it.
    reason = DropReason.PROBLEM if why.reason is DropReason.APPROVAL else why.reason
    return types_pb2.DroppedClient(client_id=client_id, reason=reason.value, detail=why.detail)


def _dropped_from_proto(message: types_pb2.DroppedClient) -> Dropped:
    try:
        reason = DropReason(message.reason)
    except ValueError:
        raise malformed("dropped", f"{message.reason[:64]!r} is no reason to drop a client") from None
    return Dropped(reason, message.detail)
