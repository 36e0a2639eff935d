"""FedPLVM: the authors' published loss by another road, both corrections, gradients, and its place beside FedPLCC."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, mse_loss

from fedplcc.method_contract.client_losses import Situation, a_point, gradients, values
from fedplcc.shared.methods.prototypical import fedplcc
from fedplcc.shared.methods.prototypical.fedplvm import Config, client_loss, client_report, server_prototypes
from fedplcc.shared.types import PrototypeSet

CENTRES = PrototypeSet.of([(1, 0), (0.6, 0.8), (0.28, 0.96)], [0, 0, 1], [0.75, 0.25, 1])


def of(labels: list[int], prototypes: PrototypeSet = CENTRES, num_classes: int = 3) -> Situation:
    return Situation(labels_B=labels, num_classes=num_classes, prototypes=prototypes)


def a_batch(seed: int) -> tuple[np.ndarray, list[int], PrototypeSet]:
    rng = np.random.default_rng(seed)
    prototypes = PrototypeSet.of(rng.uniform(0.05, 1, (7, 5)), [0, 0, 0, 1, 1, 3, 3], rng.uniform(0.1, 1, 7))
    return rng.uniform(0.05, 1, (6, 5)), [0, 1, 2, 3, 0, 1], prototypes


def by_torch(features: np.ndarray, labels: list[int], prototypes: PrototypeSet, config: Config) -> tuple[float, float]:
    """The authors' code: softmax over all centres, and twice the mean squared error of a cosine to 1."""
    vectors = torch.tensor(prototypes.vectors, dtype=torch.float64)
    contrasts, corrections = [], []
    for row, label in zip(torch.tensor(features), labels, strict=True):
        own = torch.tensor(prototypes.class_ids == label)
        sparse = cosine_similarity(row[None], vectors) ** config.alpha
        if not own.any():
            contrasts.append(torch.zeros((), dtype=torch.float64))
            corrections.append(torch.zeros((), dtype=torch.float64))
            continue
        contrasts.append(-torch.softmax(sparse / config.tau, 0)[own].sum().log())
        if config.corr == "mean_proto":
            cosine = cosine_similarity(row, vectors[own].mean(0), dim=0)
            corrections.append(2 * mse_loss(cosine, torch.ones_like(cosine)))
        else:
            corrections.append(mse_loss(sparse[own], torch.ones_like(sparse[own])))
    return torch.stack(contrasts).mean().item(), torch.stack(corrections).mean().item()


class TestValues:
    @pytest.mark.parametrize("corr", ["mean_proto", "all_protos"])
    @pytest.mark.parametrize("seed", range(3))
    def test_terms_are_those_of_the_authors_code_by_another_road(
        self, seed: int, corr: Literal["mean_proto", "all_protos"]
    ) -> None:
        features, labels, prototypes = a_batch(seed)
        config = Config(corr=corr)
        found = values(client_loss, config, a_point(features, 4), of(labels, prototypes, 4))
        contrast, correction = by_torch(features, labels, prototypes, config)
        assert found["contra"] == pytest.approx(contrast, rel=1e-6)
        assert found["corr"] == pytest.approx(correction, rel=1e-6)

    def test_a_missing_class_and_a_zero_feature_add_nothing_but_count_in_the_mean(self) -> None:
        for corr in ("mean_proto", "all_protos"):
            config = Config(corr=corr)
            alone = values(client_loss, config, a_point([(1, 0)], 3), of([1]))
            beside = values(client_loss, config, a_point([(1, 0), (1, 0), (0, 0), (1, 0)], 3), of([1, 2, 1, 1]))
            assert beside["contra"] == pytest.approx(alone["contra"] / 2)
            assert beside["corr"] == pytest.approx(alone["corr"] / 2)

    def test_one_coefficient_multiplies_both_terms(self) -> None:
        terms = gradients(client_loss, Config(), a_point([(1, 0)], 3), of([0]))
        assert list(terms) == ["ce", "contra", "corr"]
        assert list(values(client_loss, Config(lambda1=0), a_point([(1, 0)], 3), of([0]))) == ["ce"]

    def test_the_defaults_are_the_codes(self) -> None:
        config = Config()
        assert (config.alpha, config.tau, config.lambda1, config.corr) == (0.25, 0.07, 100, "mean_proto")


class TestBesideFedPlcc:
    """FedPLCC extends FedPLVM: with its weights and its correction off they are one contrast."""

    @pytest.mark.parametrize("alpha", [0.25, 0.5, 1.0])
    def test_unit_weights_give_fedplvms_contrast(self, alpha: float) -> None:
        features, labels, prototypes = a_batch(4)
        situation = of(labels, prototypes, 4)
        other = fedplcc.Config(alpha=alpha, unit_weights=True, lambda2=0.0)
        extended = gradients(fedplcc.client_loss, other, a_point(features, 4), situation)
        plain = gradients(client_loss, Config(alpha=alpha), a_point(features, 4), situation)
        assert list(extended) == ["ce", "contra"]
        assert extended["contra"][0] == plain["contra"][0]
        np.testing.assert_array_equal(extended["contra"][1]["features"], plain["contra"][1]["features"])

    def test_both_find_the_same_centres(self) -> None:
        rng = np.random.default_rng(0)
        features, labels = rng.uniform(0, 1, (60, 5)).astype(np.float32), rng.integers(0, 3, 60)
        parts = [(features[part], labels[part]) for part in (slice(0, 30), slice(30, 60))]
        ours = [client_report(*part, 3, Config()).prototypes for part in parts]
        theirs = [fedplcc.client_report(*part, 3, fedplcc.Config()).prototypes for part in parts]
        for left, right in zip(ours, theirs, strict=True):
            assert left.vectors.tobytes() == right.vectors.tobytes()
        merged = server_prototypes(ours, 3, Config())
        assert merged.vectors.tobytes() == fedplcc.server_prototypes(theirs, 3, fedplcc.Config()).vectors.tobytes()
