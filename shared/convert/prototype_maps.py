"""Messages of prototype maps."""

from __future__ import annotations

import math
from typing import cast, get_args

import numpy as np

from fedplcc.shared.convert.reading.fields import at_least, bounded_text, fraction, limited, malformed
from fedplcc.shared.gen.fedplcc.v1 import run_service_pb2
from fedplcc.shared.prototype_map import MAX_GLOBAL, MAX_LOCAL, MappedClient, PrototypeMap, RoundMap
from fedplcc.shared.types import Comparison


def prototype_map_to_proto(found: RoundMap) -> run_service_pb2.GetPrototypeMapResponse:
    """Return the message of a round's prototype map."""
    drawn = found.drawn
    columns = (drawn.class_ids_N, drawn.owners_N, drawn.weights_N, drawn.shares_N, drawn.nearest_N)
    return run_service_pb2.GetPrototypeMapResponse(
        round=found.number,
        prototypes=(
            run_service_pb2.MappedPrototype(
                x=x, y=y, class_id=class_id, client=owner, weight=weight, share=share, nearest=nearest
            )
            for (x, y), class_id, owner, weight, share, nearest in zip(
                drawn.places_N2.tolist(), *(column.tolist() for column in columns), strict=True
            )
        ),
        clients=(
            run_service_pb2.MappedClient(client_id=client.client_id, domain=client.domain, is_kept=client.is_kept)
            for client in found.clients
        ),
        comparison=found.comparison,
        explained=drawn.explained,
        left_out_global=drawn.left_out_global,
        left_out_local=drawn.left_out_local,
        rounds=(run_service_pb2.RoundSpan(first=first, last=last) for first, last in found.rounds),
        aligned_from=found.aligned_from,
    )


def prototype_map_from_proto(message: run_service_pb2.GetPrototypeMapResponse) -> RoundMap:
    """Return the prototype map of a message; checks that numbers are finite and indices within range."""
    if message.comparison not in get_args(Comparison):
        raise malformed("comparison", "it is neither cosine nor distance")
    entries, clients = limited("prototypes", message.prototypes, MAX_GLOBAL + MAX_LOCAL), message.clients
    for entry in entries:
        if not (math.isfinite(entry.x) and math.isfinite(entry.y)):
            raise malformed("x", "a place is NaN or infinite")
        if not (math.isfinite(entry.weight) and entry.weight > 0):
            raise malformed("weight", "it is not a positive number")
        fraction("share", entry.share)
        at_least(0, "class_id", entry.class_id)
        if not -1 <= entry.client < len(clients) or not -1 <= entry.nearest < len(entries):
            raise malformed("client", "it points to nothing")
    for span in message.rounds:
        at_least(span.first, "rounds", span.last)
    drawn = PrototypeMap(
        places_N2=np.array([(entry.x, entry.y) for entry in entries], dtype=np.float64).reshape(-1, 2),
        class_ids_N=np.array([entry.class_id for entry in entries], dtype=np.int64),
        owners_N=np.array([entry.client for entry in entries], dtype=np.int64),
        weights_N=np.array([entry.weight for entry in entries], dtype=np.float64),
        shares_N=np.array([entry.share for entry in entries], dtype=np.float64),
        nearest_N=np.array([entry.nearest for entry in entries], dtype=np.int64),
        owners=tuple(client.client_id for client in clients),
        explained=fraction("explained", message.explained),
        left_out_global=at_least(0, "left_out_global", message.left_out_global),
        left_out_local=at_least(0, "left_out_local", message.left_out_local),
    )
    return RoundMap(
        number=at_least(1, "round", message.round),
        drawn=drawn,
        clients=tuple(
            MappedClient(
                bounded_text("client_id", client.client_id), bounded_text("domain", client.domain), client.is_kept
            )
            for client in clients
        ),
        comparison=cast(Comparison, message.comparison),
        aligned_from=at_least(1, "aligned_from", message.aligned_from),
        rounds=tuple((span.first, span.last) for span in message.rounds),
    )
