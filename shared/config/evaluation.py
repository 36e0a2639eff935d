"""`[evaluation]`: the rounds in which clients evaluate. Pure."""

from __future__ import annotations

from pydantic import Field

from shared.config.sections import Section


class EvaluationSection(Section):
    """`[evaluation]`: the rounds in which clients evaluate the models. Training is the same, to the last bit."""

    every: int = Field(1, ge=1, le=100_000)
    """Clients evaluate every n-th round. The other rounds commit without reports, and their accuracy is null in
    metrics.jsonl."""
    last: int = Field(10, ge=1, le=100_000)
    """Number of last rounds of the run that are evaluated in any case."""

    def covers(self, number: int, total_rounds: int) -> bool:
        """Whether a round is evaluated.

        Args:
            number: The round, from 1.
            total_rounds: Rounds of the run.
        """
        return number % self.every == 0 or number > total_rounds - self.last
