"""MOON: values by hand, gradients, awkward points, and what it does to a real local training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedplcc.shared.methods.moon import METHOD, PREVIOUS, RECEIVED, Config, client_loss
from fedplcc.shared.methods.step import ClientStep
from fedplcc.trainer.learning.ops import TorchOps
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs, local_train
from fedplcc.trainer.models import state_arrays
from tests.support.mini_batch import a_step
from tests.unit.trainer.builders import a_config, a_model, digest, some_data

RIGHT, UP, DIAGONAL = (1.0, 0.0), (0.0, 1.0), (0.6, 0.8)


def contrast_of(features: npt.ArrayLike, received: npt.ArrayLike, previous: npt.ArrayLike, config: Config) -> float:
    references = {RECEIVED: received, PREVIOUS: previous}
    step = a_step(features, np.zeros(len(np.asarray(features)), int), None, reference_features=references)
    return float(client_loss(step, config)["contrast"].value)


def torch_contrast(
    features: npt.ArrayLike, received: npt.ArrayLike, previous: npt.ArrayLike, config: Config, dtype: torch.dtype
) -> tuple[float, npt.NDArray[np.float64]]:
    """The contrast and its gradient with respect to the features, as torch computes them."""
    leaf, *references = (torch.tensor(np.asarray(rows), dtype=dtype) for rows in (features, received, previous))
    leaf.requires_grad_(True)
    step = ClientStep(
        ops=TorchOps(),
        features_BD=leaf,
        logits_BM=leaf,
        labels_B=torch.zeros(len(leaf), dtype=torch.int64),
        task_loss=torch.zeros(()),
        params={},
        start={},
        prototypes=None,
        round=2,
        total_rounds=10,
        reference_features=dict(zip((RECEIVED, PREVIOUS), references, strict=True)),
    )
    value = client_loss(step, config)["contrast"].value
    (gradient_BD,) = torch.autograd.grad(value, leaf)
    return float(value.detach()), gradient_BD.double().numpy()


class TestValues:
    @pytest.mark.parametrize("tau", [0.5, 1.0])
    def test_it_is_the_papers_equation(self, tau: float) -> None:
        a, b = 0.6 / tau, 0.8 / tau  # cosines of the diagonal with right and up
        expected = -math.log(math.exp(a) / (math.exp(a) + math.exp(b)))
        assert contrast_of([DIAGONAL], [RIGHT], [UP], Config(tau=tau)) == pytest.approx(expected, rel=1e-12)
        value, _ = torch_contrast([DIAGONAL], [RIGHT], [UP], Config(tau=tau), torch.float32)
        assert value == pytest.approx(expected, rel=1e-6)

    def test_a_zero_feature_adds_nothing_but_counts_in_the_mean(self) -> None:
        alone = contrast_of([DIAGONAL], [RIGHT], [UP], Config())
        beside = contrast_of([DIAGONAL, (0, 0)], [RIGHT, RIGHT], [UP, UP], Config())
        assert beside == pytest.approx(alone / 2)

    def test_lengths_do_not_matter_and_a_batch_is_the_mean_of_its_samples(self) -> None:
        config = Config()
        alone = [contrast_of([z], [RIGHT], [UP], config) for z in (DIAGONAL, RIGHT)]
        both = contrast_of([DIAGONAL, (9.0, 0.0)], [RIGHT, (0.1, 0.0)], [UP, UP], config)
        assert both == pytest.approx(sum(alone) / 2, rel=1e-12)

    def test_the_defaults_are_the_papers(self) -> None:
        assert (Config().mu, Config().tau) == (1.0, 0.5)

    def test_the_coefficient_is_reported_apart_from_the_value(self) -> None:
        references = {RECEIVED: [RIGHT], PREVIOUS: [UP]}
        terms = client_loss(a_step([DIAGONAL], [0], None, reference_features=references), Config(mu=5))
        assert {name: term.coefficient for name, term in terms.items()} == {"ce": 1, "contrast": 5}


class TestGradient:
    def test_where_previous_is_received_the_value_is_log_two_and_the_gradient_zero_but_for_rounding(self) -> None:
        features, received = np.random.default_rng(0).normal(size=(2, 6, 8))
        value, gradient = torch_contrast(features, received, received, Config(), torch.float32)
        assert value == pytest.approx(math.log(2), rel=1e-6)
        np.testing.assert_allclose(gradient, 0, atol=1e-8)


def trained(method: str = "moon", state: Any = None, **hyper: Any) -> tuple[str, LocalTraining]:
    config = a_config(method, method=hyper)
    model = a_model(config)
    result = local_train(
        model,
        some_data(config=config),
        RoundInputs(config=config, method=config.algorithm, round=2, client_id="a", client_state=state),
    )
    return digest(model), result


@pytest.fixture
def previous() -> Any:
    return state_arrays(a_model(a_config(run={"seed": 9})))


class TestLocalTraining:
    def test_the_first_participation_has_the_bytes_of_fedavg_and_keeps_the_trained_model(self) -> None:
        config = a_config()
        model = a_model(config)
        local_train(
            model, some_data(config=config), RoundInputs(config=config, method=config.algorithm, round=2, client_id="a")
        )
        first, result = trained()
        assert first == digest(model)
        expected = state_arrays(model)
        assert result.client_state is not None
        assert result.client_state.keys() == expected.keys()
        assert all(np.array_equal(result.client_state[name], expected[name]) for name in expected)

    def test_what_was_kept_changes_the_result_and_the_same_gives_the_same_bytes(self, previous: Any) -> None:
        first, _ = trained()
        (left, result), (right, _) = trained(state=previous), trained(state=previous)
        assert left == right != first
        assert result.losses["contrast"] > 0
        assert trained(state=previous, mu=5.0)[0] != left

    def test_reference_models_move_no_statistic_and_draw_no_random_number(self, previous: Any) -> None:
        # Dropout and batch statistics would tell: with a coefficient too small to matter the bytes are FedAvg's.
        config = a_config("moon", method={"mu": 1e-30}, model={"name": "resnet10"})
        model = a_model(config)
        state = state_arrays(a_model(a_config(run={"seed": 9}, model={"name": "resnet10"})))
        result = local_train(
            model,
            some_data(config=config),
            RoundInputs(config=config, method=METHOD, round=2, client_id="a", client_state=state),
        )
        assert "contrast" in result.losses
        plain = a_config(model={"name": "resnet10"})
        expected = a_model(plain)
        local_train(
            expected, some_data(config=plain), RoundInputs(config=plain, method=plain.algorithm, round=2, client_id="a")
        )
        assert digest(model) == digest(expected)
