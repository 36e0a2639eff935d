"""The fold is the exact weighted mean rounded once, whatever the block size and the order of arrival, in constant memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedplcc.aggregator.computation.aggregation import aggregate
from fedplcc.aggregator.computation.fold import WeightedModel, fold_models, sent_table
from fedplcc.aggregator.computation.model_checks import check_model
from fedplcc.aggregator.computation.reading_ahead import AHEAD
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared import tensors
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.tensors import from_bytes, to_bytes
from fedplcc.shared.types import LOCAL_CLUSTER, MODEL, Payload, PrototypeSet, RoundPhase, Run, Update
from tests.support.federation.numpy_client import a_config
from tests.support.hosts.memory_folder import memory_folder
from tests.support.records.builders import a_round, a_run

Model: TypeAlias = dict[str, npt.NDArray[Any]]
FEDAVG = METHODS["fedavg"]

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)
weights = st.lists(st.integers(1, 2**20), min_size=1, max_size=5)


def written(folder: Path, data: bytes) -> Path:
    """A file of these bytes, named by their SHA-256 as a stored blob is."""
    path = folder / tensors.sha256_hex(data)
    path.write_bytes(data)
    return path


def fold(models: Sequence[Model], counts: Sequence[float], *, block_elements: int = 1 << 18) -> bytes:
    """The next global model's blob from these models, weighted by these counts."""
    with memory_folder() as folder:
        paths = [written(Path(folder), tensors.to_bytes(model)) for model in models]
        with paths[0].open("rb") as file:
            table = tensors.read_header(file)
        updates = [WeightedModel(path, count) for path, count in zip(paths, counts, strict=True)]
        return b"".join(fold_models(table, paths[0], updates, FEDAVG, MethodConfig(), block_elements))


def fold_of_sent(models: Sequence[Model], counts: Sequence[float], withheld: Sequence[int], block: int) -> bytes:
    """The next global model's blob where updates lack the tensors at these places; the first model is the global one."""
    with memory_folder() as folder:
        path = written(Path(folder), tensors.to_bytes(models[0]))
        with path.open("rb") as file:
            table = tensors.read_header(file)
        kept = {table.entries[place].name for place in withheld}
        updates = []
        for model, count in zip(models, counts, strict=True):
            sent = tensors.to_bytes({name: array for name, array in model.items() if name not in kept})
            updates.append(WeightedModel(written(Path(folder), sent), count))
            assert set(check_model(updates[-1].path, sent_table(table, withheld)).schema) == model.keys() - kept
        return b"".join(fold_models(table, path, updates, FEDAVG, MethodConfig(), block, withheld))


def exact_mean(values: Sequence[np.float32], counts: Sequence[int]) -> Fraction:
    return sum((Fraction(float(x)) * n for x, n in zip(values, counts, strict=True)), Fraction()) / sum(counts)


def rounded(exact: Fraction) -> np.float32:
    """The float32 nearest to a rational, ties to even: one rounding, without a detour through float64."""
    largest = np.finfo(np.float32).max
    near = np.float32(max(-float(largest), min(float(largest), float(exact))))
    candidates = [near, np.nextafter(near, -largest), np.nextafter(near, largest)]
    return min(candidates, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))


@st.composite
def dyadic_models(draw: st.DrawFn) -> tuple[list[Model], list[int]]:
    """Models whose weighted sums are exact in float64, so that the mean has one right float32."""
    counts = draw(st.lists(st.integers(1, 2**10), min_size=1, max_size=8))
    size = draw(st.integers(1, 20))
    scale = 2.0 ** draw(st.integers(-40, 40))
    rows = draw(hnp.arrays(np.int64, (len(counts), size), elements=st.integers(-(2**23), 2**23)))
    return [{"w": (row * scale).astype(np.float32)} for row in rows], counts


@st.composite
def any_models(draw: st.DrawFn) -> tuple[list[Model], list[int]]:
    """Models of several tensors and dtypes, any finite values, and a weight for each."""
    counts = draw(weights)
    shapes = draw(st.lists(hnp.array_shapes(max_dims=3, max_side=4, min_side=0), min_size=1, max_size=4))
    kinds = draw(st.lists(st.sampled_from([np.float32, np.int64]), min_size=len(shapes), max_size=len(shapes)))
    elements = {np.float32: float32s, np.int64: st.integers(-(2**62), 2**62)}

    def model() -> Model:
        return {
            f"t{index}": draw(hnp.arrays(kind, shape, elements=elements[kind]))
            for index, (shape, kind) in enumerate(zip(shapes, kinds, strict=True))
        }

    return [model() for _ in counts], counts


