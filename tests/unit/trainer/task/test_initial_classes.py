"""A first model of other classes than the initial one: known classes keep their rows, new ones have the seed's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.tensors import from_bytes, to_bytes
from fedplcc.shared.types import MODEL, Payload, RunSpec, Task, TaskKind
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.models.initial_model import UnfitInitialModel
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import a_spec, npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator

TWO_LAYERS = """
from torch import nn

class TwoLayers(nn.Module):
    feature_dim = 4

    def __init__(self, num_classes):
        super().__init__()
        self.base = nn.Linear(3, 4)
        self.classifier = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, num_classes))

    def features(self, images):
        return self.base(images.mean(dim=(2, 3)))

    def forward(self, images):
        return self.classifier(self.features(images))

def make(num_classes, image_size):
    return TwoLayers(num_classes)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six images of class a, whatever other classes a run has."""
    images = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3)).astype(np.uint8)
    return npz(tmp_path_factory.mktemp("data") / "images.npz", images, np.zeros(6, np.int64), ["a"])


def a_run(classes: list[str], *, model: str = "cnn4", **run: Any) -> RunSpec:
    config = parse_run_config(
        {
            "run": {"method": "fedavg", "rounds": 3, "clients": ["ann"], **run},
            "model": {"name": model},
            "data": {"classes": classes, "image_size": 16},
        }
    )
    return a_spec(config)


def first_model(data: str, run: RunSpec, folder: Path, given: bytes | None = None, code: str = "") -> bytes:
    aggregator = MemoryAggregator()
    groups = () if given is None else (aggregator.offer(MODEL, given),)
    site = ClientSite.at("ann", "hospital", data, device="cpu", consent=Consent(code=frozenset([code] if code else [])))
    task = Task(kind=TaskKind.INIT, run=run, payload=Payload(tensor_groups=groups), total_rounds=3)
    TaskRunner(site, ClientStates(folder)).perform(task, aggregator)
    ((_, update),) = aggregator.updates
    return aggregator.stored[update.payload.tensor_group(MODEL).sha256][0]


SOURCE = {"initial_model": f"sha256:{'ab' * 32}"}


def test_rows_go_by_class_and_new_ones_by_the_seed(data: str, tmp_path: Path) -> None:
    before = first_model(data, a_run(["a", "b", "c"], seed=9), tmp_path / "1")
    names: dict[str, Any] = {**SOURCE, "initial_classes": ["a", "b", "c"], "drop_classes": True}
    made = [
        first_model(data, a_run(["c", "x", "a", "y"], seed=seed, **names), tmp_path / f"{turn}", before)
        for turn, seed in enumerate((4, 4, 5), start=2)
    ]
    assert made[0] == made[1], "the same seed gives the same rows"
    after, other = from_bytes(made[0]), from_bytes(made[2])
    for name, array in from_bytes(before).items():
        if name.startswith("classifier."):
            np.testing.assert_array_equal(after[name][[0, 2]], array[[2, 0]])
            assert not np.intersect1d(after[name][[1, 3]], other[name][[1, 3]]).size, "another seed gives other rows"
            assert np.isfinite(after[name]).all()
        else:
            np.testing.assert_array_equal(after[name], array)


def test_a_run_that_begins_with_a_model_commits_that_and_no_other(data: str, tmp_path: Path) -> None:
    before = first_model(data, a_run(["a", "b"], seed=9), tmp_path / "1")
    assert first_model(data, a_run(["a", "b"], **SOURCE), tmp_path / "2", before) == before


def test_a_model_of_other_classes_than_it_says_is_refused(data: str, tmp_path: Path) -> None:
    before = first_model(data, a_run(["a", "b", "c"]), tmp_path / "1")
    run = a_run(["a", "b", "c", "d"], **SOURCE, initial_classes=["a", "b"])
    with pytest.raises(UnfitInitialModel, match="no linear layer of the 2 classes"):
        first_model(data, run, tmp_path / "2", before)


def test_a_head_without_its_bias_is_refused(data: str, tmp_path: Path) -> None:
    before = from_bytes(first_model(data, a_run(["a", "b"]), tmp_path / "1"))
    without = to_bytes({name: array for name, array in before.items() if name != "classifier.bias"})
    with pytest.raises(UnfitInitialModel, match=r"classifier\.bias"):
        first_model(data, a_run(["a", "b", "c"], **SOURCE, initial_classes=["a", "b"]), tmp_path / "2", without)


def test_a_head_of_two_layers_is_refused(data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "two_layers.py").write_text(TWO_LAYERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = "two_layers:make"
    before = first_model(data, a_run(["a", "b"], model=model), tmp_path / "1", code=model)
    run = a_run(["a", "b", "c"], model=model, **SOURCE, initial_classes=["a", "b"])
    with pytest.raises(UnfitInitialModel, match="only the rows of one linear layer"):
        first_model(data, run, tmp_path / "2", before, code=model)
