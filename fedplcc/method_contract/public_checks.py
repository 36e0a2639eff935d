"""Checks of a method's part about public images, in torch as in numpy, and of the means that its server makes.

Shape legend: B batch, n public images, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedplcc.method_contract.checks import Checks, require
from fedplcc.method_contract.client_losses import (
    FEATURES,
    LOGITS,
    Loss,
    Point,
    Situation,
    assert_torch_agrees_with_numpy,
    gradients,
    on_numpy,
    on_torch,
)
from fedplcc.method_contract.server_checks import bytes_of, stepped
from fedplcc.method_contract.settings import Setting
from fedplcc.method_contract.uploads import DIM, NUM_CLASSES
from fedplcc.shared.methods.arrays import MAX_ARRAY_BYTES, ArrayGroup, group_fault, most_bytes
from fedplcc.shared.methods.parts.public import PUBLIC, PublicLearning, PublicStep
from fedplcc.shared.methods.step import ClientStep, LossTerms

check = Checks()

NUM_BATCHES = 2


def uses_public(setting: Setting) -> bool:
    """Whether a run with this setting needs public images."""
    return setting.method.uses_public(setting.config)


def part_of(setting: Setting) -> PublicLearning:
    """The part about public images."""
    part = setting.method.part(PublicLearning)
    assert part is not None
    return part


def on_public(step: ClientStep) -> PublicStep:
    """A batch of public images out of a mini-batch, whose labels are all 0 and whose kept arrays are targets."""
    return PublicStep(
        ops=step.ops,
        features_BD=step.features_BD,
        logits_BM=step.logits_BM,
        places_B=(step.labels_B + 1).cumsum(0) - 1,
        targets=step.kept,
    )


def as_loss(make: Callable[[PublicStep, Any], LossTerms]) -> Loss:
    """The loss on public images as one of mini-batches."""
    return lambda step, config: make(on_public(step), config)


def a_batch(setting: Setting, seed: int, targets: ArrayGroup | None = None) -> tuple[Point, Situation]:
    """A whole batch of public images under a model."""
    rng, size = np.random.default_rng(seed), part_of(setting).batch_size(setting.config)
    point = {FEATURES: np.abs(rng.normal(size=(size, DIM))) + 0.05, LOGITS: rng.normal(size=(size, NUM_CLASSES))}
    kept = {name: array.astype(np.float64) for name, array in (targets or {}).items()}
    return point, Situation(labels_B=np.zeros(size, np.int64), num_classes=NUM_CLASSES, kept=kept)


def uploaded(setting: Setting, client: int, num_batches: int = 1) -> dict[str, ArrayGroup]:
    """What a client uploads about these batches of public images."""
    made = [
        part_of(setting).outputs(on_public(on_numpy(*a_batch(setting, 100 * client + number))), setting.config)
        for number in range(num_batches)
    ]
    return {PUBLIC: {name: np.concatenate([each[name] for each in made]).astype(np.float32) for name in made[0]}}


def targets_of(setting: Setting) -> ArrayGroup:
    """What the server makes of three clients' groups for one batch."""
    size = part_of(setting).batch_size(setting.config)
    arrays = stepped(setting, 1, [uploaded(setting, client) for client in range(3)], {}).arrays
    require(set(arrays) == {PUBLIC}, f"the server's step makes the groups {sorted(arrays)}, not {PUBLIC!r}")
    _require_declared(setting, arrays[PUBLIC], size)
    return arrays[PUBLIC]


def terms_of(setting: Setting) -> Sequence[str]:
    """The names of the terms of the loss on public images."""
    point, situation = a_batch(setting, 5, targets_of(setting))
    return list(part_of(setting).loss(on_public(on_numpy(point, situation)), setting.config))


def _require_declared(setting: Setting, group: ArrayGroup, num_images: int) -> None:
    fault = group_fault(group, part_of(setting).schema(setting.config, NUM_CLASSES, num_images), NUM_CLASSES)
    require(fault is None, f"group {PUBLIC!r} {fault and fault[2]}")


