"""Balanced accuracy is the mean recall of the classes that a domain's test images have."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score

from fedplcc.comparison.round_values import balanced, classes_by_round


def found_by_round(reports: list[dict[str, Any]]) -> dict[int, dict[tuple[str, str], float]]:
    return {number: balanced(classes) for number, classes in classes_by_round(reports).items()}


def report(correct: list[int], total: list[int], *, domain: str = "city", **changes: Any) -> dict[str, Any]:
    counts = {"set_name": "test", "model": "global", "correct": correct, "total": total, **changes}
    return {"round": 1, "domain": domain, "counts": [counts]}


def test_every_class_counts_alike_however_few_its_images_are() -> None:
    found = found_by_round([report([90, 0, 0], [90, 10, 0])])
    assert found == {1: {("city", "global"): 0.5}}, "accuracy would be 0.9; a class without images does not count"


def test_a_domains_clients_are_pooled_and_other_sets_are_left_out() -> None:
    reports = [
        report([1, 0], [2, 0]),
        report([3, 4], [4, 4]),
        report([0, 0], [9, 9], set_name="validation"),
        report([0, 0], [9, 9], set_name="test/fgsm"),
        report([0, 0], [0, 0], domain="sea"),
    ]
    assert found_by_round(reports) == {1: {("city", "global"): pytest.approx((4 / 6 + 1) / 2)}}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_it_is_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = zip(*pairs, strict=True)
    total = [truth.count(k) for k in range(4)]
    correct = [sum(t == p == k for t, p in pairs) for k in range(4)]
    (share,) = found_by_round([report(correct, total)])[1].values()
    present = [pair for pair in pairs if pair[1] in truth]
    if len(present) == len(pairs) and len(set(truth)) > 1:  # scikit-learn warns of what is not so
        assert share == pytest.approx(balanced_accuracy_score(truth, predicted))
