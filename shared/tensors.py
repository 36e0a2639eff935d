"""Named arrays as safetensors bytes, the one format in which tensors are sent and stored. Nothing is ever unpickled.

Only float32 and int64, little endian, without `__metadata__` (its key order is not stable): equal arrays give equal bytes,
and the SHA-256 of the bytes names the content. A blob from outside is read by its header first: `read_header` checks every
claim of the header and returns the place of each tensor, so that a blob of any size can be checked and folded by blocks.
Files are read by seek and read, never by memory map.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import BlobRef, PrototypeSet

Array = npt.NDArray[Any]
Schema = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape by tensor name; two compatible models have equal schemas."""

DTYPES: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "I64": np.dtype("<i8")}
"""Allowed dtypes, by their names in a safetensors header."""

MAX_HEADER_BYTES = 2**20
"""Largest header accepted from outside: about 10,000 tensors."""
MAX_NAME_CHARACTERS = 256
"""Longest name of a tensor accepted from outside."""
MAX_DIMENSIONS = 32
"""Most dimensions of a tensor."""

_LENGTH_BYTES = 8
_LARGEST = 2**56
"""Bound on sizes, larger than any file; products stay within numpy's index range even where another dimension is 0."""
_PROTOTYPE_TENSORS = {"vectors": ("F32", 2), "class_ids": ("I64", 1), "weights": ("F32", 1), "group_ids": ("I64", 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Place of one tensor in a file: bytes `begin` to `end`, counted from the file's first byte."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_elements(self) -> int:
        """Elements of the tensor; 1 for a scalar."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTable:
    """Table of contents of a safetensors file, in file order.

    Attributes:
        entries: Places of the tensors; each begins where the previous one ends, the last ends with the file.
        header: The file's first bytes. A file of these bytes followed by other tensors has the same layout.
    """

    entries: tuple[TensorEntry, ...]
    header: bytes
    size_bytes: int

    @property
    def schema(self) -> Schema:
        """Dtype and shape by name."""
        return {entry.name: (entry.dtype, entry.shape) for entry in self.entries}


def sha256_hex(data: bytes | memoryview) -> str:
    """Return the lowercase hexadecimal SHA-256 of the bytes, which names a blob."""
    return hashlib.sha256(data).hexdigest()


def blob_ref(role: str, data: bytes | memoryview) -> BlobRef:
    """Return the reference of a blob with this role and these bytes."""
    return BlobRef(role, sha256_hex(data), len(data))


def to_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Serialise named arrays; the order of the mapping and the memory layout of the arrays do not matter.

    Args:
        arrays: float32 or int64 by name, at least one; no name may be `__metadata__`.

    Raises:
        ValueError: Another dtype, no array, or a forbidden name.
    """
    if not arrays:
        raise ValueError("there is no tensor to serialise")
    dense = {}
    for name, array in arrays.items():
        if array.dtype not in DTYPES.values():
            raise ValueError(f"tensor {name!r} is {array.dtype}; only float32 and int64 travel")
        if name == "__metadata__" or not _is_name(name):
            raise ValueError(f"{name!r} is no name for a tensor")
        dense[name] = np.asarray(array, order="C")
    return bytes(save(dense))


def from_bytes(data: bytes | memoryview) -> dict[str, Array]:
    """Read named arrays, in file order; they are read-only views of `data`.

    Raises:
        MalformedUpdate: The bytes are not such a file; see `read_header`.
    """
    table = read_header(io.BytesIO(data))
    return {
        entry.name: np.frombuffer(data, DTYPES[entry.dtype], entry.num_elements, entry.begin).reshape(entry.shape)
        for entry in table.entries
    }


def check_schema(found: Schema, expected: Schema) -> None:
    """Check that tensors have the names, dtypes and shapes of the model.

    Raises:
        MalformedUpdate: They differ; `metadata["check"]` is "keys", "dtype" or "shape", `metadata["tensor"]` the first
            tensor that differs.
    """
    missing, extra = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or extra:
        what = f"lacks tensor {missing[0]!r}" if missing else f"has a tensor {extra[0]!r} that is not in the model"
        count = f" ({len(missing)} missing, {len(extra)} extra)" if len(missing) + len(extra) > 1 else ""
        raise MalformedUpdate(f"the tensor group {what}{count}", check="keys", tensor=(missing or extra)[0])
    for name, (dtype, shape) in expected.items():
        found_dtype, found_shape = found[name]
        if found_dtype != dtype:
            raise MalformedUpdate(f"tensor {name!r} is {found_dtype}, not {dtype}", check="dtype", tensor=name)
        if found_shape != shape:
            raise MalformedUpdate(
                f"tensor {name!r} has shape {list(found_shape)}, not {list(shape)}", check="shape", tensor=name
            )


def read_header(file: BinaryIO) -> TensorTable:
    """Read and check a file's safetensors header; the tensors may be larger than memory.

    On return, every tensor has exactly the bytes that its shape and dtype need, and the tensors follow one another without a
    gap or an overlap from the header to the end of the file.

    Raises:
        MalformedUpdate: The header is wrong. `metadata["check"]` is "header" (length, JSON, structure, duplicate names,
            `__metadata__`), "dtype", "shape" or "offsets".
    """
    size_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    prefix = file.read(_LENGTH_BYTES)
    if len(prefix) < _LENGTH_BYTES:
        raise malformed("header", "the blob is too short for a safetensors header")
    length = int.from_bytes(prefix, "little")
    if length > min(size_bytes - _LENGTH_BYTES, MAX_HEADER_BYTES):
        raise malformed("header", "the header's length is beyond the blob or over the limit")
    text = file.read(length)
    if len(text) < length:
        raise malformed("header", "the blob ends within its header")
    document = _parse_json(text)
    if "__metadata__" in document:
        raise malformed("header", "the header has __metadata__, which does not travel")
    if not document:
        raise malformed("header", "the blob holds no tensor")
    data_begin = _LENGTH_BYTES + length
    entries = sorted(
        (_entry(name, fields, data_begin) for name, fields in document.items()),
        key=lambda entry: (entry.begin, entry.end, entry.name),
    )
    position = data_begin
    for entry in entries:
        if entry.begin != position:
            raise malformed("offsets", f"tensor {entry.name!r} does not begin where the one before it ends")
        position = entry.end
    if position != size_bytes:
        raise malformed("offsets", "the tensors do not end where the blob ends")
    return TensorTable(entries=tuple(entries), header=prefix + text, size_bytes=size_bytes)


def read_blocks(file: BinaryIO, entry: TensorEntry, block_elements: int) -> Iterator[Array]:
    """Yield a tensor's elements in order, as flat arrays of `block_elements` elements, the last one shorter.

    The file may be used between two blocks: each block seeks first.

    Raises:
        MalformedUpdate: The file ended before the tensor did.
    """
    dtype = DTYPES[entry.dtype]
    for first in range(0, entry.num_elements, block_elements):
        count = min(block_elements, entry.num_elements - first)
        file.seek(entry.begin + first * dtype.itemsize)
        data = file.read(count * dtype.itemsize)
        if len(data) != count * dtype.itemsize:
            raise malformed("offsets", f"the blob ends within tensor {entry.name!r}")
        yield np.frombuffer(data, dtype)


def laid_out(schema: Schema) -> TensorTable:
    """Return the table of a file that holds tensors of these names, dtypes and shapes one after the other, in this order."""
    entries, position = [], 0
    for name, (dtype, shape) in schema.items():
        end = position + math.prod(shape) * DTYPES[dtype].itemsize
        entries.append(TensorEntry(name=name, dtype=dtype, shape=shape, begin=position, end=end))
        position = end
    fields = {
        entry.name: {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [entry.begin, entry.end]}
        for entry in entries
    }
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    begin = _LENGTH_BYTES + len(text)
    return TensorTable(
        entries=tuple(replace(entry, begin=begin + entry.begin, end=begin + entry.end) for entry in entries),
        header=len(text).to_bytes(_LENGTH_BYTES, "little") + text,
        size_bytes=begin + position,
    )


def chunks(data: bytes, chunk_bytes: int, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield `(offset, piece)` from `offset` to the end, each piece of `chunk_bytes` bytes, the last one shorter."""
    for begin in range(offset, len(data), chunk_bytes):
        yield begin, data[begin : begin + chunk_bytes]


def prototypes_to_bytes(prototypes: PrototypeSet) -> bytes:
    """Serialise a prototype set as four tensors; it may be empty."""
    return to_bytes({name: getattr(prototypes, name) for name in _PROTOTYPE_TENSORS})


def prototypes_from_bytes(data: bytes | memoryview) -> PrototypeSet:
    """Read a prototype set.

    Only the structure is checked here; values (finite, in range, consistent) are checked where they are used.

    Raises:
        MalformedUpdate: Other tensors than the four, or wrong dtypes, dimensions or numbers of rows.
    """
    arrays = from_bytes(data)
    if arrays.keys() != _PROTOTYPE_TENSORS.keys():
        raise malformed("keys", f"a prototype set has the tensors {', '.join(_PROTOTYPE_TENSORS)} and no other")
    for name, (dtype, dimensions) in _PROTOTYPE_TENSORS.items():
        array = arrays[name]
        if array.dtype != DTYPES[dtype]:
            raise malformed("dtype", f"prototype tensor {name!r} is {array.dtype}, not {DTYPES[dtype]}")
        if array.ndim != dimensions or array.shape[0] != arrays["class_ids"].size:
            raise malformed("shape", f"prototype tensor {name!r} has shape {list(array.shape)}")
    return PrototypeSet(**arrays)


def _parse_json(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a name occurs twice")
        return table

    try:
        document = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise malformed("header", "the header is not JSON with unique names") from error
    if not isinstance(document, dict):
        raise malformed("header", "the header is not a JSON object")
    return document


def _entry(name: str, fields: Any, data_begin: int) -> TensorEntry:
    if not _is_name(name):
        raise malformed("header", "a tensor has no printable name of at most 256 characters")
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        raise malformed("header", f"tensor {name!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise malformed("dtype", f"tensor {name!r} is neither F32 nor I64")
    if not _are_sizes(shape) or len(shape) > MAX_DIMENSIONS or math.prod(max(size, 1) for size in shape) > _LARGEST:
        raise malformed("shape", f"tensor {name!r} has no possible shape")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise malformed("offsets", f"tensor {name!r} has no pair of offsets")
    begin, end = offsets
    if end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise malformed("offsets", f"the bytes of tensor {name!r} disagree with its shape")
    return TensorEntry(name=name, dtype=dtype, shape=tuple(shape), begin=data_begin + begin, end=data_begin + end)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable()


def _are_sizes(values: Any) -> bool:
    """Whether this is a list of possible sizes; a bool, which Python counts as an int, is none."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value <= _LARGEST for value in values)


def malformed(check: str, detail: str) -> MalformedUpdate:
    """Return the refusal by this check."""
    return MalformedUpdate(detail, check=check)
