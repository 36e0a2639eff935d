"""FedPLCC: published loss values, gradients, awkward points, and the two server equations."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedplcc.method_contract.client_losses import Situation, a_point, gradients
from fedplcc.shared.methods.arithmetic.finch import MergeMean
from fedplcc.shared.methods.prototypical import fpl
from fedplcc.shared.methods.prototypical.fedplcc import Config, client_loss, client_report, server_prototypes
from fedplcc.shared.methods.step import ClientStep
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.ops import TorchOps, to_device
from tests.support import present
from tests.support.mini_batch import a_step

PUBLISHED = PrototypeSet.of([(1, 0), (0.6, 0.8), (0.28, 0.96)], [0, 0, 1], [0.75, 0.25, 1])


def values_of(step: ClientStep, config: Config) -> dict[str, float]:
    return {name: float(term.value) for name, term in client_loss(step, config).items()}


def torch_loss(
    features: npt.ArrayLike,
    labels: list[int],
    prototypes: PrototypeSet,
    num_classes: int,
    config: Config,
    dtype: torch.dtype = torch.float32,
) -> tuple[float, npt.NDArray[np.float64]]:
    """The weighted sum of the prototype terms, and its gradient with respect to the features, as torch computes them."""
    leaf = torch.tensor(np.asarray(features), dtype=dtype, requires_grad=True)
    on_device = present(to_device(prototypes, num_classes, torch.device("cpu")))
    step = ClientStep(
        ops=TorchOps(),
        features_BD=leaf,
        logits_BM=leaf,
        labels_B=torch.tensor(labels),
        task_loss=torch.zeros(()),
        params={},
        start={},
        prototypes=replace(
            on_device, vectors_GD=on_device.vectors_GD.to(dtype), weights_G=on_device.weights_G.to(dtype)
        ),
        round=2,
        total_rounds=10,
    )
    total = torch.zeros((), dtype=dtype)
    for term in client_loss(step, config).values():
        total = total + term.coefficient * term.value
    (gradient_BD,) = torch.autograd.grad(total, leaf)
    return float(total.detach()), gradient_BD.double().numpy()


class TestPublishedValues:
    @pytest.mark.parametrize(
        ("label", "phi", "contra", "corr"),
        [(0, 0.5, 0.00157616, -0.75), (0, 1.0, 0.00157616, -0.943649), (1, 0.5, 6.453549, -0.529150)],
    )
    def test_one_sample(self, label: int, phi: float, contra: float, corr: float) -> None:
        values = values_of(a_step([(1, 0)], [label], PUBLISHED), Config(phi=phi))
        assert values["contra"] == pytest.approx(contra, abs=5e-7)
        assert values["corr"] == pytest.approx(corr, abs=5e-7)


class TestTopK:
    def test_seven_of_a_hundred_are_seven_though_binary_fractions_say_eight(self) -> None:
        assert 0.07 * 100 > 7
        hundred = PrototypeSet.of(np.tile([1.0, 0.0], (100, 1)), [0] * 100, np.full(100, 0.01))
        assert values_of(a_step([(1, 0)], [0], hundred), Config(phi=0.07))["corr"] == pytest.approx(-0.07)


class TestWhatTermsApplyTo:
    def test_without_prototypes_there_is_only_cross_entropy(self) -> None:
        assert list(client_loss(a_step([(1, 0)], [0], None), Config())) == ["ce"]


def random_batch(seed: int) -> tuple[np.ndarray, list[int], PrototypeSet]:
    rng = np.random.default_rng(seed)
    features = rng.uniform(0.05, 2, size=(7, 6))
    class_ids = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    weights = rng.uniform(0.1, 1, size=9)
    weights /= np.bincount(class_ids, weights)[class_ids]
    prototypes = PrototypeSet.of(rng.uniform(0.05, 2, size=(9, 6)), class_ids, weights)
    return features, [0, 1, 2, 3, 0, 1, 2], prototypes


class TestGradient:
    def test_no_gradient_flows_below_the_floor_and_at_most_fifty_above(self) -> None:
        only_pull = Config(lambda1=0, lambda2=1)
        one = PrototypeSet.of([(1, 0)], [0], [1])
        slopes = []
        for cosine in (-0.5, 0.5e-4, 1.0001e-4, 1e-3):
            _, gradient_BD = torch_loss([(cosine, 1)], [0], one, 2, only_pull, torch.float64)
            slopes.append(-gradient_BD[0, 0])
        assert slopes[:2] == [0, 0]
        assert 0 < slopes[3] < slopes[2] <= 50.0


class TestVariants:
    """What grows in, and the ablation of Table V whose weights are 1."""

    @pytest.mark.parametrize(
        ("ramp_rounds", "round_number", "share"),
        [(0, 2, 1), (20, 2, 1 / 20), (20, 11, 0.5), (20, 21, 1), (20, 22, 1), (1, 2, 1), (5, 4, 0.6)],
    )
    def test_both_coefficients_grow_in_equal_steps_and_then_stay(
        self, ramp_rounds: int, round_number: int, share: float
    ) -> None:
        step = a_step([(1, 0)], [1], PUBLISHED, round_number=round_number)
        terms = client_loss(step, Config(ramp_rounds=ramp_rounds))
        assert terms["contra"].coefficient == pytest.approx(share * 100, rel=1e-12)
        assert terms["corr"].coefficient == pytest.approx(share * 1000, rel=1e-12)

    def test_unit_weights_are_the_loss_of_prototypes_that_all_weigh_one(self) -> None:
        features, labels, prototypes = random_batch(1)
        ones = PrototypeSet.of(prototypes.vectors, prototypes.class_ids, np.ones(len(prototypes)))
        off, on = Config(), Config(unit_weights=True)
        weighed = values_of(a_step(features, labels, prototypes, num_classes=4), on)
        assert weighed == values_of(a_step(features, labels, ones, num_classes=4), off)
        assert weighed != values_of(a_step(features, labels, prototypes, num_classes=4), off)

    def test_a_term_that_grows_in_has_the_value_of_one_that_does_not(self) -> None:
        step = a_step([(1, 0), (0.2, 1)], [1, 0], PUBLISHED)
        assert values_of(step, Config(ramp_rounds=7)) == values_of(step, Config())


class TestCorrelationMargin:
    """A margin of the correlation, which is ours."""

    BOTH = Config(lambda1=0.0, lambda2=1.0, phi=1.0)

    def test_a_chosen_prototype_adds_nothing_once_its_similarity_has_reached_the_margin(self) -> None:
        # Similarities of the class's two prototypes: 1 and sqrt(0.6) = 0.775, weights 0.75 and 0.25.
        step = a_step([(1, 0)], [0], PUBLISHED)
        pulls = {
            margin: values_of(step, self.BOTH.model_copy(update={"corr_margin": margin}))["corr"]
            for margin in (1.0, 0.9, 0.6**0.5, 0.5)
        }
        assert pulls[1.0] == pytest.approx(-0.75 - 0.25 * 0.6**0.5)
        assert pulls[0.9] == pytest.approx(-0.25 * 0.6**0.5)
        assert pulls[0.6**0.5] == pulls[0.5] == 0, "at the margin too"

    def test_what_the_margin_leaves_out_is_not_replaced_by_the_next_prototype(self) -> None:
        step = a_step([(1, 0)], [0], PUBLISHED)
        assert values_of(step, self.BOTH.model_copy(update={"corr_margin": 0.9, "phi": 0.5}))["corr"] == 0

    def test_a_feature_within_the_margin_of_all_its_prototypes_has_no_gradient(self) -> None:
        config = self.BOTH.model_copy(update={"corr_margin": 0.7})
        _, gradient_BD = torch_loss([(1, 0.5), (0.02, 1)], [0, 1], PUBLISHED, 2, config)
        assert np.abs(gradient_BD).max() == 0
        _, gradient_BD = torch_loss([(1, 0.5), (0.02, 1)], [0, 1], PUBLISHED, 2, self.BOTH)
        assert np.abs(gradient_BD).min(axis=1).min() > 0

    def test_a_margin_of_one_pulls_a_similarity_that_rounding_has_put_at_one(self) -> None:
        total, _ = torch_loss([(1, 0)], [0], PrototypeSet.of([(3, 0)], [0], [1]), 1, self.BOTH)
        assert total == -1


class TestOtherReadings:
    """Of eq. 6, 8 and 11, for the search of what Table V was computed by."""

    def test_weights_in_the_exponent_by_hand(self) -> None:
        values = values_of(a_step([(1, 0)], [0], PUBLISHED), Config(weights_in="exponent"))
        masses = np.exp(np.sqrt([1, 0.6, 0.28]) * [0.75, 0.25, 1] / 0.07)
        assert values["contra"] == pytest.approx(-np.log(masses[:2].sum() / masses.sum()), rel=1e-6)
        assert values["corr"] == values_of(a_step([(1, 0)], [0], PUBLISHED), Config())["corr"]

    @pytest.mark.parametrize(("phi", "chosen"), [(0.3, [0]), (0.34, [0, 2]), (1.0, [0, 1, 2])])
    def test_a_correlation_over_all_classes_takes_the_strongest_pulls_of_all(
        self, phi: float, chosen: list[int]
    ) -> None:
        # Similarities 1, sqrt(0.6), sqrt(0.28), the last of another class; weights 0.75, 0.25 and 1.
        pulls = np.sqrt([1, 0.6, 0.28]) * [0.75, 0.25, 1]
        step = a_step([(1, 0)], [0], PUBLISHED)
        config = Config(corr_over="all", phi=phi)
        assert values_of(step, config)["corr"] == pytest.approx(-pulls[chosen].sum(), rel=1e-6)
        assert values_of(step, config)["contra"] == values_of(step, Config())["contra"]

    def test_a_sample_whose_class_has_no_prototype_is_pulled_to_none_of_another(self) -> None:
        step = a_step([(1, 0), (1, 0)], [0, 2], PUBLISHED, num_classes=3)
        alone = a_step([(1, 0)], [0], PUBLISHED, num_classes=3)
        config = Config(corr_over="all")
        assert values_of(step, config)["corr"] == pytest.approx(values_of(alone, config)["corr"] / 2)


class TestBesideFpl:
    """Invariant: even weights 1/C, plain cosines and no correlation are FPL's contrast where classes are equally large."""

    @pytest.mark.parametrize("class_size", [1, 2, 4])
    def test_value_and_gradient_are_fpls(self, class_size: int) -> None:
        rng = np.random.default_rng(class_size)
        class_ids = np.repeat(np.arange(3), class_size)
        even = PrototypeSet.of(
            rng.uniform(0.05, 1, (len(class_ids), 5)), class_ids, np.full(len(class_ids), 1 / class_size)
        )
        situation = Situation(labels_B=[0, 1, 2, 0, 3], num_classes=4, prototypes=even)
        point = a_point(rng.uniform(0.05, 1, (5, 5)), 4)
        ours = gradients(client_loss, Config(alpha=1, tau=0.2, lambda2=0.0), point, situation)["contra"]
        theirs = gradients(fpl.client_loss, fpl.Config(tau=0.2, lambda2=0.0), point, situation)["cpcl"]
        assert ours[0] == pytest.approx(theirs[0], rel=1e-12)
        np.testing.assert_allclose(ours[1]["features"], theirs[1]["features"], rtol=1e-9, atol=1e-14)


