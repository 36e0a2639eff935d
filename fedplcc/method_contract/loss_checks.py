"""Checks of a method's loss."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedplcc.method_contract.checks import Checks, require
from fedplcc.method_contract.client_losses import (
    FEATURES,
    a_point,
    assert_torch_agrees_with_numpy,
    gradients,
    on_numpy,
    on_torch,
    values,
)
from fedplcc.method_contract.mid_run import mid_run
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import NUM_CLASSES
from fedplcc.shared.methods import fedavg
from fedplcc.shared.types import PrototypeSet
from fedplcc.trainer.learning.ops import TorchOps

check = Checks()


def awkward_sets() -> dict[str, PrototypeSet]:
    """Global sets that are hard on a loss; each has two pooled rows, then two of the whole, as FedPCL's have."""
    rows = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 1), (0.5, 0.5, 0, 0)]

    def a_set(vectors: Any, class_ids: Sequence[int]) -> PrototypeSet:
        plain = PrototypeSet.of(vectors, class_ids, [0.5, 0.5, 1, 1])
        return replace(plain, group_ids=np.array([0, 0, -1, -1]))

    return {
        "one class known": a_set(rows, [0, 0, 0, 0]),
        "two of three known": a_set(rows, [0, 0, 1, 0]),
        "all known": a_set(rows, [0, 1, 2, 0]),
        "all alike": a_set([rows[0]] * 4, [0, 0, 1, 1]),
        "opposite ones": a_set([rows[0], (-1, 0, 0, 0), *rows[2:]], [0, 0, 1, 0]),
        "a zero one": a_set([*rows[:3], (0, 0, 0, 0)], [0, 0, 1, 0]),
    }


@check()
def the_first_term_is_cross_entropy(setting: Setting) -> None:
    step = on_numpy(*mid_run(setting))
    name, term = next(iter(setting.method.client_loss(step, setting.config).items()))
    assert name == "ce"
    assert term.value is step.task_loss
    require(0 < term.coefficient <= 1, "the coefficient of the cross-entropy must lie above 0, and be 1 at most")


@check()
def no_term_is_multiplied_by_zero_and_none_is_there_in_vain(setting: Setting) -> None:
    terms = setting.method.client_loss(on_numpy(*mid_run(setting)), setting.config)
    method = setting.method
    keeps = method.keeps_server_state(setting.config) or method.personal_part(setting.config) != "none"
    require(
        len(terms) > 1 or keeps or method == fedavg.METHOD,
        "the loss has no term beside the cross-entropy, and neither the server nor a client keeps anything",
    )
    assert all(0 < term.coefficient < math.inf for term in terms.values())


@check(lambda setting: setting.method.neutral is not None)
def the_neutral_setting_has_fedavgs_terms_whatever_there_is_to_look_at(setting: Setting) -> None:
    step = on_numpy(*mid_run(setting, config=setting.neutral))
    assert setting.method.client_loss(step, setting.neutral) == fedavg.client_loss(step, fedavg.Config())


@check(lambda setting: setting.method.needs_earlier_round(setting.config))
def a_client_s_first_round_has_fedavgs_terms(setting: Setting) -> None:
    step = on_numpy(*mid_run(setting, is_first_time=True))
    assert setting.method.client_loss(step, setting.config) == fedavg.client_loss(step, fedavg.Config())


@check()
def torch_has_the_value_of_numpy_and_the_gradient_of_its_differences(setting: Setting) -> None:
    assert_torch_agrees_with_numpy(setting.method.client_loss, setting.config, *mid_run(setting))


