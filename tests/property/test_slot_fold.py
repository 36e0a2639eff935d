"""The fold with slots: one pass, any block size, parameters by the method's slot fold and all else by its fold."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.computation.fold import WeightedModel
from fedplcc.aggregator.computation.reading_ahead import AHEAD as READ_AHEAD
from fedplcc.aggregator.computation.slot_fold import SlotInputs, fold_with_slots
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.maths import weighted_mean
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.slots import ServerSlots, ServerView
from fedplcc.shared.tensors import from_bytes, read_header, sha256_hex, to_bytes
from tests.property.test_fold import written
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.ahead_method import METHOD as AHEAD


def peak_bytes(num_clients: int, num_elements: int, block_elements: int = 1 << 14) -> int:
    """Most memory that a fold with two slots holds at a time."""
    with memory_folder() as folder:
        path = written(Path(folder), to_bytes({"w": np.ones(num_elements, np.float32)}))
        with path.open("rb") as file:
            table = read_header(file)
        inputs = SlotInputs(table=table, parameters=[0], start=path, slots={}, view=VIEW)
        updates = [WeightedModel(path, 1.0 + index) for index in range(num_clients)]
        tracemalloc.start()
        try:
            for _pieces in fold_with_slots(inputs, updates, FEDOPT, ADAM, block_elements):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


Model = dict[str, npt.NDArray[Any]]
FEDOPT = METHODS["fedopt"]
ADAM = FEDOPT.config()
VIEW = ServerView(round=2, num_eligible=3)
IS_TRAINED = ("a", "c.weight", "d")
"""Names of the trained tensors; `b` and `c.mean` are buffers, `n` counts."""


def a_model(seed: int) -> Model:
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"a": (3, 2), "b": (4,), "c.mean": (5,), "c.weight": (), "d": (2, 7)}
    return {
        **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()},
        "n": rng.integers(0, 99, 2),
        "e": np.zeros((0, 3), np.float32),
    }


def folded(
    models: Sequence[Model],
    counts: Sequence[float],
    slots: Mapping[str, bytes] | None = None,
    *,
    method: Method = FEDOPT,
    config: MethodConfig = ADAM,
    block_elements: int = 1 << 18,
) -> dict[str, bytes]:
    """Every blob that the fold makes of these models, the first of which is the start."""
    with memory_folder() as folder:
        paths = [written(Path(folder), to_bytes(model)) for model in models]
        kept = {name: written(Path(folder), data) for name, data in (slots or {}).items()}
        table = read_header(io.BytesIO(to_bytes(models[0])))
        parameters = [place for place, entry in enumerate(table.entries) if entry.name in IS_TRAINED]
        inputs = SlotInputs(table=table, parameters=parameters, start=paths[0], slots=kept, view=VIEW)
        updates = [WeightedModel(path, count) for path, count in zip(paths[1:], counts, strict=True)]
        made: dict[str, bytes] = {}
        for pieces in fold_with_slots(inputs, updates, method, config, block_elements):
            for name, piece in pieces.items():
                made[name] = made.get(name, b"") + bytes(piece)
        return made


@given(st.integers(0, 99), st.integers(1, 30))
def test_any_block_size_gives_the_same_bytes_of_model_and_slots(seed: int, block_elements: int) -> None:
    models = [a_model(seed + index) for index in range(4)]
    first = folded(models, [3, 1, 2])
    slots = {name: first[name] for name in ("m", "v")}
    assert folded(models, [3, 1, 2], slots, block_elements=block_elements) == folded(models, [3, 1, 2], slots)


def test_parameters_take_the_slot_fold_and_all_else_the_fold() -> None:
    start, *updates = models = [a_model(seed) for seed in range(3)]
    made = folded(models, [3, 1])
    result = from_bytes(made["model"])
    part = FEDOPT.part(ServerSlots)
    assert part is not None
    for name, value in start.items():
        blocks = [update[name] for update in updates]
        if name not in IS_TRAINED:
            assert result[name].tobytes() == weighted_mean(blocks, [3, 1]).tobytes()
            continue
        slots = {slot: np.full(value.shape, first, np.float32) for slot, first in FEDOPT.server_slots(ADAM).items()}
        right = part.fold(value, iter(blocks), [3, 1], slots, VIEW, ADAM)
        assert result[name].tobytes() == right.result.tobytes()
        assert {slot: from_bytes(made[slot])[name].tobytes() for slot in slots} == {
            slot: block.tobytes() for slot, block in right.slots.items()
        }


def test_a_slot_is_laid_out_as_the_trained_tensors_alone_are() -> None:
    made = folded([a_model(0), a_model(1)], [1])
    arrays = {name: value for name, value in a_model(0).items() if name in IS_TRAINED}
    for name in ("m", "v"):
        assert list(from_bytes(made[name])) == list(from_bytes(to_bytes(arrays)))
        assert to_bytes(from_bytes(made[name])) == made[name]


def test_the_next_start_differs_from_the_result_in_parameters_alone() -> None:
    made = folded([a_model(0), a_model(1)], [1], method=AHEAD, config=AHEAD.config())
    result, start = from_bytes(made["model"]), from_bytes(made["start"])
    differing = {name for name, value in result.items() if start[name].tobytes() != value.tobytes()}
    assert differing == set(IS_TRAINED)
    way = from_bytes(made["way"])
    for name in IS_TRAINED:
        exact = (a_model(1)[name].astype(np.float64) - a_model(0)[name]) / VIEW.num_eligible
        assert way[name].tobytes() == exact.astype(np.float32).tobytes()


def test_a_slot_that_is_gone_or_short_is_named() -> None:
    models = [a_model(0), a_model(1)]
    slots = {name: data for name, data in folded(models, [1]).items() if name != "model"}
    short = slots["v"][:-4]
    with pytest.raises(PayloadCorrupt) as refused:
        folded(models, [1], {**slots, "v": short})
    assert refused.value.metadata == {"sha256": sha256_hex(short)}


def test_memory_grows_neither_with_the_clients_nor_with_the_model() -> None:
    small = peak_bytes(num_clients=2, num_elements=1 << 16)
    assert peak_bytes(num_clients=100, num_elements=1 << 16) < small + 100_000
    ahead = (READ_AHEAD + 1) * 4 * (1 << 14)
    assert peak_bytes(num_clients=2, num_elements=1 << 21) < small + ahead + 100_000
    assert small < 160 * (1 << 14)
