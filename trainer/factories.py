"""Import of `package.module:factory`: models and data sets that a site brings along."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from shared.errors import FedplccError


def import_factory(spec: str, error: type[FedplccError]) -> Callable[..., Any]:
    """Return the callable that `package.module:factory` names.

    Modules in the working directory are found too.

    Args:
        spec: The module's dotted name, a colon, and the name in it.
        error: Class of the error: InvalidModel or InvalidData.

    Raises:
        FedplccError: Of the class `error`: the module cannot be imported, or holds no such callable.
    """
    module_name, _, name = spec.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    # Imported code may raise anything, and may be a script that calls sys.exit().
    except (Exception, SystemExit) as cause:
        raise error(f"cannot import {module_name!r} of {spec!r}: {type(cause).__name__}: {cause}") from cause
    factory = getattr(module, name, None)
    if not callable(factory):
        raise error(f"{module_name!r} has no callable {name!r}; write package.module:factory")
    found: Callable[..., Any] = factory
    return found
