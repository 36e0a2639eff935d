"""FedProx: the proximal term by hand and by torch's own distance, its gradient, and what it does to a real training."""

from __future__ import annotations

import numpy as np

from fedplcc.method_contract.client_losses import Situation, a_point, assert_torch_agrees_with_numpy, gradients, values
from fedplcc.shared.methods.fedprox import Config, client_loss
from fedplcc.trainer.learning.training import RoundInputs, local_train
from tests.unit.trainer.builders import a_config, a_model, some_data

RECEIVED = {"weight": np.array([[1.0, 2.0], [3.0, 4.0]]), "bias": np.array([0.5])}
POINT = a_point([(1, 0), (0, 1)], 2, weight=np.array([[1.0, 4.0], [3.0, 3.0]]), bias=np.array([2.5]))
SITUATION = Situation(labels_B=[0, 1], num_classes=2, start=RECEIVED)


class TestValues:
    def test_it_is_half_the_squared_distance_to_the_received_parameters(self) -> None:
        # The differences are 2 and -1 in the weight, 2 in the bias.
        assert values(client_loss, Config(), POINT, SITUATION)["prox"] == (4 + 1 + 4) / 2

    def test_the_coefficient_is_mu_and_reported_apart(self) -> None:
        terms = gradients(client_loss, Config(mu=0.3), POINT, SITUATION)
        assert terms["prox"][0] == 4.5
        assert list(terms) == ["ce", "prox"]

    def test_the_default_is_the_usual_one(self) -> None:
        assert Config().mu == 0.01


class TestGradient:
    def test_autograd_agrees_with_finite_differences_and_with_the_difference_itself(self) -> None:
        assert_torch_agrees_with_numpy(client_loss, Config(), POINT, SITUATION)
        _, slopes = gradients(client_loss, Config(), POINT, SITUATION)["prox"]
        for name, received in RECEIVED.items():
            np.testing.assert_array_equal(slopes[name], POINT[name] - received)
        assert not slopes["features"].any()


class TestLocalTraining:
    def test_the_term_is_of_trainable_parameters_and_not_of_running_statistics(self) -> None:
        # With a step so small that parameters hardly move, the statistics still do; they would show in the term.
        config = a_config("fedprox", model={"name": "resnet10"}, training={"learning_rate": 1e-12})
        model = a_model(config)
        result = local_train(
            model, some_data(config=config), RoundInputs(config=config, method=config.algorithm, round=1, client_id="a")
        )
        assert result.losses["prox"] < 1e-12
