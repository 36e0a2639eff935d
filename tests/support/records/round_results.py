"""Rounds as a run's followers are told of them, for tests of trackers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fedplcc.tracking.callbacks import RoundResult, RunStart

BEGINNING = datetime(2030, 1, 2, tzinfo=UTC)


def a_start(total_rounds: int = 4, *, label: str = "shops-1", tags: tuple[str, ...] = ()) -> RunStart:
    config = {"run": {"name": "shops", "method": "fedplcc", "rounds": total_rounds}, "data": {"classes": ["a", "b"]}}
    return RunStart(
        run_id="shops-1", label=label, total_rounds=total_rounds, config=config, config_hash="0" * 64, tags=tags
    )


def a_result(number: int) -> RoundResult:
    accuracy = {"north": number / 10, "south": number / 20, "mean": number * 0.075, "worst": number / 20}
    return RoundResult(
        number=number,
        time=BEGINNING + timedelta(seconds=10 * number),
        seconds=1.5,
        metrics={
            "round": number,
            "accuracy": accuracy,
            "loss": {"ce": 1.0 / number},
            "prototypes": {"local": 8, "global": 3},
            "num_examples": 48,
            "cohort": ["n", "s"],
            "model_sha256": "1" * 64,
            "prototypes_sha256": "2" * 64,
        },
    )
