"""Accuracy at chance: the band, the number of rounds, and the keys that are named."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.shared.chance import ROUNDS, RunWarningKind, is_at_chance, warnings_of


def a_config(num_classes: int = 10, **training: Any) -> dict[str, Any]:
    classes = [str(number) for number in range(num_classes)]
    return {"data": {"classes": classes}, "training": {"learning_rate": 0.01, "clip_norm": None, **training}}


def rounds(accuracy: float = 0.1, number: int = ROUNDS, first: int = 1) -> list[tuple[int, float]]:
    return [(first + index, accuracy) for index in range(number)]


@pytest.mark.parametrize(
    ("accuracy", "num_classes", "expected"),
    [
        (0.1, 10, True),
        (0.149, 10, True),
        (0.151, 10, False),
        (0.049, 10, False),
        (0.5, 2, True),
        (0.56, 2, False),
        (0.44, 2, False),
        (0.007, 200, True),
        (0.02, 200, False),
        (1.0, 1, False),
    ],
)
def test_the_band_is_five_points_and_at_most_half_of_chance(accuracy: float, num_classes: int, expected: bool) -> None:
    assert is_at_chance(accuracy, num_classes) is expected


def test_ten_rounds_running_warn_and_nine_do_not() -> None:
    assert warnings_of(rounds(number=ROUNDS - 1), a_config(), "fedplcc") == ()
    (warning,) = warnings_of(rounds(first=4), a_config(), "fedplcc")
    assert (warning.kind, warning.round) == (RunWarningKind.AT_CHANCE, 4)
    assert "mean accuracy is at chance, 10.0% with 10 classes, since round 4" in warning.sentence


def test_one_better_round_ends_the_warning_and_older_ones_do_not_count() -> None:
    assert warnings_of([*rounds(), (11, 0.3)], a_config(), "fedavg") == ()
    assert warnings_of([(1, 0.9), *rounds(first=2)], a_config(), "fedavg")[0].round == 2


@pytest.mark.parametrize(
    ("method", "clip_norm", "keys"),
    [
        ("fedplcc", None, ("training.clip_norm", "training.learning_rate")),
        ("fedplcc", 40.0, ("training.learning_rate",)),
        ("fedavg", None, ("training.learning_rate", "training.clip_norm")),
    ],
)
def test_the_likeliest_key_comes_first(method: str, clip_norm: float | None, keys: tuple[str, ...]) -> None:
    (warning,) = warnings_of(rounds(), a_config(clip_norm=clip_norm), method)
    assert warning.keys == keys
    assert all(key in warning.sentence for key in keys)
    assert "than 0.01" in warning.sentence


@pytest.mark.parametrize("config", [{}, {"data": None}, {"data": {"classes": 3}}])
def test_a_configuration_of_another_version_gives_no_warning(config: dict[str, Any]) -> None:
    assert warnings_of(rounds(), config, "fedplcc") == ()
