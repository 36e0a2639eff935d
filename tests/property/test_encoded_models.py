"""Encoded models: bounded errors that are lost in no sum, sizes that are known beforehand, hostile files refused."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedplcc.shared import encoded_models
from fedplcc.shared.config.tables.wire import WireSection
from fedplcc.shared.encoded_models import Piece, Precision, beginning, decoding, encoded_size, encoding
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.tensors import Array, TensorEntry, TensorTable, from_bytes, read_header, to_bytes
from fedplcc.trainer.task.encoding import ERROR, encoded_update

PRECISIONS: tuple[Precision, ...] = ("bfloat16", "int8")
any_precision = pytest.mark.parametrize("precision", PRECISIONS)
numbers = st.floats(-(2.0**100), 2.0**100, width=32)
shapes = hnp.array_shapes(min_dims=2, max_dims=3, min_side=0, max_side=5)


@st.composite
def models(draw: st.DrawFn) -> dict[str, npt.NDArray[Any]]:
    """A model with what is encoded, what is not, and empty tensors; of tiny and of large numbers."""
    return {
        "a.weight": draw(hnp.arrays(np.float32, draw(shapes), elements=numbers)),
        "b.weight": draw(hnp.arrays(np.float32, (3, 4), elements=st.floats(-1, 1, width=32))),
        "bias": draw(hnp.arrays(np.float32, 3, elements=numbers)),
        "steps": np.array(draw(st.integers(0, 2**40)), np.int64),
    }


def table_of(model: dict[str, Array]) -> TensorTable:
    return read_header(io.BytesIO(to_bytes(model)))


def block(model: dict[str, Array], entry: TensorEntry, first: int, count: int) -> Array:
    return model[entry.name].reshape(-1)[first : first + count]


def pieces(model: dict[str, Array], start: dict[str, Array], precision: Precision) -> list[Piece]:
    def read(entry: TensorEntry, first: int, count: int) -> tuple[Array, Array]:
        return block(model, entry, first, count), block(start, entry, first, count)

    return list(encoding(table_of(model), precision, read))


def file_of(found: list[Piece], precision: Precision) -> bytes:
    return beginning(precision) + b"".join(piece.data for piece in found)


def decoded(data: bytes, start: dict[str, Array], precision: Precision) -> dict[str, Array]:
    table = table_of(start)
    parts = decoding(table, precision, io.BytesIO(data).read, lambda *place: block(start, *place))
    return from_bytes(table.header + b"".join(part.tobytes() for part in parts))


@any_precision
@given(data=st.data())
def test_what_is_decoded_is_near_the_model_and_of_the_size_that_was_known(
    data: st.DataObject, precision: Precision
) -> None:
    model = data.draw(models())
    start = {
        name: array if array.dtype == np.int64 else data.draw(hnp.arrays(np.float32, array.shape, elements=numbers))
        for name, array in model.items()
    }
    found = pieces(model, start, precision)
    file = file_of(found, precision)
    assert len(file) == encoded_size(table_of(model).schema, precision)
    made = decoded(file, start, precision)
    assert to_bytes(made) == table_of(model).header + b"".join(piece.model.tobytes() for piece in found)
    assert file == file_of(pieces(dict(reversed(model.items())), start, precision), precision), "in any order"
    for name, array in model.items():
        if array.ndim < 2:
            np.testing.assert_array_equal(made[name], array)
        elif array.size:
            step = array.astype(np.float64) - start[name]
            rows = np.abs(step).reshape(len(step), -1)
            # Half a step of int8, or half a place of bfloat16's 8, and what float32 rounds in the sum and in the scale.
            most = rows.max(axis=1) / 254 if precision == "int8" else rows / 256
            slack = 1e-6 * (np.abs(array) + np.abs(start[name])).reshape(rows.shape) + 1e-4 * rows + 1e-37
            error = np.abs(made[name] - array.astype(np.float64)).reshape(rows.shape)
            assert (error <= np.broadcast_to(most.reshape(len(rows), -1), rows.shape) + slack).all()


@any_precision
def test_errors_that_are_fed_back_are_in_no_sum(precision: Precision) -> None:
    """After any number of updates the sum of what arrived is the sum of what was trained, but for the last error."""
    rng = np.random.default_rng(7)
    start = {"w": rng.normal(size=(6, 50)).astype(np.float32)}
    section, kept = WireSection(precision=precision), None
    arrived, trained, alone = np.zeros((3, 6, 50))
    for _ in range(200):
        step = {"w": (start["w"] + np.float32(1e-3) * rng.normal(0.1, 1, (6, 50))).astype(np.float32)}
        whole, _encoded, kept = encoded_update(step, start, kept, section)
        without, _encoded, _left_out = encoded_update(step, start, None, section)
        trained += step["w"].astype(np.float64) - start["w"]
        arrived += from_bytes(whole)["w"].astype(np.float64) - start["w"]
        alone += from_bytes(without)["w"].astype(np.float64) - start["w"]
    assert kept is not None
    np.testing.assert_allclose(arrived + kept[ERROR + "w"], trained, rtol=0, atol=1e-8)
    assert np.abs(trained - arrived).max() < np.abs(trained - alone).max() / 3, "rounding alone adds up"


@any_precision
def test_a_long_row_is_cut_and_blocks_are_whole_rows(monkeypatch: pytest.MonkeyPatch, precision: Precision) -> None:
    monkeypatch.setattr(encoded_models, "MAX_ROW", 8)
    monkeypatch.setattr(encoded_models, "BLOCK_ELEMENTS", 20)
    model = {"w": np.linspace(-1, 1, 63, dtype=np.float32).reshape(3, 21)}
    start = {"w": np.zeros((3, 21), np.float32)}
    found = pieces(model, start, precision)
    assert len(found) == 4, "16 numbers a block"
    file = file_of(found, precision)
    assert len(file) == encoded_size(table_of(model).schema, precision)
    np.testing.assert_allclose(decoded(file, start, precision)["w"], model["w"], atol=1 / 127)


@any_precision
@given(data=st.data())
def test_bytes_of_anybody_give_finite_numbers_or_a_named_refusal(data: st.DataObject, precision: Precision) -> None:
    start = {"w": np.zeros((2, 3), np.float32)}
    size = encoded_size(table_of(start).schema, precision)
    body = data.draw(st.binary(max_size=size + 4))
    file = data.draw(st.sampled_from([beginning(precision), b""])) + body
    with suppress(MalformedUpdate):
        assert np.isfinite(decoded(file, start, precision)["w"]).all()


@pytest.mark.parametrize(
    ("scale", "steps", "sentence"),
    [
        (np.nan, b"\0\0\0", "scale"),
        (np.inf, b"\0\0\0", "scale"),
        (-1.0, b"\0\0\0", "scale"),
        (3e37, b"\0\0\0", "scale"),
        (1.0, b"\x80\0\0", "beyond 127"),
        (1.0, b"\0\0", "ends too early"),
    ],
)
def test_a_wrong_scale_step_or_length_is_refused_by_name(scale: float, steps: bytes, sentence: str) -> None:
    start = {"w": np.zeros((1, 3), np.float32)}
    file = beginning("int8") + np.array([scale], "<f4").tobytes() + steps
    with pytest.raises(MalformedUpdate, match=sentence) as refused:
        decoded(file, start, "int8")
    assert refused.value.metadata["check"] == "encoding"


def test_an_unknown_code_and_infinity_are_refused_by_name() -> None:
    start = {"w": np.zeros((1, 3), np.float32)}
    with pytest.raises(MalformedUpdate, match="code of int8"):
        decoded(beginning("bfloat16") + bytes(7), start, "int8")
    with pytest.raises(MalformedUpdate, match="not finite"):
        decoded(beginning("bfloat16") + b"\x80\x7f" * 3, start, "bfloat16")
