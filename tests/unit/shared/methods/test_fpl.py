"""FPL: both terms against torch's own softmax and distance, the paper's numbers, and the two server equations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cosine_similarity, mse_loss

from fedplcc.method_contract.client_losses import Situation, a_point, gradients, values
from fedplcc.shared.methods.prototypical.fpl import Config, client_loss, client_report, server_prototypes
from fedplcc.shared.types import PrototypeSet

CLUSTERS = PrototypeSet.of([(1, 0), (0.6, 0.8), (0, 3)], [0, 0, 1], [0.75, 0.25, 1])


def of(labels: list[int], prototypes: PrototypeSet = CLUSTERS, num_classes: int = 3) -> Situation:
    return Situation(labels_B=labels, num_classes=num_classes, prototypes=prototypes)


def by_torch(features: np.ndarray, labels: list[int], prototypes: PrototypeSet, tau: float) -> tuple[float, float]:
    """Eq. 8 as the cross-entropy of a softmax whose classes are prototypes, its probabilities summed over the positives;
    eq. 6 and 10 from means of the rows."""
    total, distance = [], []
    vectors = torch.tensor(prototypes.vectors, dtype=torch.float64)
    for row, label in zip(torch.tensor(np.asarray(features), dtype=torch.float64), labels, strict=True):
        probabilities = torch.softmax(cosine_similarity(row[None], vectors) / tau, 0)
        own = torch.tensor(prototypes.class_ids == label)
        if not own.any():
            total.append(0.0)
            distance.append(0.0)
            continue
        total.append(-math.log(probabilities[own].sum().item()))
        distance.append(mse_loss(row, vectors[own].mean(0)).item())
    return sum(total) / len(total), sum(distance) / len(distance)


class TestValues:
    @pytest.mark.parametrize("tau", [0.02, 0.2, 2.0])
    @pytest.mark.parametrize("seed", range(3))
    def test_terms_are_the_papers_by_another_road(self, seed: int, tau: float) -> None:
        rng = np.random.default_rng(seed)
        prototypes = PrototypeSet.of(rng.uniform(0, 1, (7, 5)), [0, 0, 0, 1, 1, 3, 3], rng.uniform(0.1, 1, 7))
        features, labels = rng.uniform(0, 1, (6, 5)), [0, 1, 2, 3, 0, 1]
        found = values(client_loss, Config(tau=tau), a_point(features, 4), of(labels, prototypes, 4))
        contrast, distance = by_torch(features, labels, prototypes, tau)
        assert found["cpcl"] == pytest.approx(contrast, rel=1e-7)
        assert found["upcr"] == pytest.approx(distance, rel=1e-6)

    def test_summed_as_typeset_the_distance_is_as_many_times_larger_as_there_are_dimensions(self) -> None:
        point, situation = a_point(np.random.default_rng(0).normal(size=(4, 2)), 3), of([0, 1, 2, 0])
        mean, typeset = (
            values(client_loss, Config(upcr_reduction=reduction), point, situation)["upcr"]
            for reduction in ("mean", "sum")
        )
        assert typeset == pytest.approx(2 * mean, rel=1e-12)

    def test_the_smallest_temperature_overflows_nowhere(self) -> None:
        value, slopes = gradients(
            client_loss, Config(tau=1e-3), a_point([(0, 1), (1, 0)], 3), of([0, 1]), torch.float32
        )["cpcl"]
        assert value == pytest.approx((0.2 + 1) / 2 / 1e-3, rel=1e-3)
        assert np.isfinite(slopes["features"]).all()

    def test_a_zero_feature_adds_to_the_distance_and_nothing_to_the_contrast(self) -> None:
        found = gradients(client_loss, Config(), a_point([(0, 0), (1, 0)], 3), of([1, 0]))
        assert not found["cpcl"][1]["features"][0].any()
        np.testing.assert_allclose(found["upcr"][1]["features"][0], [0, -1.5])

    @pytest.mark.parametrize(
        ("lambda1", "lambda2", "names"),
        [(0, 0, ["ce"]), (1, 0, ["ce", "cpcl"]), (0, 1, ["ce", "upcr"]), (1, 1, ["ce", "cpcl", "upcr"])],
    )
    def test_a_term_with_coefficient_zero_is_left_out(self, lambda1: int, lambda2: int, names: list[str]) -> None:
        config = Config(lambda1=lambda1, lambda2=lambda2)
        assert list(values(client_loss, config, a_point([(1, 0)], 3), of([0]))) == names

    def test_the_defaults_are_the_papers_and_the_codes(self) -> None:
        config = Config()
        assert (config.tau, config.lambda1, config.lambda2) == (0.02, 1, 1)
        assert (config.upcr_reduction, config.partition) == ("mean", "last")


def on_circle(degrees: list[int], radii: float | np.ndarray = 1.0) -> np.ndarray:
    angles = np.deg2rad(np.asarray(degrees, float))
    return np.asarray(np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.broadcast_to(radii, len(angles))[:, None])


class TestServer:
    def test_clients_means_of_a_class_are_clustered_and_averaged_alike(self) -> None:
        degrees, counts = [0, 4, 10, 30, 33, 70, 75, 77], [5, 1, 1, 10, 2, 3, 3, 1]
        clients = [
            PrototypeSet.of(on_circle([angle]), [1], [count]) for angle, count in zip(degrees, counts, strict=True)
        ]
        merged = server_prototypes(clients, 3, Config())
        assert merged.class_ids.tolist() == [1, 1, 1]
        np.testing.assert_allclose(
            merged.vectors, [(0.994124, 0.081135), (0.852348, 0.522320), (0.275263, 0.959996)], atol=1e-6
        )

    @pytest.mark.parametrize("num_clients", [1, 2, 3])
    def test_with_three_clients_or_fewer_a_class_has_one_prototype_their_mean(self, num_clients: int) -> None:
        rows = on_circle([0, 80, 170][:num_clients])
        merged = server_prototypes([PrototypeSet.of([row], [0], [7]) for row in rows], 1, Config())
        np.testing.assert_allclose(merged.vectors, [rows.astype(np.float32).mean(0)], atol=1e-7)

    def test_partition_is_chosen(self) -> None:
        clients = [PrototypeSet.of(on_circle([angle]), [0], [1]) for angle in (0, 2, 9, 11, 40, 42, 49, 51)]
        assert len(server_prototypes(clients, 1, Config(partition="first"))) == 4
        assert len(server_prototypes(clients, 1, Config(partition="last"))) == 2


def test_what_a_client_sends_is_the_mean_of_each_of_its_classes() -> None:
    features = np.array([(1, 0), (3, 0), (0, 5)], np.float32)
    report = client_report(features, np.array([1, 1, 0]), 3, Config())
    assert report.prototypes.vectors.tolist() == [[0, 5], [2, 0]]
    assert report.prototypes.weights.tolist() == [1, 2]
