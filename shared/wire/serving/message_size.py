"""Cost of a message before it is decoded: how many fields its bytes hold, found in one pass that makes no object."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from fedplcc.shared.errors import MalformedRequest

VARINT, FIXED64, BYTES, GROUP, GROUP_END, FIXED32 = range(6)
"""Wire types."""
PACKED_IN_A_FIELD = 8
"""Numbers of a packed list that count as one field: each becomes eight bytes, of one."""
_CONTINUED = bytes(range(0x80, 0x100))
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def require_few_fields(data: bytes, kind: Any, most: int) -> None:
    """Refuse a message of more fields than `most`, nested ones included: two bytes can be a field, and so an object.

    Args:
        data: The message as on the wire. Bytes that are no message pass: the decoder refuses them.
        kind: Its descriptor (protobuf has two types of them), which says where messages are nested; None looks at the outer
            fields alone.

    Raises:
        MalformedRequest: It has more. A field takes a byte at least, so a short message is not looked through.
    """
    if len(data) > most and _counted(data, 0, len(data), kind, most) < 0:
        raise MalformedRequest(f"a message of this call has at most {most} fields")


def _counted(data: bytes, at: int, end: int, kind: Any, rest: int) -> int:
    """Return what is left of `rest` after the fields between two places; below zero as soon as they are too many."""
    fields: Any = {} if kind is None else kind.fields_by_number
    while at < end:
        rest -= 1
        if rest < 0:
            return rest
        tag, at = _varint(data, at, end)
        wire = tag & 7
        if wire == VARINT:
            _, at = _varint(data, at, end)
        elif wire == FIXED64:
            at += 8
        elif wire == FIXED32:
            at += 4
        elif wire == BYTES:
            size, at = _varint(data, at, end)
            field = fields.get(tag >> 3)
            if field is not None and field.message_type is not None:
                rest = _counted(data, at, min(end, at + size), field.message_type, rest)
            elif field is not None and field.type not in _TEXTS:
                # Each number has one byte that does not go on.
                rest -= len(data[at : at + size].translate(None, _CONTINUED)) // PACKED_IN_A_FIELD
            at += size
    return rest


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number of at most ten bytes and the place behind it; the end where the bytes are cut short."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return value, end
