"""Areas under ROC curves and calibration by fixed bins, against scikit-learn; what a client reports is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from fedplcc.shared.bounds import CONFIDENCE_BINS, SCORE_BINS
from fedplcc.shared.scoring.histograms import (
    RELIABILITY_BINS,
    added,
    areas,
    bins_of,
    calibration_error,
    fault_of,
    histograms_of,
    macro_area,
    reliability,
)
from fedplcc.shared.types import ScoreHistograms

M = 3


def drawn(seed: int, count: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits that know something of the labels, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, M, count)
    logits = rng.normal(size=(count, M)) + 1.5 * np.eye(M)[labels]
    return (scale * logits).astype(np.float32), labels


def probabilities(logits: np.ndarray) -> np.ndarray:
    parts = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    return parts / parts.sum(1, keepdims=True)  # type: ignore[no-any-return]


def histograms(logits: np.ndarray, labels: np.ndarray) -> ScoreHistograms:
    predicted = np.where(np.isfinite(logits).all(1), logits.argmax(1), -1)
    return histograms_of(bins_of(logits), labels, predicted, M)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(5, 200), st.sampled_from([0.1, 1.0, 10.0]))
def test_areas_are_those_of_scikit_learn_but_for_pairs_in_one_bin(seed: int, count: int, scale: float) -> None:
    logits, labels = drawn(seed, count, scale)
    bins, found = bins_of(logits), histograms(logits, labels)
    for label, area in enumerate(areas(found)):
        is_of = labels == label
        if area is None:
            assert is_of.all() or not is_of.any()
            continue
        binned = roc_auc_score(is_of, bins[:, label])
        assert area == pytest.approx(binned, abs=1e-12), "of the bins it is exact"
        own, others = (np.asarray(each).reshape(M, SCORE_BINS)[label] for each in (found.of_class, found.of_others))
        tied = (own * others).sum() / (own.sum() * others.sum())
        assert abs(area - roc_auc_score(is_of, probabilities(logits)[:, label])) <= tied / 2 + 1e-12


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0, 20.0])
def test_the_macro_area_is_close_however_sure_the_model_is(scale: float) -> None:
    logits, labels = drawn(1, 3000, scale)
    theirs = roc_auc_score(labels, probabilities(logits), multi_class="ovr", average="macro")
    assert macro_area(histograms(logits, labels)) == pytest.approx(theirs, abs=1 / SCORE_BINS)


def test_the_calibration_error_is_that_of_the_confidences() -> None:
    logits, labels = drawn(2, 4000, 3.0)
    shares = probabilities(logits)
    confidence, is_right = shares.max(1), logits.argmax(1) == labels
    place = np.minimum((confidence * RELIABILITY_BINS).astype(int), RELIABILITY_BINS - 1)
    expected = sum(
        abs(is_right[place == b].sum() - confidence[place == b].sum()) / len(labels) for b in range(RELIABILITY_BINS)
    )
    bins = reliability(histograms(logits, labels))
    assert calibration_error(bins) == pytest.approx(expected, abs=0.5 / CONFIDENCE_BINS)
    assert sum(each.num_examples for each in bins) == 4000
    assert [each.confidence for each in bins] == sorted(each.confidence for each in bins)


def test_histograms_of_clients_are_added() -> None:
    logits, labels = drawn(3, 90, 1.0)
    parts = [histograms(logits[piece], labels[piece]) for piece in (slice(0, 40), slice(40, 90))]
    assert added(parts) == histograms(logits, labels)


def test_a_sample_without_a_finite_logit_has_the_least_probability_of_every_class() -> None:
    logits = np.array([[5.0, 0.0, 0.0], [np.nan, 0.0, 0.0]], np.float32)
    found = histograms(logits, np.array([0, 0]))
    assert fault_of(found, (1, 0, 0), (2, 0, 0)) is None
    assert (found.of_class[0], found.confidence[0], sum(found.confidence_correct)) == (1, 1, 1)


def test_nothing_follows_from_no_samples() -> None:
    none = histograms(np.zeros((0, M), np.float32), np.zeros(0, int))
    assert fault_of(none, (0,) * M, (0,) * M) is None
    assert areas(none) == [None] * M
    assert macro_area(none) is None
    assert reliability(none) == []
    assert calibration_error([]) is None


LOGITS, LABELS = drawn(4, 50, 1.0)
GOOD = histograms(LOGITS, LABELS)
TOTAL = np.bincount(LABELS, minlength=M).tolist()
CORRECT = np.bincount(LABELS[LOGITS.argmax(1) == LABELS], minlength=M).tolist()


def moved(counts: tuple[int, ...], by: dict[int, int]) -> tuple[int, ...]:
    return tuple(count + by.get(place, 0) for place, count in enumerate(counts))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too few bins": ({"of_class": GOOD.of_class[:-1]}, "bins of scores"),
    "too many bins": ({"of_others": (*GOOD.of_others, 0)}, "bins of scores"),
    "no confidence": ({"confidence": ()}, "bins of confidence"),
    "one sample more": ({"of_class": moved(GOOD.of_class, {5: 1})}, "other numbers of samples of class 0"),
    "negative": ({"of_class": moved(GOOD.of_class, {0: -(10**6), 1: 10**6})}, "a negative count"),
    "absurd": ({"of_others": moved(GOOD.of_others, {0: 2**62})}, "other numbers of samples of class 0"),
    "more correct than there are": (
        {"confidence_correct": tuple(count + 1 for count in GOOD.confidence)},
        "more correct predictions of a confidence",
    ),
    "another number of correct ones": ({"confidence_correct": (0,) * CONFIDENCE_BINS}, "correct ones, than the counts"),
    "samples of another class": (
        {"of_class": GOOD.of_class[SCORE_BINS:] + GOOD.of_class[:SCORE_BINS]},
        "other numbers of samples",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_histograms_that_do_not_fit_the_counts_are_refused(bad: str) -> None:
    changes, sentence = BAD[bad]
    assert fault_of(GOOD, CORRECT, TOTAL) is None
    found = fault_of(replace(GOOD, **changes), CORRECT, TOTAL)
    assert found is not None
    assert sentence in found
