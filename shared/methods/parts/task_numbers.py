"""Numbers that go to a client with its task, from the samples that clients had when they were admitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedplcc.shared.methods.parts.part import Part, TaskView


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNumbers(Part):
    """Numbers beside a client's task, which its loss finds as `step.scalars`.

    Attributes:
        of: `(view, config) -> numbers by name`; pure in what is recorded of the run.
    """

    of: Callable[[TaskView, Any], Mapping[str, float]]

    def scalars(self, view: TaskView, config: Any) -> Mapping[str, float]:
        return self.of(view, config)
