"""CReFF's closed forms (docs/algorithms.md, rule 20.2)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedplcc.shared.methods.arithmetic.exact_maths import DoubleArray, near_normal
from fedplcc.shared.methods.heads.creff_matching import Head, head_gradient, matched, matching, new_head, trained_head

NUM_CLASSES, DIM, CLASS = 4, 6, 2


def a_head(*seed: int) -> Head:
    return Head(near_normal((NUM_CLASSES, DIM), *seed, 0), near_normal((NUM_CLASSES,), *seed, 1))


def cross_entropy(features_ND: DoubleArray, class_id: int, weight_MD: DoubleArray, bias_M: DoubleArray) -> float:
    logits_NM = features_ND @ weight_MD.T + bias_M
    return float((np.log(np.exp(logits_NM).sum(1)) - logits_NM[:, class_id]).mean())


def test_the_heads_gradient_is_the_central_difference_of_the_cross_entropy() -> None:
    features, head, step = near_normal((7, DIM), 1), a_head(2), 1e-6
    found = head_gradient(features, CLASS, head, np.matmul)
    for place in np.ndindex(NUM_CLASSES, DIM):
        shift = np.zeros((NUM_CLASSES, DIM))
        shift[place] = step
        above = cross_entropy(features, CLASS, head.weight_MD + shift, head.bias_M)
        below = cross_entropy(features, CLASS, head.weight_MD - shift, head.bias_M)
        assert found.weight_MD[place] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-9)
    for class_id in range(NUM_CLASSES):
        shift_M = step * np.eye(NUM_CLASSES)[class_id]
        above = cross_entropy(features, CLASS, head.weight_MD, head.bias_M + shift_M)
        below = cross_entropy(features, CLASS, head.weight_MD, head.bias_M - shift_M)
        assert found.bias_M[class_id] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-9)


def test_the_distances_gradient_is_its_central_difference() -> None:
    features, head, goal, step = near_normal((5, DIM), 1), a_head(2), a_head(3), 1e-5
    _, gradient = matching(features, CLASS, head, goal, np.matmul)
    differences = np.zeros_like(features)
    for place in np.ndindex(*features.shape):
        shift = np.zeros_like(features)
        shift[place] = step
        above, below = (matching(features + sign * shift, CLASS, head, goal, np.matmul)[0] for sign in (1, -1))
        differences[place] = (above - below) / (2 * step)
    scale = np.abs(differences).max()
    assert np.abs(gradient - differences).max() <= 1e-6 * scale


def test_on_the_grid_distance_and_gradient_are_close_to_the_unrounded_ones() -> None:
    features, head, goal = near_normal((5, DIM), 1), a_head(2), a_head(3)
    (loss, gradient), (plain_loss, plain) = (
        matching(features, CLASS, head, goal),
        matching(features, CLASS, head, goal, np.matmul),
    )
    assert loss == pytest.approx(plain_loss, rel=1e-5)
    np.testing.assert_allclose(gradient, plain, atol=1e-4 * np.abs(plain).max())


def test_features_have_no_distance_from_their_own_gradient() -> None:
    features, head = near_normal((5, DIM), 1), a_head(2)
    loss, _ = matching(features, CLASS, head, head_gradient(features, CLASS, head))
    assert loss == pytest.approx(0, abs=1e-3)


def test_steps_bring_features_nearer_and_leave_classes_without_a_gradient() -> None:
    features = {class_id: near_normal((10, DIM), class_id) for class_id in (0, 1)}
    head, wanted = a_head(2), {0: a_head(3)}
    after = matched(features, wanted, head, steps=50, rate=0.1)
    assert matching(after[0], 0, head, wanted[0])[0] < matching(features[0], 0, head, wanted[0])[0]
    assert after[1] is features[1]


def test_steps_on_a_class_do_not_depend_on_the_other_classes() -> None:
    features = {class_id: near_normal((10, DIM), class_id) for class_id in (0, 1)}
    head, wanted = a_head(2), {0: a_head(3), 1: a_head(4)}
    both = matched(features, wanted, head, steps=5, rate=0.1)
    alone = matched(features, {1: wanted[1]}, head, steps=5, rate=0.1)
    assert both[1].tobytes() == alone[1].tobytes()


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e38])
def test_gradients_of_any_length_leave_finite_features(scale: float) -> None:
    goal = Head(scale * near_normal((NUM_CLASSES, DIM), 1), scale * near_normal((NUM_CLASSES,), 2))
    after = matched({0: near_normal((10, DIM), 3)}, {0: goal}, a_head(4), steps=20, rate=0.1)
    assert np.isfinite(after[0]).all()
    flat = matched({0: np.zeros((10, DIM))}, {0: goal}, a_head(4), steps=20, rate=0.1)
    assert np.isfinite(flat[0]).all()


def test_a_trained_head_names_the_classes_of_its_features() -> None:
    labels = np.repeat(np.arange(NUM_CLASSES), 40)
    features = 3 * np.eye(NUM_CLASSES, DIM)[labels] + 0.3 * near_normal((len(labels), DIM), 1)
    head = trained_head(features, labels, new_head(NUM_CLASSES, DIM, 2), 3, epochs=20, rate=0.1)
    assert ((features @ head.weight_MD.T + head.bias_M).argmax(1) == labels).all()


def test_a_new_head_stays_within_its_bound() -> None:
    head = new_head(NUM_CLASSES, 100, 1)
    assert max(np.abs(head.weight_MD).max(), np.abs(head.bias_M).max()) <= 0.1


def test_a_server_step_has_the_same_bytes_on_any_machine() -> None:
    """Golden: recorded once; another sum is another result of every run of the method."""
    features = {class_id: near_normal((10, DIM), class_id) for class_id in range(NUM_CLASSES)}
    wanted = {class_id: a_head(class_id) for class_id in range(NUM_CLASSES)}
    after = matched(features, wanted, a_head(9), steps=10, rate=0.1)
    rows = np.concatenate([after[class_id] for class_id in range(NUM_CLASSES)])
    labels = np.repeat(np.arange(NUM_CLASSES), 10)
    head = trained_head(rows, labels, new_head(NUM_CLASSES, DIM, 8), 7, epochs=3, rate=0.01)
    digest = hashlib.sha256(rows.tobytes() + head.weight_MD.tobytes() + head.bias_M.tobytes()).hexdigest()
    assert digest == "6f87c8373eaafb2cd043bf609c7ea5b25a46b9fc491660ab8dbcfa97c5a96a7c"