@given(dyadic_models())
def test_floats_are_the_exact_mean_rounded_once(case: tuple[list[Model], list[int]]) -> None:
    models, counts = case
    found = tensors.from_bytes(fold(models, counts))["w"]
    expected = [rounded(exact_mean(column, counts)) for column in np.stack([model["w"] for model in models]).T]
    assert found.tolist() == [float(value) for value in expected]


@given(any_models())
def test_any_floats_are_within_the_float64_error_of_the_exact_mean(case: tuple[list[Model], list[int]]) -> None:
    models, counts = case
    found = from_bytes(fold(models, counts))
    for name, folded in found.items():
        if folded.dtype != np.float32:
            continue
        columns = np.stack([model[name].ravel() for model in models]).T
        for value, column in zip(folded.ravel(), columns, strict=True):
            exact = exact_mean(column, counts)
            slack = exact_mean(np.abs(column), counts) * (len(counts) + 1) / 2**53
            assert rounded(exact - slack) <= value <= rounded(exact + slack)


@given(any_models())
def test_integers_take_the_maximum(case: tuple[list[Model], list[int]]) -> None:
    models, counts = case
    found = from_bytes(fold(models, counts))
    for name, folded in found.items():
        if folded.dtype == np.int64:
            np.testing.assert_array_equal(folded, np.max([model[name] for model in models], axis=0))


@given(any_models(), st.integers(1, 70))
def test_the_block_size_changes_no_byte(case: tuple[list[Model], list[int]], block_elements: int) -> None:
    models, counts = case
    assert fold(models, counts, block_elements=block_elements) == fold(models, counts)


@given(any_models())
def test_the_result_is_laid_out_as_the_global_model(case: tuple[list[Model], list[int]]) -> None:
    models, counts = case
    result, start = fold(models, counts), to_bytes(models[0])
    assert len(result) == len(start)
    header_bytes = 8 + int.from_bytes(start[:8], "little")
    assert result[:header_bytes] == start[:header_bytes]


# Through the round's own door: updates in any order, models and prototypes

NAMES = ("abe", "ann", "bob", "zoe")


def a_collected_round(blobs: BlobStore, seed: int) -> tuple[Run, dict[str, Update]]:
    """A round whose four updates are stored, each with its own random model and prototypes."""
    rng = np.random.default_rng(seed)
    updates = {}
    for index, name in enumerate(NAMES):
        model = tensors.to_bytes({"w": rng.normal(size=(3, 5)).astype(np.float32), "n": np.array(index)})
        vectors = rng.random((4, 6)).astype(np.float32)
        prototypes = tensors.prototypes_to_bytes(PrototypeSet.of(vectors, [0, 0, 1, 2], [3, 1, 2, 1 + index]))
        blobs.put(MODEL, [model])
        blobs.put(LOCAL_CLUSTER, [prototypes])
        payload = Payload(
            tensor_groups=(tensors.blob_ref(MODEL, model),),
            prototype_sets=(tensors.blob_ref(LOCAL_CLUSTER, prototypes),),
        )
        updates[name] = Update(client_id=name, payload=payload, num_examples=7 + index)
    start = tensors.to_bytes({"w": np.zeros((3, 5), np.float32), "n": np.array(0)})
    config = a_config(method="fedplcc", clients=NAMES)
    run = a_run(method="fedplcc", config_json=config.canonical_json, roster=NAMES, model=blobs.put(MODEL, [start]))
    return run, updates


@given(st.permutations(NAMES), st.integers(0, 3), st.integers(1, 20))
def test_the_order_of_arrival_changes_no_byte(order: list[str], seed: int, block_elements: int) -> None:
    with memory_folder() as folder:
        blobs = BlobStore(Path(folder))
        run, updates = a_collected_round(blobs, seed)
        assert run.model is not None
        with blobs.open(run.model.sha256) as file:
            table = tensors.read_header(file)

        def result(names: Sequence[str], block: int) -> tuple[str, str]:
            arrived = {name: updates[name] for name in names}
            current = a_round(1, RoundPhase.AGGREGATING, cohort=NAMES, updates=arrived)
            collected = replace(run, current_round=current)
            made = aggregate(RoundInputs(run=collected, table=table, blobs=blobs, block_elements=block))
            return made.model.sha256, made.prototypes.sha256

        model_sha256, prototypes_sha256 = result(order, block_elements)
        assert (model_sha256, prototypes_sha256) == result(NAMES, 1 << 18)
        by_class = tensors.prototypes_from_bytes(blobs.read(prototypes_sha256))
        for class_id in range(3):
            assert by_class.weights[by_class.class_ids == class_id].sum() == pytest.approx(1.0)


