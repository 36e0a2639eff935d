"""Import of code that an owner of this process has named: models, data sets, augmentations and methods."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from fedplcc.shared.errors import FedplccError


def import_module(name: str, spec: str, error: type[FedplccError]) -> ModuleType:
    """Return the module of that dotted name; modules in the working directory are found too.

    Args:
        name: The module's name.
        spec: What the owner wrote, for the message.
        error: Class of the error.

    Raises:
        FedplccError: Of the class `error`: the module cannot be imported.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(name)
    # Imported code may raise anything, and may be a script that calls sys.exit().
    except (Exception, SystemExit) as cause:
        raise error(f"cannot import {name!r} of {spec!r}: {type(cause).__name__}: {cause}") from cause
