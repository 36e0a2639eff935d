"""`[training]`: keys of optimisers, schedules and precision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from tests.unit.trainer.builders import a_config


def stored(**training: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(a_config(training=training).canonical_json)["training"]
    return values


def test_defaults_need_not_be_written() -> None:
    defaults = {"optimizer": "sgd", "schedule": "constant", "warmup_rounds": 0, "precision": "float32"}
    assert stored(**defaults) == stored()
    assert a_config(training=defaults).hash == a_config().hash


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adamw"},
        {"schedule": "cosine"},
        {"schedule": "cosine", "schedule_rounds": 50, "warmup_rounds": 5},
        {"schedule": "step", "step_rounds": 10, "step_factor": 0.5},
        {"precision": "bfloat16"},
        {"precision": "float16"},
    ],
)
def test_what_is_set_is_stored_and_read_again(training: dict[str, Any]) -> None:
    config = a_config(training=training)
    assert training.items() <= stored(**training).items()
    assert config.hash != a_config().hash
    assert parse_run_config(json.loads(config.canonical_json)) == config


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"optimizer": "adam"}, 'training.optimizer = "adam"'),
        ({"schedule": "linear"}, 'training.schedule = "linear"'),
        ({"precision": "float8"}, 'training.precision = "float8"'),
        ({"schedule": "step"}, "set 'step_rounds' too: schedule = \"step\" says nothing without it"),
        ({"step_rounds": 5}, 'step_rounds is for schedule = "step", and the schedule is "constant"'),
        ({"schedule": "cosine", "step_factor": 0.5}, 'step_factor is for schedule = "step"'),
        ({"schedule": "step", "step_rounds": 5, "schedule_rounds": 9}, 'schedule_rounds is for schedule = "cosine"'),
        ({"schedule": "step", "step_rounds": 5, "step_factor": 1}, "training.step_factor = 1"),
        (
            {"schedule": "cosine", "warmup_rounds": 5, "schedule_rounds": 5},
            "schedule_rounds = 5 leaves no round after warmup_rounds = 5",
        ),
        ({"warmup_rounds": 30}, "training.warmup_rounds = 30 leaves none of the 30 rounds of the run; set fewer"),
        ({"warmup_rounds": -1}, "training.warmup_rounds = -1"),
    ],
)
def test_what_makes_no_schedule_is_refused_by_its_key(training: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        a_config(training=training)
    assert said in refused.value.detail
