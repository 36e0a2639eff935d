"""FCCL+: published value, terms beside plain loops, means of the server, and settings that contradict each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from fedplcc.method_contract.client_losses import FEATURES, LOGITS, Situation, a_point, gradients, on_numpy, values
from fedplcc.method_contract.public_checks import as_loss, on_public
from fedplcc.shared.methods import fcclplus
from fedplcc.shared.methods.fcclplus import SIMILARITIES, TEACHER, Config
from fedplcc.shared.methods.parts.part import ClientEnd, ServerRound
from fedplcc.shared.methods.parts.public import PUBLIC

RNG = np.random.default_rng(0)


def public_terms(logits: np.ndarray, features: np.ndarray, targets: dict[str, np.ndarray]) -> dict[str, float]:
    """The values of both terms on a batch."""
    situation = Situation(labels_B=np.zeros(len(logits), np.int64), num_classes=logits.shape[1], kept=targets)
    return values(as_loss(fcclplus.public_loss), Config(), {FEATURES: features, LOGITS: logits}, situation)


def similarities(features: np.ndarray) -> np.ndarray:
    """Off-diagonal rows of F F^T / 0.02 by loops."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    return np.array([[unit[i] @ unit[j] / 0.02 for j in range(len(unit)) if j != i] for i in range(len(unit))])


def correlation(own: np.ndarray, mean: np.ndarray) -> float:
    """L_corr by loops."""
    size, num_classes = own.shape
    columns = [
        (rows[:, m] - rows[:, m].mean()) / (rows[:, m].std(ddof=1) + 1e-5)
        for rows in (own, mean)
        for m in range(num_classes)
    ]
    a, b = columns[:num_classes], columns[num_classes:]
    total = 0.0
    for m in range(num_classes):
        for n in range(num_classes):
            c = sum(a[m][i] * b[n][i] for i in range(size)) / size
            total += (c - 1) ** 2 if m == n else 0.0051 * (c + 1) ** 2
    return total


class TestDistillation:
    def test_published_value(self) -> None:
        """That of the page of algorithms: it may be negative, because the parts are not renormalised."""
        point = a_point([[1.0, 2.0, 0.0, -1.0]], 4)
        situation = Situation(labels_B=[1], num_classes=4, reference_logits={TEACHER: np.array([[0.5, 3.0, 1.0, 0.0]])})
        assert values(fcclplus.client_loss, Config(), point, situation)["kd"] == pytest.approx(-0.256992, abs=5e-7)
        narrow = gradients(fcclplus.client_loss, Config(), point, situation, torch.float32)
        assert narrow["kd"][0] == pytest.approx(-0.256992, abs=2e-6)

    def test_the_teacher_is_the_clients_last_committed_model_or_the_rounds(self) -> None:
        received, own = {"w": np.ones(1)}, {"w": np.zeros(1)}
        assert fcclplus.reference_models(received, None, Config()) == {}
        assert fcclplus.reference_models(received, own, Config()) == {TEACHER: own}
        assert fcclplus.reference_models(received, own, Config(teacher="global")) == {TEACHER: received}
        assert fcclplus.reference_models(received, own, Config(kd=0.0)) == {}

    @pytest.mark.parametrize(
        ("config", "is_kept"),
        [
            (Config(), True),
            (Config(teacher="global"), False),
            (Config(kd=0.0), False),
            (Config(kd=0.0, share_model=False), True),
        ],
    )
    def test_a_model_is_kept_where_it_is_the_next_teacher_or_start(self, config: Config, is_kept: bool) -> None:
        trained = {"w": np.ones(1, np.float32)}
        end = ClientEnd(received={}, trained=trained, state=None, round=1)
        assert fcclplus.next_client_state(end, config) == (trained if is_kept else {})

    def test_without_a_teacher_there_is_none(self) -> None:
        situation = Situation(labels_B=[1], num_classes=4)
        assert list(values(fcclplus.client_loss, Config(), a_point([[1.0, 2.0, 0.0, -1.0]], 4), situation)) == ["ce"]


