"""Every way to spoil an update, and the mutant of a seed and an index: a good update that some of them have spoilt.

Each belongs to the stage that it spoils (fuzz_attempt.py), and takes and returns what that stage has. Not every spoilt
update is bad: a flipped bit may leave another good model. That is for fuzz_judge.py to say, not for the mutator.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from inspect import getmembers, isfunction
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.chaos import fuzz_blobs, fuzz_material, fuzz_messages
from tests.chaos.fuzz_attempt import Attempt, Scene, inline, to_attempt, to_blobs, valid_material


class Mutator(NamedTuple):
    """One way to spoil an update. `stage` is 0 for material, 1 for blobs, 2 for messages."""

    stage: int
    change: Callable[[Random, Scene, Any], Any]


MUTATORS = {
    name.replace("_", " "): Mutator(stage, change)
    for stage, module in enumerate((fuzz_material, fuzz_blobs, fuzz_messages))
    for name, change in getmembers(module, isfunction)
    if change.__module__ == module.__name__ and not name.startswith("_")
}
"""Every mutator by name."""


def names_of(seed: int, index: int) -> tuple[str, ...]:
    """The mutators of a mutant, in the order of their stages: every one in its turn, sometimes with others."""
    rng = Random(f"{seed}/{index}")
    known = sorted(MUTATORS)
    first = known[index % len(known)]
    others = rng.sample(known, rng.choice([1, 2])) if rng.random() < 0.2 else []
    return tuple(sorted({first, *others}, key=lambda name: (MUTATORS[name].stage, name)))


def mutant(scene: Scene, seed: int, index: int, names: Sequence[str]) -> Attempt:
    """A good update, spoilt by these mutators. Each draws its own numbers, so that one can be left out."""

    def spoilt(stage: int, good: Any) -> Any:
        for name in names:
            if MUTATORS[name].stage == stage:
                try:
                    good = MUTATORS[name].change(Random(f"{seed}/{index}/{name}"), scene, good)
                except (
                    ArithmeticError,
                    LookupError,
                    RecursionError,
                    TypeError,
                    ValueError,
                    AttributeError,
                    struct.error,
                ):
                    if len(names) == 1:
                        raise  # beside others it may find too little left of a good update to spoil
        return good

    with np.errstate(all="ignore"):  # numbers that a dtype cannot hold are what is wanted
        material = spoilt(0, valid_material(scene, np.random.default_rng([seed, index])))
        blobs = spoilt(1, to_blobs(material))
        attempt: Attempt = spoilt(2, to_attempt(scene, blobs))
    return inline(attempt) if is_inline(index) else attempt


def is_inline(index: int) -> bool:
    """Whether a mutant's blobs come with its commit: every mutator in its turn spoils these, and uploads."""
    return index // len(MUTATORS) % 2 == 1
