"""Confusion and histograms of an evaluation: as the run asks for them, unless the site's owner withholds small counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedplcc.shared.scoring.histograms import fault_of
from fedplcc.shared.tensors import to_bytes
from fedplcc.shared.types import MODEL, EvaluationCounts, Payload, Task, TaskKind
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import a_config, a_model, a_spec, npz
from tests.unit.trainer.memory_aggregator import MemoryAggregator


@pytest.fixture
def data(tmp_path: Path) -> str:
    """Test images: eight cats, three dogs and no owl; twelve of all for training, of which some are for validation."""
    rng = np.random.default_rng(0)
    train, test = np.arange(12) % 3, np.repeat([0, 1], [8, 3])
    images = [rng.integers(0, 256, (len(labels), 16, 16, 3), dtype=np.uint8) for labels in (train, test)]
    return npz(tmp_path / "images.npz", images[0], train, tests=(images[1], test))


def reported(data: str, folder: Path, *, withhold_below: int = 1) -> dict[str, EvaluationCounts]:
    config = a_config(
        "fedavg", evaluation={"confusion": True, "histograms": True, "attacks": ["fgsm"]}, data={"validation_every": 2}
    )
    run = a_spec(config)
    aggregator = MemoryAggregator()
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, to_bytes(state_arrays(a_model(config)))),))
    task = Task(kind=TaskKind.EVALUATE, run=run, round=1, total_rounds=3, payload=payload)
    site = ClientSite.at("ann", "hospital", data, device="cpu", withhold_below=withhold_below)
    TaskRunner(site, ClientStates(folder)).perform(task, aggregator)
    return {counts.set_name: counts for counts in aggregator.evaluations[-1][1].counts}


def test_histograms_are_of_the_images_that_are_counted(data: str, tmp_path: Path) -> None:
    found = reported(data, tmp_path / "states")
    assert set(found) == {"test", "test/fgsm", "validation"}
    assert found["test/fgsm"].histograms is None
    for name in ("test", "validation"):
        counts = found[name]
        assert counts.histograms is not None
        assert fault_of(counts.histograms, counts.correct, counts.total) is None
        assert len(counts.confusion) == 9


@pytest.mark.parametrize(
    ("least", "names"), [(3, {"test", "test/fgsm"}), (4, set()), (1, {"test", "test/fgsm", "validation"})]
)
def test_a_site_withholds_the_details_of_sets_with_few_images_of_a_class(
    data: str, tmp_path: Path, least: int, names: set[str]
) -> None:
    found = reported(data, tmp_path / "states", withhold_below=least)
    assert {name for name, counts in found.items() if counts.confusion} == names
    assert {name for name, counts in found.items() if counts.histograms} == names - {"test/fgsm"}
    assert sum(found["test"].total) == 11, "what is counted stays"
