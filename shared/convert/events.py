"""Messages of the history's events."""

from __future__ import annotations

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.convert.reading.fields import json_object, message_like, present, time_of, timestamp
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import Event


def event_to_proto(event: Event) -> types_pb2.Event:
    """Return the message of an event."""
    return message_like(types_pb2.Event, event, time=timestamp(event.time), data_json=canonical_json(dict(event.data)))


def event_from_proto(message: types_pb2.Event) -> Event:
    """Return the event of a message."""
    return Event(
        type=present("type", message.type),
        run_id=message.run_id,
        round=message.round,
        client_id=message.client_id,
        data=json_object("data_json", message.data_json),
        sequence=message.sequence,
        time=time_of("time", message.time),
    )
