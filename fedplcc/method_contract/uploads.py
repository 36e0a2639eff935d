"""Three clients that each lack a class, what they report, and what the server makes of it; without torch.

Shape legend: N samples of a client, D feature size, M classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedplcc.method_contract.settings import Setting
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange, Report
from fedplcc.shared.types import PrototypeSet

NUM_CLASSES = 3
DIM = 4


def a_client(number: int, num_examples: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a client that lacks one class."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, NUM_CLASSES, num_examples)
    labels[labels == number % NUM_CLASSES] = (number + 1) % NUM_CLASSES
    modes = np.random.default_rng(100).uniform(0.2, 2, size=(NUM_CLASSES, 2, DIM))
    features = modes[labels, rng.integers(0, 2, num_examples)] + 0.1 * rng.normal(size=(num_examples, DIM))
    return np.abs(features).astype(np.float32), labels


def reported(setting: Setting, features: np.ndarray, labels: np.ndarray) -> Report:
    """Return what a client with these features and labels reports."""
    exchange = setting.method.part(PrototypeExchange)
    assert exchange is not None
    return exchange.report(features, labels, NUM_CLASSES, setting.config)


def merged(setting: Setting, sets: Sequence[PrototypeSet], previous: PrototypeSet | None = None) -> PrototypeSet:
    """Return what the server makes of these sets, and of the global set of the round before."""
    before = PrototypeSet.empty() if previous is None else previous
    return setting.method.global_prototypes(sets, before, NUM_CLASSES, setting.config)


def reports_of(setting: Setting) -> dict[str, PrototypeSet]:
    """Prototypes that the clients of a round upload, by client id."""
    return {f"client-{number}": reported(setting, *a_client(number)).prototypes for number in range(3)}


def in_order(sets: Mapping[str, PrototypeSet]) -> list[PrototypeSet]:
    """As the aggregator hands them on."""
    return [sets[client_id] for client_id in sorted(sets)]
