"""Stages of a run for people: where a round is, what they taught, and what they made the model forget. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

UNKNOWN = "-"
"""In place of a number that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMatrix:
    """Accuracies of a run's last pass, and their measures up to its last evaluated round.

    Attributes:
        pass_number: The pass, from 1.
        rows: After the last evaluated round of each stage of the pass, the accuracy on each stage up to it, as fractions.
        rounds: Those rounds.
        average_accuracy, forgetting, backward_transfer: See shared/stage_measures.py.
        accuracy_minority, accuracy_majority: On the half of the classes with the fewest samples, and on the others.
    """

    pass_number: int
    rows: Sequence[Sequence[float | None]]
    rounds: Sequence[int]
    average_accuracy: float | None
    forgetting: float | None
    backward_transfer: float | None
    accuracy_minority: float | None
    accuracy_majority: float | None

    @classmethod
    def of(cls, metrics: Sequence[Mapping[str, Any]]) -> StageMatrix | None:
        """Return the matrix of a run's lines of metrics.jsonl; None where it has no stages or was never evaluated."""
        lines = [line for line in metrics if line.get("accuracy_by_stage") is not None]
        if not lines:
            return None
        last = lines[-1]
        ends = {line["stage"]: line for line in lines if line["pass"] == last["pass"]}
        return cls(
            pass_number=last["pass"],
            rows=[line["accuracy_by_stage"][:stage] for stage, line in sorted(ends.items())],
            rounds=[line["round"] for _, line in sorted(ends.items())],
            **{
                name: last[name]
                for name in (
                    *("average_accuracy", "forgetting", "backward_transfer"),
                    *("accuracy_minority", "accuracy_majority"),
                )
            },
        )

    def as_json(self) -> dict[str, Any]:
        """Return the matrix for programs."""
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """Yield the matrix and its measures for people."""
        yield f"pass {self.pass_number}; percent of the test images of each stage, after the last round of each"
        widest = max(len(row) for row in self.rows)
        yield "   after" + "".join(f"  stage {stage:>2}" for stage in range(1, widest + 1))
        for number, row in zip(self.rounds, self.rows, strict=True):
            yield f"{number:>8}" + "".join(f"{_percent(value):>10}" for value in row)
        yield f"average accuracy: {_percent(self.average_accuracy)}"
        yield f"forgetting: {_points(self.forgetting)}"
        yield f"backward transfer: {_points(self.backward_transfer)}"
        rare, frequent = _percent(self.accuracy_minority), _percent(self.accuracy_majority)
        yield f"classes with the fewest samples: {rare}, the others: {frequent}"


def place_names(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of what says where a round is: its stage, its pass where there are several; none without stages.

    Args:
        config: The run's configuration; empty if unknown. Then there are several passes from the second one on.
    """
    if metrics.get("stage") is None:
        return ()
    passes = (config.get("stream") or {}).get("passes", 1)
    return ("pass", "stage") if max(passes, metrics["pass"]) > 1 else ("stage",)


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


def _points(value: float | None) -> str:
    return "not before the second stage" if value is None else f"{100 * value:+.1f} points"
