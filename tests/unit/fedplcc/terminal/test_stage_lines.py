"""The matrix of a run's stages, for people and for programs."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.terminal.stage_lines import StageMatrix, place_names
from tests.support import present


def a_line(number: int, stage: int, row: list[float | None] | None) -> dict[str, Any]:
    unknown = dict.fromkeys(("average_accuracy", "forgetting", "backward_transfer"))
    rare = dict.fromkeys(("accuracy_minority", "accuracy_majority"))
    return {"round": number, "pass": 1, "stage": stage, "accuracy_by_stage": row, **unknown, **rare}


LINES = [
    a_line(1, 1, [0.5]),
    a_line(2, 1, [0.9]),
    a_line(3, 2, [0.7, 0.8]),
    a_line(4, 2, None),
    {
        **a_line(5, 3, [0.6, 0.75, 0.85]),
        **{"average_accuracy": 0.7333, "forgetting": 0.175, "backward_transfer": -0.175, "accuracy_minority": 0.5},
    },
]


def test_the_last_evaluated_round_of_each_stage_is_a_row() -> None:
    matrix = present(StageMatrix.of(LINES))
    assert matrix.rows == [[0.9], [0.7, 0.8], [0.6, 0.75, 0.85]]
    assert list(matrix.lines()) == [
        "pass 1; percent of the test images of each stage, after the last round of each",
        "   after  stage  1  stage  2  stage  3",
        "       2     90.0%",
        "       3     70.0%     80.0%",
        "       5     60.0%     75.0%     85.0%",
        "average accuracy: 73.3%",
        "forgetting: +17.5 points",
        "backward transfer: -17.5 points",
        "classes with the fewest samples: 50.0%, the others: -",
    ]
    assert matrix.as_json()["rounds"] == [2, 3, 5]


def test_only_the_last_pass_counts_and_the_first_stage_forgets_nothing() -> None:
    matrix = present(StageMatrix.of([*LINES, {**a_line(6, 1, [0.8, 0.7, 0.6]), "pass": 2}]))
    assert (matrix.pass_number, matrix.rows) == (2, [[0.8]])
    assert "forgetting: not before the second stage" in list(matrix.lines())


@pytest.mark.parametrize(
    ("number", "config", "names"),
    [
        (1, {"stream": {"stages": 2, "passes": 3}}, ("pass", "stage")),
        (1, {"stream": {"stages": 2}}, ("stage",)),
        (1, {}, ("stage",)),
        (2, {}, ("pass", "stage")),
    ],
)
def test_a_round_is_named_by_its_stage_and_by_its_pass_where_there_are_several(
    number: int, config: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert place_names({"pass": number, "stage": 1}, config) == names
    assert place_names({"pass": None, "stage": None}, config) == place_names({}, config) == ()


def test_a_run_without_stages_has_none() -> None:
    assert StageMatrix.of([]) is None
    assert StageMatrix.of([{"round": 1, "accuracy": {}}]) is None