class TestPublicImages:
    def test_terms_are_those_of_plain_loops(self) -> None:
        logits, mean = RNG.normal(size=(6, 4)), RNG.normal(size=(6, 4))
        features, others = np.abs(RNG.normal(size=(6, 5))), np.abs(RNG.normal(size=(6, 5)))
        own, target = similarities(features), similarities(others)
        terms = public_terms(logits, features, {"logits": mean, "similarities": target})
        assert terms["corr"] == pytest.approx(correlation(logits, mean), rel=1e-9)
        p, q = (np.exp(rows) / np.exp(rows).sum(1, keepdims=True) for rows in (target, own))
        assert terms["isd"] == pytest.approx((p * np.log(p / q)).sum() / 6, rel=1e-9)

    def test_outputs_are_logits_and_similarities_to_the_others_of_the_batch(self) -> None:
        features, logits = np.abs(RNG.normal(size=(6, 5))), RNG.normal(size=(6, 4))
        situation = Situation(labels_B=np.zeros(6, np.int64), num_classes=4)
        step = on_public(on_numpy({FEATURES: features, LOGITS: logits}, situation))
        found = fcclplus.public_outputs(step, Config())
        np.testing.assert_array_equal(found["logits"], logits)
        np.testing.assert_allclose(found[SIMILARITIES], similarities(features), rtol=1e-12)

    def test_a_client_that_is_the_mean_has_no_divergence(self) -> None:
        features, logits = np.abs(RNG.normal(size=(6, 5))), RNG.normal(size=(6, 4))
        targets = {"logits": logits, "similarities": similarities(features)}
        assert public_terms(logits, features, targets)["isd"] == pytest.approx(0.0, abs=1e-12)


class TestServer:
    @staticmethod
    def step(*groups: dict[str, np.ndarray]) -> ServerRound:
        return ServerRound(
            round=1,
            seed=0,
            num_classes=3,
            feature_dim=4,
            uploads=iter([{PUBLIC: group} for group in groups]),
            arrays={},
            start_head={},
            head={},
        )

    def test_it_takes_plain_means_in_double_precision(self) -> None:
        rows = [
            np.array([[1e8, 1.0]], np.float32),
            np.array([[1.0, 2.0]], np.float32),
            np.array([[-1e8, 6.0]], np.float32),
        ]
        made = fcclplus.server_step(self.step(*({"logits": each} for each in rows)), Config()).arrays[PUBLIC]
        assert made["logits"].dtype == np.float32
        np.testing.assert_array_equal(made["logits"], np.array([[1 / 3, 3.0]], np.float32))

    @pytest.mark.parametrize(("name", "value"), [("logits", 1.1e6), ("similarities", -50.01)])
    def test_values_that_no_model_has_are_refused(self, name: str, value: float) -> None:
        group = {"logits": np.ones((2, 3), np.float32), "similarities": np.full((2, 1), 50.0, np.float32)}
        assert fcclplus.upload_fault({PUBLIC: group}, (), Config()) is None
        group[name] = group[name].copy()
        group[name][0, 0] = value
        fault = fcclplus.upload_fault({PUBLIC: group}, (), Config())
        assert fault is not None
        assert name in fault


class TestConfig:
    @pytest.mark.parametrize(
        "hyper",
        [
            {"public_batch": 1},
            {"public_batch": 1025},
            {"public_lr": 0.0},
            {"kd": -1.0},
            {"corr": math.inf},
            {"teacher": "mine"},
            {"tau": 3.0},
        ],
    )
    def test_bad_values_are_refused(self, hyper: dict[str, object]) -> None:
        with pytest.raises(ValidationError):
            Config.model_validate(hyper)

    def test_a_global_teacher_needs_a_model_that_somebody_averages(self) -> None:
        with pytest.raises(ValidationError, match="needs share_model = true"):
            Config(teacher="global", share_model=False)
