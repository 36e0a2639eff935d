"""Scores of classes equal scikit-learn's on the same predictions; predictions of no class count as not found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_fscore_support

from fedplcc.shared.scoring.class_scores import class_scores, pooled

M = 5


def matrix_of(labels: np.ndarray, guesses: np.ndarray) -> tuple[list[int], list[int]]:
    is_named = guesses >= 0
    cells = np.bincount(labels[is_named] * M + guesses[is_named], minlength=M * M)
    return np.bincount(labels, minlength=M).tolist(), cells.tolist()


@given(st.lists(st.tuples(st.integers(0, M - 1), st.integers(-1, M - 1)), min_size=1, max_size=80))
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    labels, guesses = map(np.array, zip(*pairs, strict=True))
    total, cells = matrix_of(labels, guesses)
    ours = class_scores(total, cells)
    precision, recall, f1, _ = precision_recall_fscore_support(labels, guesses, labels=range(M), zero_division=np.nan)
    specificity = [np.mean(guesses[labels != k] != k) if (labels != k).any() else None for k in range(M)]
    for mine, theirs in (
        (ours.precision, precision),
        (ours.recall, recall),
        (ours.f1, f1),
        (ours.specificity, specificity),
    ):
        known = [None if value is None or np.isnan(value) else value for value in theirs]
        assert [value is None for value in mine] == [value is None for value in known]
        assert [v for v in mine if v is not None] == pytest.approx([v for v in known if v is not None], abs=1e-12)
    seen = sorted({*labels.tolist(), *guesses.tolist()} - {-1})
    theirs_macro = f1_score(labels, guesses, labels=seen, average="macro", zero_division=0.0)
    assert ours.macro_f1 == pytest.approx(theirs_macro, abs=1e-12)


def test_without_samples_there_are_no_scores() -> None:
    found = class_scores([0, 0], [0, 0, 0, 0])
    assert (found.recall, found.precision, found.specificity, found.f1) == ((None, None),) * 4
    assert found.macro_f1 is None


def test_matrices_are_added_where_each_client_sent_one() -> None:
    assert pooled([[1, 2, 3, 4], [1, 0, 0, 1]]) == [2, 2, 3, 5]
    assert pooled([[1, 2, 3, 4], []]) is None
    assert pooled([]) is None
