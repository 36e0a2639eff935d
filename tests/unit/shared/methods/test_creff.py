"""CReFF's two halves."""

from __future__ import annotations

import numpy as np
import pytest

from fedplcc.shared.methods.arrays import ArrayGroup
from fedplcc.shared.methods.heads import creff
from fedplcc.shared.methods.heads.creff import METHOD, Config
from fedplcc.shared.methods.heads.creff_matching import Head, head_gradient, matching
from fedplcc.shared.methods.parts.arrays import ServerArrays
from fedplcc.shared.methods.parts.part import BeforeTraining, ServerResult, ServerRound

NUM_CLASSES, DIM = 3, 5
SMALL = creff.Config(num_features=6, match_steps=20, retrain_epochs=30)


def a_head(seed: int, names: tuple[str, str] = ("weight", "bias")) -> ArrayGroup:
    rng = np.random.default_rng(seed)
    arrays = (rng.normal(size=(NUM_CLASSES, DIM)), rng.normal(size=NUM_CLASSES))
    return {name: array.astype(np.float32) for name, array in zip(names, arrays, strict=True)}


def uploaded(labels: list[int], received: ArrayGroup | None = None, seed: int = 0) -> ArrayGroup:
    rng = np.random.default_rng(seed)
    before = BeforeTraining(
        features_ND=rng.normal(size=(len(labels), DIM)).astype(np.float32),
        labels_N=np.array(labels),
        num_classes=NUM_CLASSES,
        head=a_head(1, ("head.weight", "head.bias")),
        received={} if received is None else {creff.HEAD: received},
    )
    return creff.before_training(before, SMALL)[creff.GRADIENTS]


def a_step(uploads: list[ArrayGroup], before: ServerResult | None = None, number: int = 1) -> ServerResult:
    step = ServerRound(
        round=number,
        seed=3,
        num_classes=NUM_CLASSES,
        feature_dim=DIM,
        uploads=({creff.GRADIENTS: group} for group in uploads),
        arrays={} if before is None else before.arrays,
        start_head=a_head(1, ("head.weight", "head.bias")),
        head=a_head(2, ("head.weight", "head.bias")),
    )
    return creff.server_step(step, SMALL)


def test_a_client_sends_one_gradient_for_each_class_that_it_has() -> None:
    group = uploaded([2, 0, 2, 2])
    assert group["classes"].tolist() == [0, 2]
    assert group["weight"].shape == (2, NUM_CLASSES, DIM)
    assert group["bias"].shape == (2, NUM_CLASSES)
    np.testing.assert_allclose(group["bias"].sum(1), 0, atol=1e-6)


def test_gradients_are_with_respect_to_the_head_that_came_and_to_the_models_before_there_is_one() -> None:
    features = np.random.default_rng(0).normal(size=(4, DIM)).astype(np.float32).astype(np.float64)
    for received, head in ((None, a_head(1)), (a_head(7), a_head(7))):
        expected = head_gradient(features, 1, Head(head["weight"].astype(float), head["bias"].astype(float)))
        np.testing.assert_allclose(uploaded([1] * 4, received)["weight"][0], expected.weight_MD, rtol=1e-6)


def test_the_rounds_model_gets_the_head_that_is_kept() -> None:
    result = a_step([uploaded([0, 1, 2])])
    assert result.head is not None
    assert result.head.keys() == {"head.weight", "head.bias"}
    assert result.head["head.weight"].tobytes() == result.arrays[creff.HEAD]["weight"].tobytes()
    assert result.head["head.bias"].tobytes() == result.arrays[creff.HEAD]["bias"].tobytes()


def test_features_come_nearer_to_the_mean_gradient_and_those_of_an_absent_class_stay() -> None:
    groups = [uploaded([0, 0, 1], seed=1), uploaded([0, 1, 1], seed=2)]
    first = a_step([])
    second = a_step(groups, first, number=2)
    before, after = (each.arrays[creff.FEATURES]["features"].astype(np.float64) for each in (first, second))
    assert after[2].tobytes() == before[2].tobytes()
    kept = first.arrays[creff.HEAD]
    head = Head(kept["weight"].astype(float), kept["bias"].astype(float))
    for class_id in (0, 1):
        mean = Head(
            *(np.mean([group[name][class_id] for group in groups], 0, dtype=float) for name in ("weight", "bias"))
        )
        assert matching(after[class_id], class_id, head, mean)[0] < matching(before[class_id], class_id, head, mean)[0]


def test_the_mean_of_a_class_is_over_the_clients_that_have_it() -> None:
    alone = uploaded([0, 0, 1], seed=1)
    other = uploaded([2, 2], seed=2)
    features = [a_step(groups).arrays[creff.FEATURES]["features"] for groups in ([alone], [alone, other])]
    assert features[0][:2].tobytes() == features[1][:2].tobytes()
    assert features[0][2].tobytes() != features[1][2].tobytes()


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [([0, 2], None), ([1], "has no samples"), ([3], "has no samples"), ([-1], "has no samples"), ([2, 0], "ascend")],
)
def test_gradients_are_of_classes_that_the_client_has_in_their_order(classes: list[int], sentence: str | None) -> None:
    group = {"classes": np.array(classes), "bias": np.ones((len(classes), 3), np.float32)}
    fault = creff.upload_fault({creff.GRADIENTS: group}, [4, 0, 1], SMALL)
    assert fault is None if sentence is None else fault is not None and sentence in fault


def test_a_gradient_beyond_all_probabilities_is_refused() -> None:
    group = uploaded([2, 0, 2, 2])
    assert creff.upload_fault({creff.GRADIENTS: group}, [1, 0, 3], SMALL) is None
    fault = creff.upload_fault({creff.GRADIENTS: {**group, "bias": group["bias"] * 1000}}, [1, 0, 3], SMALL)
    assert fault is not None
    assert "of no probabilities" in fault


def test_clients_are_compared_by_their_features_and_not_by_what_they_have_learned() -> None:
    learned = {"weight": np.zeros((NUM_CLASSES, DIM), np.float32), "bias": np.array([6, 0, 0], np.float32)}
    groups = [uploaded([0] * 9), uploaded([0] * 9, learned)]
    gradients = [float(np.linalg.norm(group["weight"][0])) for group in groups]
    sizes = [creff.METHOD.compared({creff.GRADIENTS: group})[creff.GRADIENTS]["weight"] for group in groups]
    assert gradients[0] > 50 * gradients[1]
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=0.5)
    loud = creff.METHOD.compared({creff.GRADIENTS: {**groups[0], "weight": groups[0]["weight"] * 1000}})
    np.testing.assert_allclose(loud[creff.GRADIENTS]["weight"], sizes[0] * 1000, rtol=1e-5)


def test_it_begins_with_the_published_settings() -> None:
    config = Config()
    assert (config.num_features, config.match_steps, config.match_lr) == (100, 100, 0.1)
    assert (config.retrain_epochs, config.retrain_lr) == (300, 0.01)
    arrays = METHOD.part(ServerArrays)
    assert arrays is not None
    assert arrays.needs_linear_head
