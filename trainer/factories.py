"""Import of `package.module:factory`: models, data sets and augmentations that a site brings along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedplcc.shared.errors import FedplccError
from fedplcc.shared.importing import import_module


def import_factory(spec: str, error: type[FedplccError]) -> Callable[..., Any]:
    """Return the callable that `package.module:factory` names.

    Modules in the working directory are found too.

    Args:
        spec: The module's dotted name, a colon, and the name in it.
        error: Class of the error: InvalidModel, InvalidData or InvalidConfig.

    Raises:
        FedplccError: Of the class `error`: the module cannot be imported, or holds no such callable.
    """
    module_name, _, name = spec.partition(":")
    factory = getattr(import_module(module_name, spec, error), name, None)
    if not callable(factory):
        raise error(f"{module_name!r} has no callable {name!r}; write package.module:factory")
    found: Callable[..., Any] = factory
    return found
