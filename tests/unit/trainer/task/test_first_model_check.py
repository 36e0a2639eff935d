"""The run's first model is made at every site that begins with it, and compared: one member's word is not enough."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import FirstModelDiffers
from fedplcc.shared.tensors import from_bytes, to_bytes
from fedplcc.shared.types import FEATURE_DIM, MODEL, TENSOR_LISTS, Payload, RunSpec, Task, TaskKind, Update
from fedplcc.trainer.owner.consent import NO_CONSENT
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.models.first_model_check import TOLERANCE, difference
from fedplcc.trainer.task.models.latest_model import LatestModel
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_run

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    labels, images = np.array([0, 1] * 4), np.random.default_rng(0).integers(0, 255, (8, 16, 16, 3)).astype(np.uint8)
    return npz(tmp_path_factory.mktemp("data") / "x.npz", images, labels, ["a", "c"], tests=(images[:2], labels[:2]))


def a_site(data: str, folder: Path, name: str = "bob", latest_model: LatestModel | None = None) -> TaskRunner:
    states = ClientStates(folder / name)
    return TaskRunner(ClientSite.at(name, "hospital", data, consent=NO_CONSENT), states, latest_model=latest_model)


def made(data: str, folder: Path, run: RunSpec, given: bytes | None = None) -> tuple[Update, bytes]:
    """Round 0's update of one site and its model."""
    aggregator = MemoryAggregator()
    groups = () if given is None else (aggregator.offer(MODEL, given),)
    task = Task(kind=TaskKind.INIT, run=run, total_rounds=3, payload=Payload(tensor_groups=groups))
    a_site(data, folder, "ann").perform(task, aggregator)
    ((_, update),) = aggregator.updates
    return update, aggregator.stored[update.payload.tensor_group(MODEL).sha256][0]


def trained(data: str, folder: Path, run: RunSpec, model: bytes, number: int = 1, name: str = "bob") -> Update:
    """The update of another site that is told to train from a model."""
    aggregator = MemoryAggregator()
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, model),))
    task = Task(kind=TaskKind.TRAIN, run=run, round=number, total_rounds=3, payload=payload)
    a_site(data, folder, name).perform(task, aggregator)
    ((_, update),) = aggregator.updates
    assert isinstance(update, Update)
    return update


def changed(model: bytes, change: Callable[[str, np.ndarray], np.ndarray]) -> bytes:
    return to_bytes({name: change(name, value) for name, value in from_bytes(model).items()})


def back_door(name: str, value: np.ndarray) -> np.ndarray:
    """One value of one tensor is another."""
    if name != "classifier.bias":
        return value
    moved = value.copy()
    moved[0] += 0.5
    return moved


def times(factor: float) -> Callable[[str, np.ndarray], np.ndarray]:
    return lambda name, value: value * np.float32(factor) if value.dtype == np.float32 else value


