"""Keys that came after the version that a configuration says. Pure.

Each has a value with which everything is the same bytes as before it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

YOUNGER_KEYS: Mapping[str, Any] = {
    "aggregation.clip_to": "median",
    "aggregation.max_weight_share": None,
    "aggregation.rule": "mean",
    "aggregation.trim_share": 0.25,
    "clients.evaluate_only": False,
    "evaluation.histograms": False,
    "evaluation.joining": False,
    "method.balance": 0.0,
    "method.small_clusters": "withhold",
    "model.weights": None,
    "model.weights_sha256": None,
    "privacy.claim": "none",
    "privacy.clip": None,
    "privacy.delta": None,
    "privacy.epsilon": None,
    "privacy.noise": None,
    "privacy.release_every": None,
    "run.initial_runs": None,
    "training.batches": "shuffled",
    "training.class_weights": "none",
    "training.train": "all",
    "training.views": 0,
    "wire.precision": "float32",
}
"""Keys that version 0.2 of a configuration did not have, with the values that change nothing. Where they have these they are
in no canonical JSON, so that hashes of 0.2 stay; with the next version they are in that of its configurations."""


def without_unset(document: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the sections of a configuration without younger keys that change nothing, or sections of such alone."""
    found = {
        section: {
            key: value
            for key, value in keys.items()
            if f"{section}.{key}" not in YOUNGER_KEYS or value != YOUNGER_KEYS[f"{section}.{key}"]
        }
        for section, keys in document.items()
    }
    return {section: keys for section, keys in found.items() if keys or not document[section]}
