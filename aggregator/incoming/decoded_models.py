"""Encoded models of updates, decoded once: what is checked, stored and folded is float32.

An update names its model by the SHA-256 that it has once decoded, so that retries, checks and rows are those of any update.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedplcc.aggregator.computation.checked import Content
from fedplcc.aggregator.store.blobs.blob_store import BlobWriter
from fedplcc.aggregator.store.blobs.hashed_reading import HashedBlob
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.encoded_models import decoding, encoded_size, refused
from fedplcc.shared.tensors import Array, TensorEntry, TensorTable
from fedplcc.shared.types import MODEL, Payload


def check_named(payload: Payload, number: int, config: RunConfig) -> None:
    """Check that an update has an encoded model where the run's updates have one, before any byte of it is read.

    Raises:
        MalformedUpdate: check is "encoding".
    """
    is_wanted = number > 0 and config.wire.is_encoded
    if is_wanted and (payload.encoded is None or payload.tensor_group(MODEL) is None):
        raise refused(
            f"models of this run's updates travel as {config.wire.precision} (wire.precision), and this one does not"
        )
    if payload.encoded is not None and not is_wanted:
        raise refused("the update has an encoded model, and models of this round travel whole")


def write_decoded(
    payload: Payload,
    content: Content,
    config: RunConfig,
    layout: tuple[TensorTable, TensorTable],
    start: Path,
    writer: BlobWriter,
) -> Path:
    """Decode an update's model, block by block, into a blob that is finished once it is accepted; return its file.

    Args:
        payload: The update's, checked by `check_named`.
        layout: Layouts of the model in an update, and of the global one.
        start: The model that the round began with.

    Raises:
        MalformedUpdate: check is "encoding": wrong in size, code or scales, or decoded it is not the model that is named.
        PayloadCorrupt: The model that the round began with is damaged.
    """
    model, encoded, (table, whole) = payload.tensor_group(MODEL), payload.encoded, layout
    assert model is not None, "check_named has seen it"
    assert encoded is not None, "check_named has seen it"
    expected = encoded_size(table.schema, config.wire.precision)
    if (encoded.size_bytes, model.size_bytes) != (expected, table.size_bytes):
        raise refused(
            f"a model has {table.size_bytes} bytes in this run and {expected} as {config.wire.precision}, this one "
            f"{model.size_bytes} and {encoded.size_bytes}"
        )
    begun, digest = HashedBlob(start), hashlib.sha256(table.header)
    places = {entry.name: entry for entry in whole.entries}

    def read_start(entry: TensorEntry, first: int, count: int) -> Array:
        return begun.block(places[entry.name], first, count)

    writer.write(table.header)
    with content.open("rb") as file:
        for block in decoding(table, config.wire.precision, file.read, read_start):
            data = block.data.cast("B")
            digest.update(data)
            writer.write(data)
    begun.finish()
    if digest.hexdigest() != model.sha256:
        raise refused("the encoded model is not the one that the update names, once it is decoded")
    return writer.written()
