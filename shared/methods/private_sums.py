"""A method with private class sums in the place of its own: the same name and recipe, and nothing else leaves a client."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.heads import classsums
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.phases import TrainingPhases
from fedplcc.shared.methods.parts.private_sums import PrivateSums


def sums_refusal(method: Method, config: MethodConfig) -> str | None:
    """Return why a method has no private class sums with these hyper-parameters; None where it has."""
    if not isinstance(config, classsums.Config) or method.name != classsums.METHOD.name:
        return f"[privacy] is about class sums, and method {method.name} sends none; take classsums, or leave [privacy] out"
    if config.head != "means":
        return (
            f'[privacy]: method.head = "{config.head}" needs the second moment of all features, which would leave without '
            'noise; set method.head = "means"'
        )
    if config.balanced:
        return "[privacy]: class means alone know no balance; leave method.balanced out"
    return None


@lru_cache(maxsize=64)
def with_private_sums(method: Method, clip: float, noise: float) -> Method:
    """Return the method with private sums; asked where `sums_refusal` says nothing.

    Clients keep no head of their own: scored on test images, it would tell of the training images that it is made of.
    """
    return replace(method, parts=(PrivateSums(clip=clip, noise=noise), TrainingPhases(phases=_none)))


def _none(config: Any) -> tuple[()]:
    return ()
