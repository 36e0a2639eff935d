"""A method's private form: the same name and recipe, with noise on what clients make of features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.heads import classsums
from fedplcc.shared.methods.method import Method
from fedplcc.shared.methods.parts.phases import TrainingPhases
from fedplcc.shared.methods.parts.private_sums import PrivateSums
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.methods.prototypes import PrototypeConfig
from fedplcc.shared.types import CLASS_MEAN


def private_refusal(method: Method, config: MethodConfig) -> str | None:
    """Return why a method has no private form with these hyper-parameters; None where it has."""
    exchange = method.part(PrototypeExchange)
    if exchange is not None:
        return _refusal_of_prototypes(method.name, exchange, config)
    if not isinstance(config, classsums.Config) or method.name != classsums.METHOD.name:
        return (
            f"[privacy] is about class sums and class means, and method {method.name} sends none; take classsums, or leave "
            "[privacy] out"
        )
    if config.head != "means":
        return (
            f'[privacy]: method.head = "{config.head}" needs the second moment of all features, which would leave without '
            'noise; set method.head = "means"'
        )
    if config.balanced:
        return "[privacy]: class means alone know no balance; leave method.balanced out"
    return None


def _refusal_of_prototypes(name: str, exchange: PrototypeExchange, config: MethodConfig) -> str | None:
    if exchange.kind != CLASS_MEAN:
        return (
            f"[privacy] adds noise to class means, and method {name} sends centres of clusters: a partition depends on "
            "every image, so noise on centres has no guarantee, whatever its deviation; take a method of class means, such "
            "as fedproto, or leave [privacy] out"
        )
    if isinstance(config, PrototypeConfig) and config.proto_pass == "last_epoch":  # nosec B105
        return (
            '[privacy]: method.proto_pass = "last_epoch" takes features of an image more than once, each under other '
            "weights; leave it out"
        )
    return None


def private_form(method: Method, clip: float, noise: float) -> Method:
    """Return the private form; asked where `private_refusal` says nothing.

    Of class sums nothing else leaves a client. It keeps no head of its own: scored on test images, that would tell of the
    training images that it is made of. A method of class means keeps all its parts, and its means have noise.
    """
    exchange = method.part(PrototypeExchange)
    if exchange is None:
        return replace(method, parts=(PrivateSums(clip=clip, noise=noise), TrainingPhases(phases=_none)))
    noisy = replace(exchange, has_noise=True, weights_are_counts=False)
    return replace(method, parts=tuple(noisy if part is exchange else part for part in method.parts))


def _none(config: Any) -> tuple[()]:
    return ()
