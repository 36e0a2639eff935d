import io
import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from fedplcc.shared import tensors
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.types import PrototypeSet

MODEL: dict[str, Any] = {
    "layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.array([1.5, -2.0], dtype=np.float32),
    "steps": np.array(7, dtype=np.int64),
}


def a_file(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def a_tensor(dtype: object = "F32", shape: Sequence[float] = (1,), offsets: Sequence[int] = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def check_of(data: bytes) -> str:
    with pytest.raises(MalformedUpdate) as refusal:
        tensors.read_header(io.BytesIO(data))
    return refusal.value.metadata["check"]


def test_bytes_depend_neither_on_the_order_of_names_nor_on_the_memory_layout() -> None:
    turned = {name: np.asarray(array, order="F") for name, array in reversed(MODEL.items())}
    strided = {**turned, "layer.weight": np.repeat(MODEL["layer.weight"], 2, axis=1)[:, ::2]}
    assert tensors.to_bytes(turned) == tensors.to_bytes(MODEL) == tensors.to_bytes(strided)


def test_other_readers_of_the_format_read_the_bytes() -> None:
    back = safetensors.numpy.load(tensors.to_bytes(MODEL))
    np.testing.assert_array_equal(back["layer.weight"], MODEL["layer.weight"])


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"x": np.zeros(2)},
        {"x": np.zeros(2, np.float16)},
        {"__metadata__": np.zeros(2, np.float32)},
        {"": np.zeros(2, np.float32)},
        {"x" * 300: np.zeros(2, np.float32)},
    ],
)
def test_what_may_not_travel_is_refused_before_it_leaves(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"tensor|dtype|name"):
        tensors.to_bytes(arrays)


def test_a_file_that_shrinks_while_it_is_read_is_refused() -> None:
    data = tensors.to_bytes(MODEL)
    table = tensors.read_header(io.BytesIO(data))
    with pytest.raises(MalformedUpdate, match="ends within tensor"):
        list(tensors.read_blocks(io.BytesIO(data[:-1]), table.entries[-1], 4))


@pytest.mark.parametrize(
    ("data", "check"),
    [
        (b"", "header"),
        (b"\x01\x00", "header"),
        (a_file({"x": a_tensor()}, b"\0" * 4, length=10_000), "header"),
        (a_file({"x": a_tensor()}, b"\0" * 4, length=2**64 - 1), "header"),
        (a_file(b"{" + b" " * tensors.MAX_HEADER_BYTES + b"}"), "header"),
        (a_file(b"not json"), "header"),
        (a_file(b"\xff\xfe"), "header"),
        (a_file(b"[" * 100_000), "header"),
        (a_file(b"[]"), "header"),
        (a_file({}), "header"),
        (a_file({"__metadata__": {"format": "pt"}, "x": a_tensor()}, b"\0" * 4), "header"),
        (a_file(b'{"x": %s, "x": %s}' % ((json.dumps(a_tensor()).encode(),) * 2), b"\0" * 4), "header"),
        (a_file({"x": {**a_tensor(), "more": 1}}, b"\0" * 4), "header"),
        (a_file({"x": 1}), "header"),
        (a_file({"": a_tensor()}, b"\0" * 4), "header"),
        (a_file({"\ud800": a_tensor()}, b"\0" * 4), "header"),
        (a_file({"x" * 1000: a_tensor()}, b"\0" * 4), "header"),
        (a_file({"x": a_tensor("F64", (1,), (0, 8))}, b"\0" * 8), "dtype"),
        (a_file({"x": a_tensor(["F32"])}, b"\0" * 4), "dtype"),
        (a_file({"x": a_tensor(shape=(-1,))}, b"\0" * 4), "shape"),
        (a_file({"x": a_tensor(shape=(True,))}, b"\0" * 4), "shape"),
        (a_file({"x": a_tensor(shape=(1.0,))}, b"\0" * 4), "shape"),
        (a_file({"x": a_tensor(shape=(2**60,))}, b"\0" * 4), "shape"),
        (a_file({"x": a_tensor(shape=(0, 2**40, 2**40), offsets=(0, 0))}), "shape"),
        (a_file({"x": a_tensor(shape=(1,) * 33)}, b"\0" * 4), "shape"),
        (a_file({"x": {**a_tensor(), "shape": 4}}, b"\0" * 4), "shape"),
        (a_file({"x": a_tensor(offsets=(0, 3))}, b"\0" * 3), "offsets"),
        (a_file({"x": a_tensor(offsets=(0, 4, 8))}, b"\0" * 4), "offsets"),
        (a_file({"x": a_tensor(offsets=(4, 0))}, b"\0" * 4), "offsets"),
        (a_file({"x": a_tensor(offsets=(4, 8))}, b"\0" * 8), "offsets"),
        (a_file({"x": a_tensor(), "y": a_tensor()}, b"\0" * 4), "offsets"),
        (a_file({"x": a_tensor(), "y": a_tensor(offsets=(8, 12))}, b"\0" * 12), "offsets"),
        (a_file({"x": a_tensor()}, b"\0" * 5), "offsets"),
        (a_file({"x": a_tensor()}, b"\0" * 3), "offsets"),
    ],
)
def test_a_header_that_lies_is_refused_under_the_name_of_the_check(data: bytes, check: str) -> None:
    assert check_of(data) == check


