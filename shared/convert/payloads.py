"""Messages of blob references and payloads."""

from __future__ import annotations

import re

from fedplcc.shared.convert.reading.fields import (
    MAX_CLASSES,
    bounded_map,
    bounded_text,
    bounded_texts,
    limited,
    malformed,
)
from fedplcc.shared.gen.fedplcc.v1 import types_pb2
from fedplcc.shared.types import ENCODED, BlobRef, Payload

_SHA256 = re.compile(r"[0-9a-f]{64}")


def blob_to_proto(blob: BlobRef) -> types_pb2.BlobRef:
    """Return the message of a blob reference."""
    return types_pb2.BlobRef(role=blob.role, sha256=blob.sha256, size_bytes=blob.size_bytes)


def blob_from_proto(message: types_pb2.BlobRef) -> BlobRef:
    """Return the blob reference of a message."""
    a_sha256(message.sha256)
    if message.size_bytes < 1:
        raise malformed("size_bytes", f"{message.size_bytes} is no size of a blob")
    if not message.role:
        raise malformed("role", "a blob has a role")
    return BlobRef(bounded_text("role", message.role), message.sha256, message.size_bytes)


def a_sha256(text: str) -> str:
    """Return a SHA-256 in the form in which blobs are named."""
    if not _SHA256.fullmatch(text):
        raise malformed("sha256", "a SHA-256 is 64 lowercase hexadecimal digits")
    return text


def payload_to_proto(payload: Payload) -> types_pb2.Payload:
    """Return the message of a payload."""
    return types_pb2.Payload(
        tensor_groups=map(blob_to_proto, payload.tensor_groups),
        prototype_sets=map(blob_to_proto, payload.prototype_sets),
        scalars=payload.scalars,
        int_lists={name: types_pb2.IntList(values=values) for name, values in payload.int_lists.items()},
        metadata=payload.metadata,
        encoded=None if payload.encoded is None else blob_to_proto(payload.encoded),
    )


def payload_from_proto(message: types_pb2.Payload) -> Payload:
    """Return the payload of a message; roles are unique among tensor groups and among prototype sets."""
    groups = tuple(map(blob_from_proto, limited("tensor_groups", message.tensor_groups)))
    sets = tuple(map(blob_from_proto, limited("prototype_sets", message.prototype_sets)))
    for field, blobs in (("tensor_groups", groups), ("prototype_sets", sets)):
        if len({blob.role for blob in blobs}) < len(blobs):
            raise malformed(field, "a role occurs twice")
    return Payload(
        tensor_groups=groups,
        prototype_sets=sets,
        scalars=bounded_map("scalars", message.scalars),
        int_lists={
            name: tuple(limited("int_lists", entry.values, MAX_CLASSES))
            for name, entry in bounded_map("int_lists", message.int_lists).items()
        },
        metadata=bounded_texts("metadata", message.metadata),
        encoded=_encoded(message),
    )


def _encoded(message: types_pb2.Payload) -> BlobRef | None:
    if not message.HasField("encoded"):
        return None
    if message.encoded.role != ENCODED:
        raise malformed("encoded", f"an encoded model has the role {ENCODED!r}")
    return blob_from_proto(message.encoded)
