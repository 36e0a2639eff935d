"""FedProto: the distance to class prototypes against torch's own, the two averages, and the local model of its pure form."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

from fedplcc.method_contract.client_losses import Situation, a_point, gradients, values
from fedplcc.method_contract.numpy_ops import NumpyOps, on_device
from fedplcc.shared.methods.parts.part import ClientEnd
from fedplcc.shared.methods.prototypical.fedproto import (
    METHOD,
    Config,
    client_loss,
    client_report,
    next_client_state,
    own_model,
    scores,
    server_prototypes,
)
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.ops import TorchOps, to_device

TWO = PrototypeSet.of([(1, 0), (0, 2)], [0, 2], [1, 1])
"""Prototypes of classes 0 and 2 of three."""


def of(labels: list[int], prototypes: PrototypeSet = TWO) -> Situation:
    return Situation(labels_B=labels, num_classes=3, prototypes=prototypes)


class TestValues:
    def test_it_is_torch_s_mean_squared_error_to_the_samples_own_prototypes(self) -> None:
        rng = np.random.default_rng(0)
        features, vectors = rng.normal(size=(6, 5)), rng.normal(size=(3, 5)).astype(np.float32)
        labels = [0, 1, 2, 0, 1, 1]
        situation = of(labels, PrototypeSet.of(vectors, [0, 1, 2], np.ones(3)))
        targets = torch.tensor(vectors[labels], dtype=torch.float64)
        expected = mse_loss(torch.tensor(features), targets).item()
        assert values(client_loss, Config(), a_point(features, 3), situation)["proto"] == pytest.approx(expected)

    def test_a_sample_without_a_prototype_is_its_own_target(self) -> None:
        features = [(2, 1), (7, 9)]
        targets = torch.tensor([(1, 0), (7, 9)], dtype=torch.float64)
        expected = mse_loss(torch.tensor(features, dtype=torch.float64), targets).item()
        assert values(client_loss, Config(), a_point(features, 3), of([0, 1]))["proto"] == expected

    def test_a_zero_feature_is_drawn_to_its_prototype_like_any_other(self) -> None:
        _, slopes = gradients(client_loss, Config(), a_point([(0, 0)], 3), of([2]))["proto"]
        np.testing.assert_array_equal(slopes["features"], [[0, -2]])

    def test_the_coefficient_is_lambda1_and_one_by_default(self) -> None:
        assert Config().lambda1 == 1
        situation = of([0])
        assert list(values(client_loss, Config(lambda1=0), a_point([(2, 1)], 3), situation)) == ["ce"]


class TestReport:
    def test_it_is_the_mean_of_every_class_that_the_client_has_with_its_count(self) -> None:
        features = np.array([(1, 0), (3, 0), (0, 5)], np.float32)
        report = client_report(features, np.array([2, 2, 0]), 4, Config())
        assert report.prototypes.class_ids.tolist() == [0, 2]
        assert report.prototypes.vectors.tolist() == [[0, 5], [2, 0]]
        assert report.prototypes.weights.tolist() == [1, 2]
        assert report.num_excluded == 0

    def test_zero_features_are_excluded_from_the_mean_and_counted(self) -> None:
        features = np.array([(1, 0), (0, 0), (3, 0)], np.float32)
        report = client_report(features, np.array([1, 1, 1]), 2, Config())
        assert report.prototypes.vectors.tolist() == [[2, 0]]
        assert (report.prototypes.weights.tolist(), report.num_excluded) == ([2], 1)

    def test_a_mean_is_rounded_once(self) -> None:
        features = np.random.default_rng(0).uniform(0, 1, (1000, 3)).astype(np.float32)
        report = client_report(features, np.zeros(1000, np.int64), 1, Config())
        expected = [np.float32(sum(column.tolist()) / 1000) for column in features.T.astype(np.float64)]
        np.testing.assert_array_equal(report.prototypes.vectors[0], expected)


class TestServer:
    CLIENTS = (
        PrototypeSet.of([(1, 0), (0, 1)], [0, 1], [30, 5]),
        PrototypeSet.of([(4, 0)], [0], [10]),
        PrototypeSet.empty(2),
    )

    @pytest.mark.parametrize(("how", "first"), [("plain", 2.5), ("counts", (30 * 1 + 10 * 4) / 40)])
    def test_a_class_s_prototype_is_the_mean_over_the_clients_that_have_it(
        self, how: Literal["plain", "counts"], first: float
    ) -> None:
        merged = server_prototypes(self.CLIENTS, 3, Config(proto_avg=how))
        assert merged.class_ids.tolist() == [0, 1]
        assert merged.vectors.tolist() == [[first, 0], [0, 1]]
        assert merged.weights.tolist() == [1, 1]


class TestScores:
    FEATURES = np.array([(1.0, 0.5), (0.2, 1.9), (50.0, 50.0)])

    def test_the_nearest_prototype_names_the_class_and_an_unknown_class_never_does(self) -> None:
        logits = np.zeros((3, 3))
        found = scores(NumpyOps(), self.FEATURES, logits, on_device(TWO, 3), Config())
        assert found.argmax(-1).tolist() == [0, 2, 2]
        assert (found[:, 1] == -np.inf).all()

    def test_a_score_is_minus_the_mean_squared_error(self) -> None:
        found = scores(NumpyOps(), self.FEATURES, np.zeros((3, 3)), on_device(TWO, 3), Config())
        for row, feature in enumerate(self.FEATURES):
            for column, prototype in ((0, (1.0, 0.0)), (2, (0.0, 2.0))):
                expected = mse_loss(torch.tensor(feature), torch.tensor(prototype, dtype=torch.float64)).item()
                assert found[row, column] == pytest.approx(-expected, rel=1e-12)

    def test_torch_gives_the_same(self) -> None:
        prototypes = to_device(TWO, 3, torch.device("cpu"))
        features = torch.tensor(self.FEATURES, dtype=torch.float32)
        found = scores(TorchOps(), features, torch.zeros(3, 3), prototypes, Config())
        expected = scores(NumpyOps(), self.FEATURES, np.zeros((3, 3)), on_device(TWO, 3), Config())
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)

    def test_without_prototypes_the_logits_name_the_class(self) -> None:
        logits = np.array([[1.0, 3.0, 2.0]])
        assert scores(NumpyOps(), np.ones((1, 2)), logits, None, Config()).argmax(-1).tolist() == [1]


RECEIVED = {"w": np.zeros(2, np.float32)}
END = ClientEnd(received=RECEIVED, trained={"w": np.ones(2, np.float32)}, state=None, round=1)


class TestOwnModel:
    def test_with_a_shared_model_a_client_keeps_nothing_and_trains_what_it_received(self) -> None:
        config = Config()
        assert METHOD.shares_model(config)
        assert next_client_state(END, config) == {}
        assert own_model(RECEIVED, None, config) is None

    def test_in_the_pure_form_a_client_trains_and_evaluates_the_model_that_it_kept(self) -> None:
        config = Config(share_model=False)
        assert not METHOD.shares_model(config)
        state = next_client_state(END, config)
        assert state == END.trained
        assert own_model(RECEIVED, state, config) is state
        assert METHOD.start_of(RECEIVED, state, config) is METHOD.own_model(RECEIVED, state, config) is state

    def test_at_its_first_participation_it_trains_what_it_received(self) -> None:
        assert own_model(RECEIVED, None, Config(share_model=False)) is None
