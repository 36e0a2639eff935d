"""Scores equal scikit-learn's, and what is never found is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, recall_score

from fedplcc.shared.scoring.scores import (
    balanced_accuracy,
    is_uneven,
    recalls,
    score_of,
    summed,
    unfound,
    unfound_warning,
    values_of,
)
from tests.support import present

CLASSES = ("nevus", "melanoma", "keratosis", "naevus flammeus", "scar", "wart", "burn")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60))
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    labels, guesses = map(np.array, zip(*pairs, strict=True))
    total = np.bincount(labels, minlength=6)
    correct = np.bincount(labels[labels == guesses], minlength=6)
    known = np.flatnonzero(total)
    ours = balanced_accuracy(correct.tolist(), total.tolist())
    assert ours == pytest.approx(
        recall_score(labels, guesses, labels=known, average="macro", zero_division=0.0), abs=1e-12
    )
    if len(set(labels)) > 1 and set(guesses) <= set(labels):  # otherwise it warns
        assert ours == pytest.approx(balanced_accuracy_score(labels, guesses), abs=1e-12)
    each = recall_score(labels, guesses, labels=known, average=None, zero_division=0.0)
    assert [value for value in recalls(correct.tolist(), total.tolist()) if value is not None] == pytest.approx(each)


def test_classes_without_images_count_nowhere() -> None:
    assert recalls([1, 0], [2, 0]) == [0.5, None]
    assert balanced_accuracy([1, 0], [2, 0]) == 0.5
    assert balanced_accuracy([0, 0], [0, 0]) is None
    assert balanced_accuracy([], []) is None


@pytest.mark.parametrize(
    ("total", "uneven"), [([10, 30], False), ([10, 31], True), ([0, 10, 30], False), ([0, 0], False), ([], False)]
)
def test_classes_are_uneven_beyond_three_to_one(total: list[int], uneven: bool) -> None:
    assert is_uneven(total) == uneven


def test_a_class_is_unfound_where_it_has_images_enough() -> None:
    assert unfound([0, 0, 1, 0], [5, 4, 5, 0]) == [0]
    assert len(unfound([0] * 100, [9] * 100)) == 64
    assert summed(([1, 2], [3, 4]), 2) == [4, 6]


def line(**entries: Any) -> dict[str, Any]:
    return {"round": 9, "accuracy": {"mean": 0.9, "worst": 0.8}} | entries


def test_a_line_is_read_by_its_score() -> None:
    assert (score_of(line()), values_of(line())) == ("accuracy", {"mean": 0.9, "worst": 0.8})
    balanced = line(balanced_accuracy={"mean": 0.2, "worst": 0.1})
    assert (score_of(balanced), values_of(balanced)) == ("balanced_accuracy", {"mean": 0.2, "worst": 0.1})
    assert values_of(line(accuracy=None)) is None


def test_the_warning_names_what_is_never_found() -> None:
    assert unfound_warning(line(), CLASSES, 20) is None
    one = present(unfound_warning(line(unfound=[1]), CLASSES, 20))
    assert one.sentence.startswith("class 'melanoma' is never found: the global model gives none of its test images")
    own = present(unfound_warning(line(unfound=[1], accuracy_of="local"), CLASSES, 20))
    assert "never found: the clients' own models give none of its test images" in own.sentence
    two = present(unfound_warning(line(unfound=[1, 2]), CLASSES, 20))
    assert two.sentence.startswith("classes 'melanoma' and 'keratosis' are never found")
    many = present(unfound_warning(line(unfound=[*range(7)]), CLASSES, 20))
    assert "'scar' and 2 more are never found" in many.sentence


def test_a_class_of_a_stage_that_is_still_to_come_is_no_warning() -> None:
    counts = [40, 12, 0, 0, 0, 0, 0]
    assert unfound_warning(line(unfound=[2, 3], class_counts=counts), CLASSES, 20) is None
    found = present(unfound_warning(line(unfound=[1, 2], class_counts=counts), CLASSES, 20))
    assert found.sentence.startswith("class 'melanoma' is never found")


def test_the_beginning_of_training_is_no_warning_but_the_end_is() -> None:
    early = line(unfound=[1]) | {"round": 3}
    assert unfound_warning(early, CLASSES, 20) is None
    assert unfound_warning(early, CLASSES, 3) is not None