class TestConfig:
    def test_defaults_are_the_papers(self) -> None:
        config = Config()
        assert (config.alpha, config.tau, config.phi, config.lambda1, config.lambda2) == (0.5, 0.07, 0.5, 100, 1000)
        assert (config.topk_rank, config.merge_mean, config.partition) == ("weighted", "plain", "last")
        assert (config.min_cluster_size, config.averaging) == (1, "weighted")


def on_circle(degrees: list[float]) -> np.ndarray:
    angles = np.deg2rad(np.asarray(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


class TestReport:
    def test_a_centre_is_the_mean_of_features_as_they_are(self) -> None:
        features = np.array([[2, 0], [4, 0.1], [0, 6], [0.1, 2]], np.float32)
        report = client_report(features, np.zeros(4, np.int64), 1, Config())
        np.testing.assert_allclose(report.prototypes.vectors, [[3, 0.05], [0.05, 4]], rtol=1e-6)
        assert report.prototypes.weights.tolist() == [2, 2]

    def test_partition_is_chosen_on_the_client_too(self) -> None:
        features, labels = on_circle([0, 2, 9, 11, 40, 42, 49, 51]).astype(np.float32), np.zeros(8, np.int64)
        assert client_report(features, labels, 1, Config(partition="first")).prototypes.weights.tolist() == [2, 2, 2, 2]
        assert client_report(features, labels, 1, Config(partition="last")).prototypes.weights.tolist() == [4, 4]


class TestServer:
    DEGREES: ClassVar[list[float]] = [0, 4, 10, 30, 33, 70, 75, 77]
    COUNTS: ClassVar[list[int]] = [5, 1, 1, 10, 2, 3, 3, 1]

    def clients(self) -> list[PrototypeSet]:
        """The published vector as class 1 of three clients, with another class in between."""
        other = on_circle([0, 90])
        sets = []
        for part in (slice(0, 3), slice(3, 5), slice(5, 8)):
            rows = np.concatenate([other[:1], on_circle(self.DEGREES[part]), other[1:]])
            class_ids = [0] + [1] * (len(rows) - 2) + [2]
            sets.append(PrototypeSet.of(rows, class_ids, [4, *self.COUNTS[part], 4]))
        return sets

    @pytest.mark.parametrize(
        ("merge_mean", "first_centre"), [("plain", (0.994124, 0.081135)), ("weighted", (0.997482, 0.034772))]
    )
    def test_each_class_is_clustered_over_all_clients_and_normalised(
        self, merge_mean: MergeMean, first_centre: tuple[float, float]
    ) -> None:
        merged = server_prototypes(self.clients(), 4, Config(merge_mean=merge_mean))
        assert merged.class_ids.tolist() == [0, 1, 1, 1, 2]
        np.testing.assert_allclose(merged.weights, [1, 7 / 26, 12 / 26, 7 / 26, 1], rtol=1e-6)
        np.testing.assert_allclose(merged.vectors[1], first_centre, atol=1e-6)
        assert merged.group_ids.tolist() == [-1] * 5

    @pytest.mark.parametrize(
        ("config", "weights"),
        [
            # Classes 0, 1 and 2 have 12, 26 and 12 samples, and 1, 3 and 1 prototypes.
            (Config(weights_by="prototypes"), [1, 1 / 3, 1 / 3, 1 / 3, 1]),
            (Config(weights_over="all"), [12 / 50, 7 / 50, 12 / 50, 7 / 50, 12 / 50]),
            (Config(weights_by="prototypes", weights_over="all"), [1 / 5] * 5),
        ],
    )
    def test_other_readings_of_the_normalisation_keep_the_centres(self, config: Config, weights: list[float]) -> None:
        merged, published = (server_prototypes(self.clients(), 4, each) for each in (config, Config()))
        np.testing.assert_allclose(merged.weights, weights, rtol=1e-6)
        assert merged.vectors.tobytes() == published.vectors.tobytes()

    def test_partition_is_chosen_on_the_server_too(self) -> None:
        rows = PrototypeSet.of(on_circle([0, 2, 9, 11, 40, 42, 49, 51]), [0] * 8, [1] * 8)
        assert len(server_prototypes([rows], 1, Config(partition="first"))) == 4
        assert len(server_prototypes([rows], 1, Config(partition="last"))) == 2
