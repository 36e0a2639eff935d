"""Balance of prototype terms: the factor by the rule, for every method by its terms, and in a whole training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedplcc.method_contract.client_losses import FEATURES, LOGITS, WIDTH, on_numpy, on_torch
from fedplcc.method_contract.mid_run import mid_run
from fedplcc.method_contract.numpy_ops import cross_entropy
from fedplcc.method_contract.settings import Setting
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.methods.prototypical.balance import balance_factor, balanced
from fedplcc.shared.methods.step import ClientStep, LossTerms, Term
from fedplcc.trainer.learning import training
from fedplcc.trainer.learning.losses import balanced_terms, total_loss
from tests.unit.trainer.builders import a_config, a_model, digest, some_prototypes, train

PROTOTYPE_METHODS = sorted(name for name, method in METHODS.items() if issubclass(method.config, PrototypeConfig))


def test_every_method_with_prototypes_has_the_key() -> None:
    assert sorted(name for name, method in METHODS.items() if method.has_prototypes) == PROTOTYPE_METHODS
    assert len(PROTOTYPE_METHODS) >= 8
    document = {
        "run": {"method": "fedavg", "clients": ["a"]},
        "data": {"classes": ["a", "b"]},
        "method": {"balance": 1},
    }
    with pytest.raises(InvalidConfig, match=r"unknown key 'method\.balance'"):
        parse_run_config(document)


@pytest.mark.parametrize(
    ("task", "own", "balance", "factor"),
    [
        (2.0, 1.0, 0.5, 1.0),
        (2.0, 4.0, 0.5, 0.25),
        (2.0, 1.0001, 0.5, 1 / 1.0001),
        (1.0, 0.0, 0.5, 1.0),
        (0.0, 0.0, 0.5, 1.0),
        (0.0, 3.0, 0.5, 0.0),
        (1.0, math.inf, 0.5, 0.0),
        (math.nan, 1.0, 0.5, 1.0),
    ],
)
def test_the_factor_is_one_or_what_brings_the_terms_to_the_limit(
    task: float, own: float, balance: float, factor: float
) -> None:
    assert balance_factor(task, own, balance) == pytest.approx(factor, rel=1e-12)


def test_the_cross_entropy_keeps_its_coefficient() -> None:
    found = balanced({"ce": Term(1, 0.5), "a": Term(2, 10.0), "b": Term(3)}, 0.5)
    assert [(name, term.value, term.coefficient) for name, term in found.items()] == [
        ("ce", 1, 0.5),
        ("a", 2, 5.0),
        ("b", 3, 0.5),
    ]


# Every method, by its terms


def with_classifier(step: ClientStep, weights_MD: Any, cross_entropy: Callable[[Any, Any], Any]) -> ClientStep:
    """The mini-batch with logits that come from its features, so that the cross-entropy pulls them too."""
    logits_BM = step.features_BD @ weights_MD.T
    return replace(step, logits_BM=logits_BM, task_loss=cross_entropy(logits_BM, step.labels_B))


def central_differences(value: Callable[[np.ndarray], float], features_BD: np.ndarray) -> np.ndarray:
    found = np.zeros_like(features_BD)
    for index in np.ndindex(*features_BD.shape):
        moved = np.zeros_like(features_BD)
        moved[index] = WIDTH
        found[index] = (value(features_BD + moved) - value(features_BD - moved)) / (2 * WIDTH)
    return found


@pytest.mark.parametrize("ratio", [0.25, 1.0])
@pytest.mark.parametrize("name", PROTOTYPE_METHODS)
def test_own_terms_are_scaled_by_the_factor_that_finite_differences_of_the_parts_give(name: str, ratio: float) -> None:
    """The gradient of every part on numpy by central differences, and the balanced gradient on torch by autograd."""
    method = METHODS[name]
    config = method.config.model_validate({"balance": ratio})
    point, situation = mid_run(Setting(method))
    weights_MD = np.random.default_rng(3).normal(size=(point[LOGITS].shape[1], point[FEATURES].shape[1]))

    def parts(features_BD: np.ndarray) -> LossTerms:
        step = on_numpy({**point, FEATURES: features_BD}, situation)
        return method.client_loss(with_classifier(step, weights_MD, cross_entropy), config)

    names = list(parts(point[FEATURES]))
    assert len(names) > 1
    slopes = {
        part: central_differences(lambda z, part=part: float(parts(z)[part].value), point[FEATURES])  # type: ignore[misc]
        for part in names
    }
    coefficients = {part: term.coefficient for part, term in parts(point[FEATURES]).items()}
    own_BD = sum(coefficients[part] * slopes[part] for part in names[1:])
    task_norm = np.linalg.norm(coefficients["ce"] * slopes["ce"])
    factor = balance_factor(float(task_norm), float(np.linalg.norm(own_BD)), ratio)

    step, leaves = on_torch(point, situation)
    step = with_classifier(step, torch.tensor(weights_MD), torch.nn.functional.cross_entropy)
    terms = balanced_terms(method.client_loss(step, config), leaves[FEATURES], config)
    (found_BD,) = torch.autograd.grad(total_loss(terms), leaves[FEATURES])
    expected_BD = coefficients["ce"] * slopes["ce"] + factor * own_BD
    np.testing.assert_allclose(found_BD.numpy(), expected_BD, rtol=1e-4, atol=1e-5 * np.abs(expected_BD).max())
    own_norm = np.linalg.norm(found_BD.numpy() - coefficients["ce"] * slopes["ce"])
    assert own_norm <= ratio * task_norm * (1 + 1e-4)


# In a training


def trained(config: Any, monkeypatch: pytest.MonkeyPatch | None = None) -> tuple[str, list[float]]:
    """The trained model, and how hard the prototype terms pulled in each step, in pulls of the cross-entropy."""
    pulls: list[float] = []
    real = balanced_terms

    def watched(terms: LossTerms, features_BD: torch.Tensor, hyper: Any) -> LossTerms:
        found = real(terms, features_BD, hyper)
        own = {name: term for name, term in found.items() if name != "ce"}
        task, pull = (
            torch.autograd.grad(total_loss(part), features_BD, retain_graph=True)[0].norm()
            for part in ({"ce": found["ce"]}, own)
        )
        pulls.append(float(pull / task))
        return found

    model = a_model(config)
    if monkeypatch is not None:
        monkeypatch.setattr(training, "balanced_terms", watched)
    train(config, model, prototypes=some_prototypes(), round=2)
    if monkeypatch is not None:
        monkeypatch.setattr(training, "balanced_terms", real)
    return digest(model), pulls


def test_no_step_pulls_harder_than_the_limit_and_a_limit_that_is_never_reached_changes_no_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = trained(a_config("fedplcc"))[0]
    assert trained(a_config("fedplcc", method={"balance": 1e6}))[0] == free
    held, pulls = trained(a_config("fedplcc", method={"balance": 0.5}), monkeypatch)
    assert held != free
    assert len(pulls) > 1
    assert max(pulls) == pytest.approx(0.5, rel=1e-3)
    _, unheld = trained(a_config("fedplcc"), monkeypatch)
    assert max(unheld) > 5


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_it_holds_in_lower_precision(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = a_config("fedplcc", method={"balance": 0.5}, training={"precision": precision})
    _, pulls = trained(config, monkeypatch)
    assert max(pulls) == pytest.approx(0.5, rel=0.05)


def test_nothing_is_scaled_where_the_features_need_no_gradient() -> None:
    terms = {"ce": Term(torch.tensor(1.0)), "contra": Term(torch.tensor(2.0), 100.0)}
    hyper = METHODS["fedplcc"].config.model_validate({"balance": 0.5})
    assert balanced_terms(terms, torch.ones(2, 3), hyper) is terms
    only = {"ce": Term(torch.tensor(1.0))}
    assert balanced_terms(only, torch.ones(2, 3, requires_grad=True), hyper) is only
