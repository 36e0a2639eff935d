"""A client whose images lie in files trains and evaluates to the same bytes as one that has them in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.types import RunSpec, Task, TaskKind
from fedplcc.trainer.data.images.store import IMAGES, ImageStore
from fedplcc.trainer.data.sets import folder
from fedplcc.trainer.owner.consent import Consent
from fedplcc.trainer.task import inputs
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.weights.store import WeightsStore
from tests.unit.trainer.builders import write_pictures
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_run, a_runner, a_train_task

BATCH = 4


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(folder, "SETTLED_S", -1e9)
    return f"folder:{write_pictures(tmp_path / 'pictures', 60, 20, ('a', 'c'))}"


def run_of(method: str, **training: Any) -> RunSpec:
    sections = {"training": {"evaluation_batch_size": BATCH, "local_epochs": 1, "local_steps": None, **training}}
    return a_run(method, data={"validation_every": 5}, **sections)


@pytest.fixture
def consent(tmp_path: Path) -> Consent:
    return Consent(weights=WeightsStore(tmp_path / "host"))


def worked(data: str, run: RunSpec, consent: Consent, runner: TaskRunner | None = None) -> tuple[dict[str, Any], Any]:
    """Train for a round, then evaluate the model; returns what was sent and what was reported."""
    aggregator = MemoryAggregator()
    runner = runner or a_runner(data, consent=consent)
    task = a_train_task(aggregator, data, run, consent=consent)
    runner.perform(task, aggregator)
    evaluated = Task(kind=TaskKind.EVALUATE, run=run, round=1, total_rounds=3, payload=task.payload)
    runner.perform(evaluated, aggregator)
    (_, update), (_, evaluation) = aggregator.updates[-1], aggregator.evaluations[-1]
    return aggregator.stored, (update.losses, update.class_counts, evaluation.counts)


@pytest.mark.parametrize("method", ["fedavg", "fedplcc"])
def test_a_round_ends_in_the_same_bytes_and_reads_a_batch_at_a_time(
    data: str, consent: Consent, method: str, sizes_read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(method)
    in_memory = worked(data, run, consent)
    assert not sizes_read
    monkeypatch.setattr(inputs, "ImageStore", partial(ImageStore, in_memory_bytes=0))
    assert worked(data, run, consent) == in_memory
    assert worked(data, run, consent) == in_memory, "of pixels that were there"
    assert max(sizes_read) <= BATCH + 1


def test_a_task_that_met_damaged_images_is_done_when_it_is_tried_again(
    data: str, consent: Consent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("fedavg")
    in_memory = worked(data, run, consent)
    monkeypatch.setattr(inputs, "ImageStore", partial(ImageStore, in_memory_bytes=0))
    worked(data, run, consent)
    (file,) = (consent.weights.folder / IMAGES).glob("*.pixels")
    file.write_bytes(bytes(file.stat().st_size))
    runner = a_runner(data, consent=consent)
    with pytest.raises(StoreUnavailable, match="decoded again when the task is tried again"):
        worked(data, run, consent, runner)
    assert worked(data, run, consent, runner) == in_memory
