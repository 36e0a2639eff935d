"""What joining is worth to a site whose whole model is trained: its last evaluation, with progress, cut off and diverged."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.shared.tensors import to_bytes
from fedplcc.shared.types import MODEL, ClientActivity, ClientProblem, EvaluationCounts, Payload, Task, TaskKind
from fedplcc.trainer.cancellation import Cancelled, ShouldStop, never
from fedplcc.trainer.models import state_arrays
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.builders import a_config, a_model, a_spec, eighteen_images
from tests.unit.trainer.memory_aggregator import MemoryAggregator


class Site:
    """A site and the last round of its run."""

    def __init__(self, folder: Path, *, keeps_models: bool = False, **training: int) -> None:
        config = a_config(
            run={"rounds": 4}, data={"validation_every": 3}, evaluation={"joining": True}, training=training
        )
        self.aggregator = MemoryAggregator()
        payload = Payload(tensor_groups=(self.aggregator.offer(MODEL, to_bytes(state_arrays(a_model(config)))),))
        self._task = Task(kind=TaskKind.EVALUATE, run=a_spec(config), round=4, total_rounds=4, payload=payload)
        folder.mkdir(exist_ok=True)
        site = ClientSite.at("ann", "hospital", eighteen_images(folder), device="cpu")
        self._runner = TaskRunner(site, ClientStates(folder / "states"), keeps_evaluated=keeps_models)
        self.evaluating: list[float] = []
        self.problems: list[ClientProblem] = []

    def perform(self, should_stop: ShouldStop = never) -> tuple[EvaluationCounts, ...]:
        def on_activity(activity: ClientActivity, done: float) -> None:
            if activity is ClientActivity.EVALUATING:
                self.evaluating.append(done)

        self._runner.perform(self._task, self.aggregator, should_stop, on_activity, self.problems.append)
        counts: tuple[EvaluationCounts, ...] = self.aggregator.evaluations[-1][1].counts
        return counts


def test_the_training_alone_of_a_whole_model_makes_progress_and_comes_to_the_same_after_it_was_cut_off(
    tmp_path: Path,
) -> None:
    site = Site(tmp_path)
    whole = site.perform()
    assert [(each.model, each.set_name) for each in whole] == [
        (model, name) for model in ("global", "local", "alone") for name in ("test", "validation")
    ]
    assert site.evaluating == sorted(site.evaluating)
    assert len({*site.evaluating}) > 12, "each of the twelve steps is progress"
    with pytest.raises(Cancelled):
        site.perform(lambda: len(site.evaluating) > 25)
    assert site.perform() == whole


def test_a_trainer_goes_on_with_the_training_alone_where_it_was_cut_off_and_trains_once_for_two_reports(
    tmp_path: Path,
) -> None:
    whole = Site(tmp_path / "whole").perform()
    site = Site(tmp_path / "cut", keeps_models=True)
    with pytest.raises(Cancelled):
        site.perform(lambda: len(site.evaluating) > 14)
    assert 0.5 < max(site.evaluating) < 0.9
    site.evaluating.clear()
    assert site.perform() == whole
    assert not [done for done in site.evaluating if 0.05 < done < 0.5], "two of four rounds are not made again"
    assert max(site.evaluating) > 0.9
    site.evaluating.clear()
    assert site.perform() == whole
    assert max(site.evaluating) <= 0.05


def test_a_model_alone_that_diverges_is_said_and_leaves_the_report_on_the_global_one(tmp_path: Path) -> None:
    site = Site(tmp_path, learning_rate=10, local_steps=60)
    assert {each.model for each in site.perform()} == {"global"}
    assert "TRAINING_DIVERGED" in {problem.reason for problem in site.problems}
