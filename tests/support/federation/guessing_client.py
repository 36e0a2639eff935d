"""A client whose model guesses, and from a round of choice on learns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedplcc.shared.types import Evaluation, EvaluationCounts, Task
from tests.support.federation.numpy_client import CLASSES, NumpyClient


@dataclass
class GuessingClient(NumpyClient):
    """A client that reports a third of its test images as right, the chance of three classes."""

    learns_from: int = 1_000_000
    """The first round in which all are right."""

    def evaluation(self, task: Task, model: bytes) -> Evaluation:
        report = super().evaluation(task, model)
        correct = 9 if task.round >= self.learns_from else 3
        counts = EvaluationCounts("test", "global", (correct,) * len(CLASSES), (9,) * len(CLASSES))
        return replace(report, counts=(counts,))
