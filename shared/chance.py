"""Runs that learn nothing: a mean accuracy at chance for many rounds, and the keys that usually mend it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ROUNDS = 10
"""Evaluated rounds running after which accuracy at chance is no longer the beginning of training."""
BAND = 0.05
"""Largest distance of an accuracy at chance from 1 / classes, and at most half of 1 / classes."""
CLIPPED = 40
"""The clip_norm that docs/methods.md measures."""


class RunWarningKind(StrEnum):
    """Trouble of a run that goes on all the same."""

    AT_CHANCE = "at_chance"
    """The mean accuracy of the last rounds is that of guessing."""
    UPDATE_FAR = "update_far"
    """An accepted update is much further from the global model than those of the others."""
    CANNOT_TRAIN = "cannot_train"
    """Clients cannot train on the global model, and the round is without their updates."""
    FIRST_MODEL_DOUBTED = "first_model_doubted"
    """Clients make another first model of the run's specification and seed than was sent."""
    SHARE_LARGE = "share_large"
    """One client has nearly all samples of the last round, or nearly all predictions."""
    SHARE_CAPPED = "share_capped"
    """A client counts for less than the samples that it says, as the run's configuration limits its share."""
    CLASSES_UNFOUND = "classes_unfound"
    """The model finds no test image of some classes."""


@dataclass(frozen=True, slots=True)
class RunWarning:
    """Trouble of a run that goes on all the same.

    Attributes:
        sentence: The fact and what mends it, for people.
        keys: Configuration keys that mend it in a new run, the likeliest first.
    """

    kind: RunWarningKind
    round: int
    sentence: str
    keys: tuple[str, ...] = ()


def is_at_chance(accuracy: float, num_classes: int) -> bool:
    """Whether a mean accuracy, 0 to 1, is that of guessing among `num_classes` classes, give or take the band.

    A run of one class guesses nothing.
    """
    if num_classes < 2:
        return False
    chance = 1 / num_classes
    return abs(accuracy - chance) <= min(BAND, chance / 2)


def warnings_of(
    accuracies: Sequence[tuple[int, float]], config: Mapping[str, Any], method: str
) -> tuple[RunWarning, ...]:
    """Return the warnings about a run.

    Args:
        accuracies: The last evaluated rounds and their mean accuracies, oldest first; the last `ROUNDS` of them count.
    """
    last = accuracies[-ROUNDS:]
    data = config.get("data")
    classes = data.get("classes") if isinstance(data, Mapping) else None
    if len(last) < ROUNDS or not isinstance(classes, Sequence):
        return ()
    if not all(is_at_chance(accuracy, len(classes)) for _, accuracy in last):
        return ()
    keys, cure = _cure(config, method)
    first, newest = last[0][0], last[-1]
    fact = f"mean accuracy is at chance, {newest[1]:.1%} with {len(classes)} classes, since round {first} or longer"
    return (RunWarning(RunWarningKind.AT_CHANCE, first, f"{fact}; start a new run with {cure}", keys),)


def _cure(config: Mapping[str, Any], method: str) -> tuple[tuple[str, ...], str]:
    training = config.get("training")
    values = training if isinstance(training, Mapping) else {}
    rate = values.get("learning_rate")
    slower = "a smaller training.learning_rate" + (f" than {rate:g}" if isinstance(rate, (int, float)) else "")
    if values.get("clip_norm") is not None:
        return ("training.learning_rate",), slower
    # Its prototype terms, with coefficients of 100 and 1000, outweigh the rest on an untrained extractor.
    first = f"training.clip_norm = {CLIPPED}"
    if method == "fedplcc":
        return ("training.clip_norm", "training.learning_rate"), f"{first}, or {slower}"
    return ("training.learning_rate", "training.clip_norm"), f"{slower}, or {first}"
