"""Checks of an uploaded model and of its step, block by block."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedplcc.aggregator.computation.checked import Content, malformed
from fedplcc.shared.errors import UpdateNormExceeded
from fedplcc.shared.tensors import (
    DTYPES,
    TensorEntry,
    TensorTable,
    check_schema,
    read_blocks,
    read_header,
)

SMALL_BYTES = 1 << 18
"""Most bytes of a model that is read as one to measure its norm."""
BLOCK_ELEMENTS = 1 << 18
MAX_STEP_NORM = 1e18
"""Largest norm of an update's step, and of a first model, in any run: squares and products of larger weights are infinite in
float32, so no client could train on them."""


def check_model(model: Content, expected: TensorTable | None) -> TensorTable:
    """Check a model blob: a correct header, the run's layout, finite numbers.

    Args:
        expected: Layout of the run's model; None for the first model, which sets it.

    Raises:
        MalformedUpdate: check is header, keys, dtype, shape, offsets, layout, elements or finite.
    """
    with model.open("rb") as file:
        table = _expected_header(file, expected) or read_header(file)
        if expected is not None and table is not expected:
            check_schema(table.schema, expected.schema)
            # Tensors without elements may stand in another order: all others are where they are to be.
            if set(table.entries) != set(expected.entries):
                raise malformed("layout", "the model's tensors are not laid out as the global model's")
        if expected is None and not any(entry.num_elements for entry in table.entries):
            raise malformed("elements", "no tensor of the model has an element")
        for dtype, neighbours in groupby(table.entries, key=lambda entry: entry.dtype):
            if np.issubdtype(DTYPES[dtype], np.floating):
                _check_finite_tensors(file, list(neighbours))
    return table


def _check_finite_tensors(file: BinaryIO, entries: Sequence[TensorEntry]) -> None:
    """Check tensors of one dtype that lie one behind the other; read as one, because a small model has many tiny ones."""
    whole = replace(entries[0], shape=(sum(entry.num_elements for entry in entries),), end=entries[-1].end)
    if all(np.isfinite(block).all() for block in read_blocks(file, whole, BLOCK_ELEMENTS)):
        return
    for entry in entries:
        if not all(np.isfinite(block).all() for block in read_blocks(file, entry, BLOCK_ELEMENTS)):
            raise malformed("finite", f"tensor {entry.name!r} has a value that is NaN or infinite")


def _expected_header(file: BinaryIO, expected: TensorTable | None) -> TensorTable | None:
    """Return the expected table if the file has exactly its header and size, as every good update has; saves parsing."""
    if expected is None or file.seek(0, io.SEEK_END) != expected.size_bytes:
        return None
    file.seek(0)
    return expected if file.read(len(expected.header)) == expected.header else None


def update_norm(model: Content, start: Path, table: TensorTable) -> float:
    """Return ||w - w_t||, the L2 norm of the difference over all floating-point tensors together, in float64.

    Models are read block by block, so memory does not depend on their size. No sum of squares of finite float32 values
    overflows.

    Args:
        model: The local model w, its layout and finiteness checked.
        start: The global model w_t, of the same layout; it may have further tensors, which clients keep for themselves.
    """
    total = 0.0
    with model.open("rb") as file, start.open("rb") as other:
        is_alike = other.seek(0, io.SEEK_END) == table.size_bytes
        if is_alike and table.size_bytes <= SMALL_BYTES:
            other.seek(0)
            return _small_norm(file.read(), other.read(), table)
        places = {entry.name: entry for entry in (table if is_alike else read_header(other)).entries}
        for entry in table.entries:
            if not np.issubdtype(DTYPES[entry.dtype], np.floating):
                continue
            blocks = zip(
                read_blocks(file, entry, BLOCK_ELEMENTS),
                read_blocks(other, places[entry.name], BLOCK_ELEMENTS),
                strict=True,
            )
            for block, start_block in blocks:
                difference = np.subtract(block, start_block, dtype=np.float64)
                total += float(np.square(difference, out=difference).sum())
    return math.sqrt(total)


def _small_norm(model: bytes, start: bytes, table: TensorTable) -> float:
    """Return the same number, rounding included, of two small files that are laid out alike: tiny tensors cost little."""
    total = 0.0
    for name, neighbours in groupby(table.entries, key=lambda entry: entry.dtype):
        dtype, entries = DTYPES[name], list(neighbours)
        if not np.issubdtype(dtype, np.floating):
            continue
        ends = np.cumsum([entry.num_elements for entry in entries]).tolist()
        values, start_values = (np.frombuffer(each, dtype, ends[-1], entries[0].begin) for each in (model, start))
        squares = np.subtract(values, start_values, dtype=np.float64)
        np.square(squares, out=squares)
        for begin, end in pairwise([0, *ends]):
            total += float(np.add.reduce(squares[begin:end]))
    return math.sqrt(total)


def model_norm(model: Content, table: TensorTable) -> float:
    """Return the L2 norm of a model over all floating-point tensors together, in float64, read block by block."""
    total = 0.0
    with model.open("rb") as file:
        for entry in table.entries:
            if np.issubdtype(DTYPES[entry.dtype], np.floating):
                for block in read_blocks(file, entry, BLOCK_ELEMENTS):
                    total += float(np.square(block, dtype=np.float64).sum())
    return math.sqrt(total)


def check_norm(norm: float | None, most: float) -> None:
    """Check the norm of an update, if it was measured.

    Raises:
        UpdateNormExceeded: The norm is larger than `most`; the metadata have both.
    """
    if norm is not None and norm > most:
        raise UpdateNormExceeded(
            f"the update's norm is {norm:.6g}; the run takes up to {most:g} (admission.max_update_norm)",
            check="norm",
            norm=f"{norm:.9g}",
            max_update_norm=f"{most:.9g}",
        )


def check_size_of_step(norm: float | None, what: str = "the update") -> None:
    """Check that a model can be trained on in float32.

    Args:
        norm: L2 norm of an update's step, or of the first model.

    Raises:
        UpdateNormExceeded: The norm is larger than `MAX_STEP_NORM`.
    """
    if norm is not None and not norm <= MAX_STEP_NORM:
        raise UpdateNormExceeded(
            f"{what} diverged: its norm is {norm:.6g}; beyond {MAX_STEP_NORM:g} float32 cannot compute with it in any run",
            check="norm",
            norm=f"{norm:.9g}",
            max_update_norm=f"{MAX_STEP_NORM:.9g}",
        )