LIES: dict[str, Callable[[bytes], bytes]] = {
    "zeros": lambda model: changed(model, times(0.0)),
    "huge": lambda model: changed(model, times(1e15)),
    "one value": lambda model: changed(model, back_door),
    "another model": lambda model: to_bytes({"classifier.weight": np.zeros((3, 7), np.float32)}),
    "other shapes": lambda model: changed(model, lambda name, value: value[:1]),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_site_trains_from_no_other_first_model_than_its_own(data: str, tmp_path: Path, lie: str) -> None:
    run = a_run("fedavg")
    _, model = made(data, tmp_path, run)
    with pytest.raises(
        FirstModelDiffers, match="is not the one that this site makes of specification and seed: tensor"
    ):
        trained(data, tmp_path, run, LIES[lie](model))
    assert "initial_model" in HINTS[FirstModelDiffers.reason]


def test_a_model_of_another_seed_is_another_and_that_of_a_later_round_may_be_any(data: str, tmp_path: Path) -> None:
    _, other = made(data, tmp_path, a_run("fedavg", run={"seed": 5}))
    with pytest.raises(FirstModelDiffers):
        trained(data, tmp_path, a_run("fedavg"), other)
    assert trained(data, tmp_path, a_run("fedavg"), other, number=2).num_examples == 8


def test_last_bits_of_another_processor_are_no_difference(data: str, tmp_path: Path) -> None:
    run = a_run("fedavg")
    _, model = made(data, tmp_path, run)
    assert trained(data, tmp_path, run, changed(model, times(1 + TOLERANCE / 2))).num_examples == 8


def test_the_update_of_round_1_says_which_tensors_are_what_as_round_0_did(data: str, tmp_path: Path) -> None:
    run = a_run("fedavg")
    first, model = made(data, tmp_path, run)
    lists = trained(data, tmp_path, run, model).payload.int_lists
    assert lists == {name: first.payload.int_lists[name] for name in (FEATURE_DIM, *TENSOR_LISTS)}
    assert trained(data, tmp_path, run, model, number=2, name="cid").payload.int_lists == {}


def test_a_model_that_a_person_chose_is_not_made_again(data: str, tmp_path: Path) -> None:
    _, other = made(data, tmp_path, a_run("fedavg", run={"seed": 5}))
    chosen = a_run("fedavg", run={"initial_model": f"sha256:{'0' * 64}"})
    assert trained(data, tmp_path, chosen, other).num_examples == 8


def test_rows_of_new_classes_are_those_that_the_seed_draws(data: str, tmp_path: Path) -> None:
    _, before = made(data, tmp_path / "before", a_run("fedavg", data={"classes": ["a", "c"]}))
    run = a_run("fedavg", run={"initial_model": f"sha256:{'0' * 64}", "initial_classes": ["a", "c"]})
    _, model = made(data, tmp_path, run, before)

    def new_row(name: str, value: np.ndarray) -> np.ndarray:
        return np.where(np.arange(3)[:, None] == 1, np.float32(1e15), value) if name == "classifier.weight" else value

    assert trained(data, tmp_path, run, model).num_examples == 8
    with pytest.raises(FirstModelDiffers, match=r"'classifier.weight' differs by up to 1e\+15"):
        trained(data, tmp_path, run, changed(model, new_row), name="cid")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"w": np.array([1.0, 2.0], np.float32), "n": np.array(3)}, None),
        ({"w": np.array([1.0, 2.0 + 1e-4], np.float32), "n": np.array(3)}, None),
        ({"w": np.array([1.0, 2.001], np.float32), "n": np.array(3)}, "'w' differs by up to 0.001"),
        ({"w": np.array([1.0, np.nan], np.float32), "n": np.array(3)}, "'w' differs by up to nan"),
        ({"w": np.array([1.0, 2.0], np.float32), "n": np.array(4)}, "'n' differs"),
        ({"w": np.array([[1.0, 2.0]], np.float32), "n": np.array(3)}, r"'w' is float32\[1, 2\], and here float32\[2\]"),
        ({"w": np.array([1.0, 2.0]), "n": np.array(3)}, "'w' is float64"),
        ({"n": np.array(3)}, "'w' is in one of the two alone"),
    ],
)
def test_what_a_difference_is(found: Arrays, says: str | None) -> None:
    said = difference(found, {"w": np.array([1.0, 2.0], np.float32), "n": np.array(3)})
    assert said is None if says is None else (said and re.search(says, said))


def test_nothing_may_be_where_everything_is_zero() -> None:
    zeros = {"bias": np.zeros(2, np.float32)}
    assert difference(zeros, zeros) is None
    assert difference({"bias": np.array([0, 1e-9], np.float32)}, zeros)


def test_who_made_a_model_or_compared_it_makes_it_no_second_time(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of one process compare it once together."""
    num_made = []
    real = ClientSite.new_model

    def counted(site: ClientSite, config: Any, *, with_weights: bool) -> Any:
        num_made.extend([site.client_id] * with_weights)
        return real(site, config, with_weights=with_weights)

    monkeypatch.setattr(ClientSite, "new_model", counted)
    run, shared = a_run("fedavg"), LatestModel()
    aggregator = MemoryAggregator()
    sites = {
        name: a_site(data, tmp_path, name, latest) for name, latest in (("ann", shared), ("bob", shared), ("cid", None))
    }
    sites["ann"].perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), aggregator)
    (blob,) = aggregator.updates[0][1].payload.blobs
    aggregator.offer(MODEL, aggregator.stored[blob.sha256][0])
    task = Task(kind=TaskKind.TRAIN, run=run, round=1, total_rounds=3, payload=Payload(tensor_groups=(blob,)))
    for site in sites.values():
        site.perform(task, aggregator)
    sites["cid"].perform(task, aggregator)
    assert num_made == ["ann", "cid"]
