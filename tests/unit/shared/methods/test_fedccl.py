"""FedCCL: both contrasts against torch's own softmax, the pool and the averaged signals, the model that is kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from fedplcc.method_contract.client_losses import Situation, a_point, values
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.prototypical.fedccl import (
    METHOD,
    Config,
    client_loss,
    local_model,
    next_client_state,
    server_prototypes,
)
from fedplcc.shared.types import PrototypeSet


def a_set(vectors: npt.ArrayLike, class_ids: Sequence[int] | np.ndarray, groups: npt.ArrayLike) -> PrototypeSet:
    rows = PrototypeSet.of(vectors, class_ids, np.ones(len(class_ids)))
    return PrototypeSet(rows.vectors, rows.class_ids, rows.weights, np.asarray(groups, np.int64))


SIGNALS = a_set([(1, 0), (0.6, 0.8), (0, 3), (2, 1), (0, 1)], [0, 0, 1, 0, 1], [0, 1, 1, -1, -1])
"""Local signals of two clients, then one averaged signal for each of classes 0 and 1."""


def of(labels: list[int], prototypes: PrototypeSet = SIGNALS, num_classes: int = 3) -> Situation:
    return Situation(labels_B=labels, num_classes=num_classes, prototypes=prototypes)


def a_batch(seed: int) -> tuple[np.ndarray, list[int], PrototypeSet]:
    rng = np.random.default_rng(seed)
    class_ids, groups = [0, 0, 0, 1, 1, 3, 0, 1, 3], [0, 0, 1, 0, 2, 2, -1, -1, -1]
    return rng.normal(size=(6, 5)), [0, 1, 2, 3, 0, 1], a_set(rng.normal(size=(9, 5)), class_ids, groups)


def by_torch(features: np.ndarray, labels: list[int], signals: PrototypeSet, tau: float) -> tuple[float, float]:
    """Eq. 16: probabilities of a softmax over the pool, summed over the positives; eq. 17: a cross-entropy over classes."""
    vectors = torch.tensor(signals.vectors, dtype=torch.float64)
    is_pooled = torch.tensor(signals.group_ids >= 0)
    classes = torch.tensor(signals.class_ids)
    local, averaged = [], []
    for row, label in zip(torch.tensor(features), labels, strict=True):
        if label not in signals.class_ids:
            local.append(0.0)
            averaged.append(0.0)
            continue
        logits = cosine_similarity(row[None], vectors) / tau
        own = classes[is_pooled] == label
        local.append(-math.log(torch.softmax(logits[is_pooled], 0)[own].sum().item()))
        target = classes[~is_pooled].tolist().index(label)
        averaged.append(cross_entropy(logits[~is_pooled][None], torch.tensor([target])).item())
    return sum(local) / len(local), sum(averaged) / len(averaged)


class TestValues:
    @pytest.mark.parametrize("tau", [0.07, 0.5])
    @pytest.mark.parametrize("seed", range(3))
    def test_terms_are_the_papers_by_another_road(self, seed: int, tau: float) -> None:
        features, labels, signals = a_batch(seed)
        found = values(client_loss, Config(tau=tau), a_point(features, 4), of(labels, signals, 4))
        local, averaged = by_torch(features, labels, signals, tau)
        assert found["local"] == pytest.approx(local, rel=1e-6)
        assert found["global"] == pytest.approx(averaged, rel=1e-6)

    def test_a_missing_class_and_a_zero_feature_add_nothing_but_count_in_the_mean(self) -> None:
        alone = values(client_loss, Config(), a_point([(1, 0.5)], 3), of([1]))
        beside = values(client_loss, Config(), a_point([(1, 0.5), (1, 0), (0, 0), (1, 0.5)], 3), of([1, 2, 0, 1]))
        assert beside["local"] == pytest.approx(alone["local"] / 2)
        assert beside["global"] == pytest.approx(alone["global"] / 2)

    def test_the_defaults_are_the_papers(self) -> None:
        config = Config()
        assert (config.tau, config.lambda1, config.lambda2, config.max_pool_per_class) == (0.07, 1, 1, None)


class TestServer:
    CLIENTS = (
        PrototypeSet.of([(1, 0), (0, 1), (0, 2)], [0, 1, 1], [30, 5, 6]),
        PrototypeSet.empty(2),
        PrototypeSet.of([(4, 1)], [0], [10]),
    )

    def test_it_sends_every_local_signal_with_its_client_and_one_averaged_signal_a_class(self) -> None:
        merged = server_prototypes(self.CLIENTS, 3, Config())
        assert merged.class_ids.tolist() == [0, 0, 1, 1, 0, 1]
        assert merged.group_ids.tolist() == [0, 2, 0, 0, -1, -1]
        assert merged.weights.tolist() == [30, 10, 5, 6, 1, 1]
        np.testing.assert_allclose(merged.vectors[4:], [(2.5, 0.5), (0, 1.5)])

    def test_an_averaged_signal_is_the_mean_of_the_global_clusters_not_of_the_pool(self) -> None:
        angles = np.deg2rad([0, 3, 5, 9, 90, 91])
        pool = PrototypeSet.of(np.stack([np.cos(angles), np.sin(angles)], 1), [0] * 6, [1] * 6)
        merged = server_prototypes([pool], 1, Config())
        clusters = pool.vectors.astype(np.float64)
        expected = (clusters[:4].mean(0) + clusters[4:].mean(0)) / 2
        np.testing.assert_allclose(merged.vectors[-1], expected, atol=1e-7)
        assert merged.group_ids.tolist() == [0] * 6 + [-1]

    def test_of_a_pool_that_is_too_large_those_that_stand_for_the_most_samples_stay(self) -> None:
        rows = PrototypeSet.of([(1, 0), (2, 0), (3, 0), (4, 0), (0, 1)], [0, 0, 0, 0, 1], [3, 9, 9, 2, 1])
        merged = server_prototypes([rows], 2, Config(max_pool_per_class=2))
        assert merged.vectors[:, 0].tolist() == [2, 3, 0, 2.5, 0]
        assert merged.class_ids.tolist() == [0, 0, 1, 0, 1]

    def test_the_limit_changes_what_is_sent_and_not_what_is_averaged(self) -> None:
        whole = server_prototypes(self.CLIENTS, 3, Config())
        cut = server_prototypes(self.CLIENTS, 3, Config(max_pool_per_class=1))
        assert cut.group_ids.tolist() == [0, 0, -1, -1]
        assert cut.vectors[2:].tobytes() == whole.vectors[4:].tobytes()


def test_a_client_keeps_the_model_that_it_trained_and_evaluates_it() -> None:
    received, trained = {"w": np.zeros(2, np.float32)}, {"w": np.ones(2, np.float32)}
    state = next_client_state(ClientEnd(received=received, trained=trained, state=None, round=1), Config())
    assert local_model(received, state, Config()) == trained
    assert local_model(received, None, Config()) is None
    assert METHOD.start_of(received, state, Config()) is None
    assert METHOD.shares_model(Config())
