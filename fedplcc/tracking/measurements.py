"""The numbers of a round that trackers keep, by name. Pure; a local run and a deployed one give the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedplcc.shared.config.run import canonical_json
from fedplcc.tracking.callbacks import RoundResult

SECONDS = "seconds"
MOST_CHARACTERS = 500
"""Longest value of a key of the configuration; what is cut ends with three dots. MLflow's oldest limit."""


def measurements(result: RoundResult) -> dict[str, float]:
    """Return a round's numbers.

    Names are accuracy/mean, accuracy/worst, accuracy/DOMAIN, likewise accuracy_local/..., accuracy_attacked/ATTACK/..., then
    loss/TERM, prototypes/local, prototypes/global, num_examples, clients, dropped and seconds. What a round lacks is left
    out.
    """
    found = dict(_numbers(result.metrics))
    found["clients"] = float(len(result.metrics["cohort"]))
    found["dropped"] = float(len(result.metrics.get("dropped") or ()))
    if result.seconds is not None:
        found[SECONDS] = result.seconds
    return found


def flat_configuration(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the configuration by dotted key, each value as text of JSON, text itself without quotes."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat_configuration(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else canonical_json(value)
            found[prefix + key] = text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
    return found


def _numbers(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if name == "round":
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in _numbers(value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