@check(uses_public)
def what_clients_say_of_public_images_is_as_declared_within_its_limit_and_passes_the_methods_own_check(
    setting: Setting,
) -> None:
    part, config, method = part_of(setting), setting.config, setting.method
    size = part.batch_size(config)
    require(size >= 1 and part.learning_rate(config) > 0, "a batch has images, and a learning rate is positive")
    group = uploaded(setting, 1, NUM_BATCHES)
    _require_declared(setting, group[PUBLIC], NUM_BATCHES * size)
    schema = part.schema(config, NUM_CLASSES, NUM_BATCHES * size)
    require(all(shape[0] == NUM_BATCHES * size for _, shape in schema.values()), "every array has a row for each image")
    require(most_bytes({PUBLIC: schema}, NUM_CLASSES) <= MAX_ARRAY_BYTES, "two batches take more than the limit")
    wrong = method.upload_fault(group, [1] * NUM_CLASSES, config)
    require(wrong is None, f"its own check refuses what it makes: {wrong}")


@check(uses_public)
def what_clients_say_of_public_images_is_the_same_in_torch(setting: Setting) -> None:
    point, situation = a_batch(setting, 3)
    make = part_of(setting).outputs
    expected = make(on_public(on_numpy(point, situation)), setting.config)
    found = make(on_public(on_torch(point, situation)[0]), setting.config)
    require(list(found) == list(expected), "torch and numpy make arrays of other names")
    for name, array in found.items():
        np.testing.assert_allclose(array.detach().numpy(), expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@check(uses_public)
def the_loss_on_public_images_has_numpys_value_in_torch_and_the_gradient_of_its_differences(setting: Setting) -> None:
    point, situation = a_batch(setting, 5, targets_of(setting))
    loss = as_loss(part_of(setting).loss)
    few: Mapping[str, slice] = {FEATURES: slice(0, 2), LOGITS: slice(0, 4)}
    _, slopes = next(iter(gradients(loss, setting.config, point, situation).values()))
    require(set(slopes) == set(few), "the loss has a gradient with respect to features and logits")
    assert_torch_agrees_with_numpy(loss, setting.config, point, situation, rows=few)


@check(uses_public)
def the_loss_on_public_images_is_finite_at_awkward_points(setting: Setting) -> None:
    """Alike, opposite and zero features; logits of one value; targets at their limits. In the trainer's float32."""
    targets = targets_of(setting)
    size = part_of(setting).batch_size(setting.config)
    loss = as_loss(part_of(setting).loss)
    rows = {
        "alike": np.ones((size, DIM)),
        "opposite": np.where(np.arange(size) % 2, 1.0, -1.0)[:, None] * np.ones((size, DIM)),
        "zero": np.zeros((size, DIM)),
    }
    for features in rows.values():
        for logits in (np.zeros((size, NUM_CLASSES)), np.full((size, NUM_CLASSES), 1e4)):
            for kept in (targets, {name: np.zeros_like(array) for name, array in targets.items()}):
                _, situation = a_batch(setting, 7, kept)
                found = gradients(
                    loss, setting.config, {FEATURES: features, LOGITS: logits}, situation, dtype=torch.float32
                )
                for name, (value, slopes) in found.items():
                    require(np.isfinite(value), f"term {name!r} is {value}")
                    require(all(np.isfinite(each).all() for each in slopes.values()), f"term {name!r} has no slope")


@check(uses_public)
def the_servers_step_on_public_images_gives_the_same_bytes_twice_and_finite_numbers(setting: Setting) -> None:
    uploads = [uploaded(setting, client) for client in range(3)]
    twice = [bytes_of(stepped(setting, 1, uploads, {})) for _ in range(2)]
    require(twice[0] == twice[1], "other bytes each time")
    for scale in (0.0, 1e-38, 3e38):
        scaled = [
            {PUBLIC: {name: (np.sign(array) * scale).astype(np.float32) for name, array in upload[PUBLIC].items()}}
            for upload in uploads
        ]
        made = stepped(setting, 1, scaled, {}).arrays[PUBLIC]
        require(all(np.isfinite(array).all() for array in made.values()), "a mean of finite numbers is not finite")


@check(lambda setting: setting.method.part(PublicLearning) is not None and setting.method.neutral is not None)
def the_neutral_setting_needs_no_public_images_and_keeps_nothing(setting: Setting) -> None:
    method = setting.method
    require(not method.uses_public(setting.neutral), "the neutral setting needs public images")
    require(not method.keeps_server_state(setting.neutral), "the neutral setting keeps server state")
    neutral = Setting(method, {**setting.hyper, **(method.neutral or {})})
    require(not stepped(neutral, 1, [{}, {}], {}).arrays, "the neutral setting's server makes arrays")
