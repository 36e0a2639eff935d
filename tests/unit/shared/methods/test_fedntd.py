"""FedNTD: published values, what it is blind to, gradients at extreme logits, and what it does to a real local training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fedplcc.method_contract.client_losses import Situation, a_point, gradients, values
from fedplcc.shared.methods.fedntd import TEACHER, Config, client_loss
from fedplcc.trainer.learning.training import LocalTraining, RoundInputs, local_train
from tests.unit.trainer.builders import a_config, a_model, digest, some_data

STUDENT, OWN = (1.0, 2.0, 0.0, -1.0), (0.5, 3.0, 1.0, 0.0)
"""Logits of one image of class 1, by the model in training and by its teacher."""


def point_of(logits: npt.ArrayLike) -> dict[str, Any]:
    rows = np.atleast_2d(np.asarray(logits, np.float64))
    return a_point(rows, rows.shape[1])


def situation_of(teacher: npt.ArrayLike, labels: npt.ArrayLike = (1,)) -> Situation:
    rows = np.atleast_2d(np.asarray(teacher, np.float64))
    return Situation(labels_B=labels, num_classes=rows.shape[1], reference_logits={TEACHER: rows})


def ntd(student: npt.ArrayLike, teacher: npt.ArrayLike, labels: npt.ArrayLike = (1,), tau: float = 1.0) -> float:
    return values(client_loss, Config(tau=tau), point_of(student), situation_of(teacher, labels))["ntd"]


class TestValues:
    @pytest.mark.parametrize(("tau", "expected"), [(1.0, 0.266542), (3.0, 0.260947)])
    def test_published_values(self, tau: float, expected: float) -> None:
        """Those of the page of algorithms."""
        assert ntd(STUDENT, OWN, tau=tau) == pytest.approx(expected, abs=5e-7)
        terms = gradients(client_loss, Config(tau=tau), point_of(STUDENT), situation_of(OWN), torch.float32)
        assert terms["ntd"][0] == pytest.approx(expected, abs=1e-6)

    def test_it_is_torchs_own_divergence_of_the_logits_without_the_true_class(self) -> None:
        rng = np.random.default_rng(0)
        student, teacher, labels = rng.normal(size=(6, 5)), rng.normal(size=(6, 5)), np.array([0, 1, 2, 3, 4, 0])
        others = labels[:, None] != np.arange(5)
        log_q, log_p = (
            torch.log_softmax(torch.tensor(rows[others].reshape(6, 4)) / 2.0, -1) for rows in (student, teacher)
        )
        divergence = torch.nn.functional.kl_div(log_q, log_p, reduction="batchmean", log_target=True)
        assert ntd(student, teacher, labels, tau=2.0) == pytest.approx(4 * divergence.item(), rel=1e-12)

    def test_who_agrees_with_the_teacher_on_the_other_classes_has_none(self) -> None:
        agreeing = np.array(OWN) + 7.0
        agreeing[1] = -100.0
        assert ntd(agreeing, OWN) == pytest.approx(0, abs=1e-12)
        assert ntd((3.0, -3.0), (0.0, 5.0)) == 0, "of two classes one is not the true one"

    def test_the_defaults_are_the_papers_and_the_coefficient_is_reported_apart(self) -> None:
        assert (Config().beta, Config().tau) == (1.0, 1.0)
        found = [
            values(client_loss, Config(beta=beta), point_of(STUDENT), situation_of(OWN))["ntd"] for beta in (0.1, 9.0)
        ]
        assert found[0] == found[1]


def trained(method: str, **hyper: Any) -> tuple[str, LocalTraining]:
    config = a_config(method, method=hyper)
    model = a_model(config)
    result = local_train(
        model, some_data(config=config), RoundInputs(config=config, method=config.algorithm, round=1, client_id="a")
    )
    return digest(model), result


class TestLocalTraining:
    def test_it_acts_in_the_first_round_and_gives_the_same_bytes_twice(self) -> None:
        own, result = trained("fedntd")
        assert own == trained("fedntd")[0] != trained("fedavg")[0]
        assert result.losses["ntd"] > 0
