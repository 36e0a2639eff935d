"""Methods at work in the middle of a run: three clients that each lack a class, what they report, and a mini-batch.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shared.methods.base import ClientEnd, ClientState, MethodConfig, Report
from shared.types import PrototypeSet
from tests.support.oracles.client_losses import Situation, a_point
from tests.support.records.method_settings import Setting

NUM_CLASSES = 3
DIM = 4

Model = dict[str, np.ndarray]


def a_model(seed: int) -> Model:
    """A model whose features are sizes of a matrix times its input, and whose logits are a matrix times those."""
    rng = np.random.default_rng(seed)
    weight, head = rng.normal(size=(DIM, DIM)), rng.normal(size=(DIM, NUM_CLASSES))
    return {"weight": weight.astype(np.float32), "head": head.astype(np.float32), "steps": np.array(seed, np.int64)}


def params_of(model: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The trained tensors of a model."""
    return {name: model[name].astype(np.float64) for name in ("weight", "head")}


def features_under(model: Mapping[str, Any], inputs: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(inputs @ model["weight"]) + 0.05)


def a_client(number: int, num_examples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a client that lacks one class."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, NUM_CLASSES, num_examples)
    labels[labels == number % NUM_CLASSES] = (number + 1) % NUM_CLASSES
    modes = np.random.default_rng(100).uniform(0.2, 2, size=(NUM_CLASSES, 2, DIM))
    features = modes[labels, rng.integers(0, 2, num_examples)] + 0.1 * rng.normal(size=(num_examples, DIM))
    return np.abs(features).astype(np.float32), labels


def reported(setting: Setting, features: np.ndarray, labels: np.ndarray) -> Report:
    assert setting.method.client_report is not None
    return setting.method.client_report(features, labels, NUM_CLASSES, setting.config)


def merged(setting: Setting, sets: Sequence[PrototypeSet]) -> PrototypeSet:
    assert setting.method.server_prototypes is not None
    return setting.method.server_prototypes(sets, NUM_CLASSES, setting.config)


def reports_of(setting: Setting, num_clients: int = 3) -> dict[str, PrototypeSet]:
    """Prototypes that the clients of a round upload, by client id."""
    return {f"client-{number}": reported(setting, *a_client(number)).prototypes for number in range(num_clients)}


def in_order(sets: Mapping[str, PrototypeSet]) -> list[PrototypeSet]:
    """As the aggregator hands them on."""
    return [sets[client_id] for client_id in sorted(sets)]


def kept(setting: Setting, state: ClientState | None = None, seed: int = 0) -> ClientState:
    """The next state of a client that had this one, received one model and trained it to another."""
    assert setting.method.next_client_state is not None
    end = ClientEnd(received=a_model(seed), trained=a_model(seed + 1), state=state, round=1)
    return setting.method.next_client_state(end, setting.config)


def mid_run(
    setting: Setting, *, config: MethodConfig | None = None, is_first_time: bool = False, seed: int = 0
) -> tuple[dict[str, Any], Situation]:
    """A mini-batch with everything that a loss may look at: prototypes, a state from before, parameters that have moved."""
    method, config = setting.method, config or setting.config
    received, trained = a_model(seed), a_model(seed + 1)
    inputs = np.random.default_rng(seed).normal(size=(5, DIM))
    features = features_under(trained, inputs)
    state = kept(setting, seed=7) or None if method.keeps_client_state and not is_first_time else None
    references = {} if method.reference_models is None else method.reference_models(received, state, config)
    prototypes = None
    if method.has_prototypes and not is_first_time:
        prototypes = merged(setting, in_order(reports_of(setting)))
    point = a_point(features, NUM_CLASSES, **params_of(trained))
    seen = {name: features_under(arrays, inputs) for name, arrays in references.items()}
    situation = Situation(
        labels_B=[0, 1, 2, 0, 1],
        num_classes=NUM_CLASSES,
        prototypes=prototypes,
        start=params_of(received),
        references=seen,
        reference_logits={name: seen[name] @ arrays["head"] for name, arrays in references.items()},
    )
    return point, situation