def test_a_tensor_without_elements_may_stand_anywhere() -> None:
    arrays: dict[str, Any] = {
        "a": np.zeros((0, 3), np.float32),
        "b": np.ones(1, np.float32),
        "c": np.zeros((2, 0), np.int64),
    }
    back = tensors.from_bytes(tensors.to_bytes(arrays))
    assert {name: array.shape for name, array in back.items()} == {"a": (0, 3), "b": (1,), "c": (2, 0)}


@pytest.mark.parametrize(
    ("found", "check", "tensor"),
    [
        ({"bias": ("F32", (2,))}, "keys", "steps"),
        ({"bias": ("F32", (2,)), "steps": ("I64", ()), "head": ("F32", (2,))}, "keys", "head"),
        ({"bias": ("I64", (2,)), "steps": ("I64", ())}, "dtype", "bias"),
        ({"bias": ("F32", (2, 1)), "steps": ("I64", ())}, "shape", "bias"),
    ],
)
def test_another_model_is_refused_with_the_tensor_that_differs(
    found: dict[str, tuple[str, tuple[int, ...]]], check: str, tensor: str
) -> None:
    expected = {"bias": ("F32", (2,)), "steps": ("I64", ())}
    with pytest.raises(MalformedUpdate, match=tensor) as refusal:
        tensors.check_schema(found, expected)
    assert refusal.value.metadata == {"check": check, "tensor": tensor}
    tensors.check_schema(expected, expected)


def test_an_empty_prototype_set_keeps_its_dimension() -> None:
    assert tensors.prototypes_from_bytes(tensors.prototypes_to_bytes(PrototypeSet.empty(512))).vectors.shape == (0, 512)


GOOD_SET: dict[str, np.ndarray] = {
    "vectors": np.zeros((2, 3), np.float32),
    "class_ids": np.zeros(2, np.int64),
    "weights": np.ones(2, np.float32),
    "group_ids": np.zeros(2, np.int64),
}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"weights": None}, "keys"),
        ({"more": np.zeros(2, np.float32)}, "keys"),
        ({"class_ids": np.zeros(2, np.float32)}, "dtype"),
        ({"vectors": np.zeros((2, 3), np.int64)}, "dtype"),
        ({"vectors": np.zeros(2, np.float32)}, "shape"),
        ({"vectors": np.zeros((3, 3), np.float32)}, "shape"),
        ({"weights": np.ones((2, 1), np.float32)}, "shape"),
        ({"weights": np.ones(1, np.float32)}, "shape"),
        ({"class_ids": np.array(0, np.int64)}, "shape"),
        ({"group_ids": np.zeros(3, np.int64)}, "shape"),
    ],
)
def test_a_prototype_set_of_another_structure_is_refused(change: dict[str, np.ndarray | None], check: str) -> None:
    changed: dict[str, np.ndarray | None] = {**GOOD_SET, **change}
    arrays = {name: array for name, array in changed.items() if array is not None}
    with pytest.raises(MalformedUpdate) as refusal:
        tensors.prototypes_from_bytes(tensors.to_bytes(arrays))
    assert refusal.value.metadata["check"] == check
