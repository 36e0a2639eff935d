"""Headers of uploads: of an update's blob, or of an initial model."""

from __future__ import annotations

from dataclasses import dataclass

from fedplcc.shared.convert.payloads import blob_from_proto, blob_to_proto
from fedplcc.shared.convert.reading.fields import at_least, malformed, present
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2, run_service_pb2
from fedplcc.shared.types import MODEL, BlobRef

MAX_MODEL_NAME = 256
"""Most characters of the name of an uploaded model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadHeader:
    """Purpose and sender of an upload."""

    run_id: str
    round: int
    client_id: str
    instance_token: str
    blob: BlobRef


def upload_header_to_proto(header: UploadHeader) -> round_service_pb2.BlobHeader:
    """Return the header of an upload."""
    return round_service_pb2.BlobHeader(
        run_id=header.run_id,
        round=header.round,
        client_id=header.client_id,
        instance_token=header.instance_token,
        blob=blob_to_proto(header.blob),
    )


def upload_header_from_proto(message: round_service_pb2.BlobHeader) -> UploadHeader:
    """Return the purpose and sender that a header claims; the sender is checked against the sessions, not here."""
    return UploadHeader(
        run_id=present("run_id", message.run_id),
        round=at_least(0, "round", message.round),
        client_id=message.client_id,
        instance_token=message.instance_token,
        blob=blob_from_proto(message.blob),
    )


def initial_model_to_proto(blob: BlobRef, name: str) -> run_service_pb2.InitialModelHeader:
    """Return the header of an initial model's upload."""
    return run_service_pb2.InitialModelHeader(blob=blob_to_proto(blob), name=name)


def initial_model_from_proto(message: run_service_pb2.InitialModelHeader) -> tuple[BlobRef, str]:
    """Return the announced initial model and its name."""
    blob = blob_from_proto(message.blob)
    if blob.role != MODEL:
        raise malformed("role", f"{blob.role!r} is not the role {MODEL!r}")
    if len(message.name) > MAX_MODEL_NAME or not message.name.isprintable():
        raise malformed("name", f"it is not up to {MAX_MODEL_NAME} printable characters")
    return blob, message.name
