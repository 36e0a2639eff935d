"""Stages of a run whose data its model knew better before, round by round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LOSS = 0.1
"""Accuracy that is lower than a stage's best by more than this counts as lost."""
ROUNDS = 3
"""Evaluated rounds running in which it is lost, after which the stage counts as forgotten."""
_ROUNDING = 1e-9
"""Differences of two fractions are exact to less than this: 0.8 - 0.7 is a little more than 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Accuracies on the stages of a run, over its evaluated rounds so far.

    An earlier stage is any that the run has trained on, but for the present one: in a later pass those that come again, too.

    Attributes:
        round: The last of these rounds; 0 before the first.
        best: Highest accuracy on each stage, by stage from 1, as a fraction.
        lost: Of each earlier stage on which accuracy is lost, the rounds running for which it is. A round in which nobody
            reported the stage changes nothing.
    """

    round: int = 0
    best: Mapping[int, float] = field(default_factory=dict)
    lost: Mapping[int, int] = field(default_factory=dict)

    def after(self, number: int, stage: int, accuracies: Sequence[float | None]) -> StageMemory:
        """Return the memory after the next evaluated round.

        Args:
            accuracies: Accuracy on stage 1, 2 and so on, as a fraction; None where nobody reported.
        """
        best, lost = dict(self.best), dict(self.lost)
        for each, accuracy in enumerate(accuracies, start=1):
            if accuracy is None:
                continue
            best[each] = max(accuracy, best.get(each, accuracy))
            is_lost = best[each] - accuracy > LOSS + _ROUNDING
            lost[each] = lost.get(each, 0) + 1 if is_lost else 0
        lost[stage] = 0
        return StageMemory(round=number, best=best, lost={each: rounds for each, rounds in lost.items() if rounds})

    @property
    def forgotten(self) -> tuple[int, ...]:
        """Stages on which accuracy has been lost for `ROUNDS` rounds or more, in order."""
        return tuple(sorted(stage for stage, rounds in self.lost.items() if rounds >= ROUNDS))