# Memory and damage


def peak_bytes(num_clients: int, num_elements: int, block_elements: int = 1 << 14) -> int:
    """Most memory that a fold holds at a time."""
    with memory_folder() as folder:
        path = written(Path(folder), tensors.to_bytes({"w": np.ones(num_elements, np.float32)}))
        with path.open("rb") as file:
            table = tensors.read_header(file)
        updates = [WeightedModel(path, 1.0 + index) for index in range(num_clients)]
        tracemalloc.start()
        try:
            for _piece in fold_models(table, path, updates, FEDAVG, MethodConfig(), block_elements):
                pass
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_grows_neither_with_the_clients_nor_with_the_model() -> None:
    small = peak_bytes(num_clients=2, num_elements=1 << 16)
    assert peak_bytes(num_clients=100, num_elements=1 << 16) < small + 100_000
    # Of each element of a block: an update's, its product and the sum in float64, the result.
    assert small < 48 * (1 << 14)
    ahead = (AHEAD + 1) * 4 * (1 << 14)
    assert peak_bytes(num_clients=2, num_elements=1 << 21) < small + ahead + 100_000


@pytest.mark.parametrize("damage", ["gone", "short"])
def test_a_stored_model_that_was_damaged_is_named(tmp_path: Path, damage: str) -> None:
    paths = [tmp_path / name for name in ("start", "ann", "bob")]
    for path in paths:
        path.write_bytes(tensors.to_bytes({"w": np.ones(100, np.float32)}))
    with paths[0].open("rb") as file:
        table = tensors.read_header(file)
    if damage == "gone":
        paths[2].unlink()
    else:
        paths[2].write_bytes(paths[2].read_bytes()[:-4])
    updates = [WeightedModel(path, 1.0) for path in paths[1:]]
    with pytest.raises(PayloadCorrupt) as refused:
        list(fold_models(table, paths[0], updates, FEDAVG, MethodConfig(), 30))
    assert refused.value.metadata == {"sha256": "bob"}


@pytest.mark.parametrize("num_elements", [100, 1 << 19], ids=["small", "read ahead"])
@pytest.mark.parametrize("where", [0.0, 0.5, 1.0], ids=["header", "middle", "end"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_bit_that_flips_in_an_update_ends_the_fold(
    tmp_path: Path, num_elements: int, where: float, which: int
) -> None:
    values = np.linspace(-1, 1, num_elements, dtype=np.float32)
    paths = [written(tmp_path, tensors.to_bytes({"w": values * scale})) for scale in (1, 2, 3)]
    with paths[0].open("rb") as file:
        table = tensors.read_header(file)
    data = bytearray(paths[which].read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    paths[which].write_bytes(data)
    updates = [WeightedModel(path, 1.0) for path in paths]
    with pytest.raises(PayloadCorrupt) as refused:
        list(fold_models(table, paths[0], updates, FEDAVG, MethodConfig(), 1 << 14))
    assert refused.value.metadata == {"sha256": paths[which].name}


def test_a_fold_that_reads_the_global_model_or_leaves_updates_unread_checks_them_all(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 100, dtype=np.float32)
    start, update = (written(tmp_path, tensors.to_bytes({"w": values * scale})) for scale in (1, 2))
    with start.open("rb") as file:
        table = tensors.read_header(file)

    def keeping(read_state: Any, _blocks: Any, _weights: Any, _config: Any) -> Any:
        read_state()[:] = 0
        return read_state()

    method = replace(FEDAVG, fold=keeping)

    def fold_once() -> bytes:
        return b"".join(fold_models(table, start, [WeightedModel(update, 1.0)], method, MethodConfig(), 30))

    assert fold_once() == start.read_bytes()
    for path in (start, update):
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(PayloadCorrupt) as refused:
            fold_once()
        assert refused.value.metadata == {"sha256": path.name}
        path.write_bytes(whole)


@given(any_models(), st.data())
def test_tensors_that_no_update_has_stay_and_the_others_are_as_they_are_in_a_whole_fold(
    models_and_counts: tuple[list[Model], list[int]], data: st.DataObject
) -> None:
    models, counts = models_and_counts
    names = list(tensors.from_bytes(tensors.to_bytes(models[0])))
    places = data.draw(st.sets(st.integers(0, len(names) - 1), max_size=len(names) - 1))
    found = tensors.from_bytes(fold_of_sent(models, counts, sorted(places), data.draw(st.integers(1, 30))))
    whole = tensors.from_bytes(fold(models, counts))
    assert list(found) == names
    for place, name in enumerate(names):
        expected = models[0][name] if place in places else whole[name]
        assert found[name].tobytes() == expected.tobytes()