@check()
def values_and_gradients_are_finite_at_awkward_points(setting: Setting) -> None:
    """docs/algorithms.md, rule 13.7, in the trainer's float32; one over the floor of a norm is no slope."""
    rows = [(cosine, 0, 0, math.sqrt(1 - cosine**2)) for cosine in (-1.0, -1e-8, 0.0, 1e-8, 1.0)]
    features = np.array([row for row in [*rows, (0, 0, 0, 0)] for _ in range(NUM_CLASSES)])
    point, base = mid_run(setting)
    point = {**point, **a_point(features, NUM_CLASSES)}
    references = dict.fromkeys(base.references, features)
    # Their logits are as awkward, and of other samples: a teacher who is of another mind.
    logits = dict.fromkeys(base.reference_logits, np.roll(point["logits"], 1, axis=0))
    labels_B = np.arange(len(features)) % NUM_CLASSES
    base = replace(base, labels_B=labels_B, references=references, reference_logits=logits)
    for what, prototypes in awkward_sets().items():
        situation = replace(base, prototypes=prototypes if setting.method.has_prototypes else None)
        for name, term in setting.method.client_loss(on_numpy(point, situation), setting.config).items():
            assert np.ndim(term.value) == 0, name
            assert np.isfinite(term.value), f"{name}, {what}"
        found = gradients(setting.method.client_loss, setting.config, point, situation, torch.float32)
        for name, (value, slopes) in found.items():
            assert math.isfinite(value), f"{name}, {what}"
            for leaf, slope in slopes.items():
                assert np.abs(slope).max() < 1e5, f"gradient of {name} with respect to {leaf}, {what}"


@check()
def prototypes_and_references_far_off_are_finite_too(setting: Setting) -> None:
    point, situation = mid_run(setting)
    point = {**point, FEATURES: point[FEATURES] * 1e6}
    for value, slopes in gradients(
        setting.method.client_loss, setting.config, point, situation, torch.float32
    ).values():
        assert math.isfinite(value)
        assert all(np.isfinite(slope).all() for slope in slopes.values())


@check()
def the_order_of_the_batch_does_not_matter(setting: Setting) -> None:
    point, situation = mid_run(setting)
    order = np.array([3, 0, 4, 2, 1])
    turned = {**point, FEATURES: point[FEATURES][order], "logits": point["logits"][order]}
    shuffled = replace(
        situation,
        labels_B=np.asarray(situation.labels_B)[order],
        references={name: rows[order] for name, rows in situation.references.items()},
        reference_logits={name: rows[order] for name, rows in situation.reference_logits.items()},
    )
    left = values(setting.method.client_loss, setting.config, point, situation)
    right = values(setting.method.client_loss, setting.config, turned, shuffled)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=1e-12, err_msg=name)


@check()
def what_is_kept_from_one_step_of_a_round_to_the_next_changes_nothing(setting: Setting) -> None:
    """A trainer has one `Ops` and one set of prototypes for all steps of a round."""
    step, _ = on_torch(*mid_run(setting))
    setting.method.client_loss(step, setting.config)
    other, _ = on_torch(*mid_run(setting, seed=5))
    later = replace(other, prototypes=step.prototypes, ops=step.ops)
    anew = replace(later, ops=TorchOps())
    left, right = (setting.method.client_loss(each, setting.config) for each in (later, anew))
    assert {name: term.value.item() for name, term in left.items()} == {
        name: term.value.item() for name, term in right.items()
    }


@check()
def it_leaves_its_arguments_alone(setting: Setting) -> None:
    point, situation = mid_run(setting)
    step = on_numpy(point, situation)
    before = {name: np.copy(value) for name, value in point.items()}
    vectors = np.zeros(0) if step.prototypes is None else step.prototypes.vectors_GD.copy()
    first = {name: float(term.value) for name, term in setting.method.client_loss(step, setting.config).items()}
    assert values(setting.method.client_loss, setting.config, point, situation) == first
    assert all(np.array_equal(point[name], before[name]) for name in point)
    assert step.prototypes is None or np.array_equal(step.prototypes.vectors_GD, vectors)


@check()
def it_draws_nothing_and_keeps_nothing(setting: Setting) -> None:
    """Global random states change no value and stay as they are, and a second call gives the first one's."""
    point, situation = mid_run(setting)
    found = []
    for seed in (1, 2, 2):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        before = _random_states()
        by_torch = gradients(setting.method.client_loss, setting.config, point, situation)
        found.append((values(setting.method.client_loss, setting.config, point, situation), _bytes_of(by_torch)))
        require(before == _random_states(), "the loss draws from a global random state")
    require(found[0] == found[1] == found[2], "the same mini-batch gives another loss the next time")


def _random_states() -> tuple[object, ...]:
    return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().numpy().tobytes()


def _bytes_of(found: dict[str, tuple[float, dict[str, Any]]]) -> dict[str, Any]:
    return {
        name: (value, {leaf: slope.tobytes() for leaf, slope in slopes.items()})
        for name, (value, slopes) in found.items()
    }
