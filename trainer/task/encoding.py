"""A client's half of encoded models: it decodes the round's result, and encodes its update with the last one's error.

The error is kept in the client's state, which is staged with the update and valid once that is committed: a killed trainer
or a repeated call feeds each error back once (docs/algorithms.md, rule 1.23).
"""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from fedplcc.shared.config.tables.wire import WireSection
from fedplcc.shared.encoded_models import beginning, decoding, encoded_size, encoding, is_encoded
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods.arrays import ClientState, ModelArrays
from fedplcc.shared.tensors import Array, TensorEntry, read_header, sha256_hex, to_bytes
from fedplcc.shared.types import BlobRef

ERROR = "rounding:"
"""Begins the names of a client's arrays that hold what rounding left out of its last committed update."""


def without_errors(state: ClientState | None) -> ClientState | None:
    """Return the state that the run's method kept; None where it kept none."""
    own = {name: array for name, array in (state or {}).items() if not name.startswith(ERROR)}
    return own or None


def encoded_update(
    model: Mapping[str, Array], start: ModelArrays, kept: ClientState | None, section: WireSection
) -> tuple[bytes, bytes, ClientState]:
    """Return an update's model decoded and encoded, both as bytes, and what rounding left out, for the client's state.

    Args:
        kept: The client's state, with the errors of its last committed update.
    """
    table = read_header(io.BytesIO(to_bytes(model)))
    errors = {name.removeprefix(ERROR): array for name, array in (kept or {}).items() if name.startswith(ERROR)}
    decoded, left_out = {name: np.empty(array.shape, array.dtype) for name, array in model.items()}, dict[str, Array]()

    def read(entry: TensorEntry, first: int, count: int) -> tuple[Array, Array]:
        block = model[entry.name].reshape(-1)[first : first + count]
        begin = start[entry.name].reshape(-1)[first : first + count]
        if is_encoded(entry.dtype, entry.shape):
            block = block.astype(np.float64)
            if entry.name in errors:
                block += errors[entry.name].reshape(-1)[first : first + count]
        return block, begin

    parts, places = [beginning(section.precision)], dict.fromkeys(model, 0)
    for piece in encoding(table, section.precision, read):
        name, first = piece.entry.name, places[piece.entry.name]
        places[name] = last = first + len(piece.model)
        parts.append(piece.data)
        decoded[name].reshape(-1)[first:last] = piece.model
        if is_encoded(piece.entry.dtype, piece.entry.shape):
            rest = left_out.setdefault(ERROR + name, np.empty(piece.entry.shape, np.float32))
            rest.reshape(-1)[first:last] = piece.target - piece.model
    return to_bytes(decoded), b"".join(parts), left_out


def decoded_model(data: bytes, start: bytes, blob: BlobRef, section: WireSection) -> bytes | None:
    """Return the bytes of a model that came encoded; None where they are not those of its name.

    Args:
        start: The model that the round began with, as this client holds it.
    """
    table = read_header(io.BytesIO(start))
    if len(data) != encoded_size(table.schema, section.precision):
        return None
    file, parts = io.BytesIO(data), [table.header]

    def read_start(entry: TensorEntry, first: int, count: int) -> Array:
        return np.frombuffer(start, "<f4", count, entry.begin + 4 * first)

    try:
        parts += (block.tobytes() for block in decoding(table, section.precision, file.read, read_start))
    except MalformedUpdate:
        return None
    whole = b"".join(parts)
    return whole if sha256_hex(whole) == blob.sha256 else None
