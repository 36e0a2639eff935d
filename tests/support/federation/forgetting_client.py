"""A client whose model forgets a run's first stage for some rounds, and knows all other stages equally well."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fedplcc.shared.config.tables.stream import PASS, STAGE, Place
from fedplcc.shared.types import GLOBAL_MODEL, TEST_SET, Evaluation, EvaluationCounts, Task, stage_set
from tests.support.federation.numpy_client import CLASSES, NumpyClient


@dataclass
class ForgettingClient(NumpyClient):
    """A client that reports nine of ten test images of a stage as right; of a forgotten stage, four."""

    stages: int = 3
    """Stages of the run."""
    forgets_in: Collection[int] = ()
    """Rounds in which the first stage is forgotten."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        scalars = task.payload.scalars
        seen = Place(int(scalars[PASS]), int(scalars[STAGE])).seen(self.stages)
        right = {stage_set(stage): 9 for stage in range(1, seen + 1)} | {TEST_SET: 9}
        if task.round in self.forgets_in:
            right[stage_set(1)] = 4
        counts = tuple(
            EvaluationCounts(name, GLOBAL_MODEL, (correct,) * len(CLASSES), (10,) * len(CLASSES))
            for name, correct in right.items()
        )
        return replace(super().evaluation(task, model), counts=counts)
