"""Import of code that an owner of this process has named: models, data sets, augmentations and methods.

A folder that stayed on the path of a service would decide what every later import finds, such as an optional package that a
library tries. Worker processes of a simulation have it for their life, as they unpickle records of such modules.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

from fedplcc.shared.errors import FedplccError

_folders: list[str] = []
"""Working directories in which a named module was looked for."""


def import_module(name: str, spec: str, error: type[FedplccError]) -> ModuleType:
    """Return the module of that dotted name; it, and what its import imports, may lie in the working directory.

    Args:
        name: The module's name.
        spec: What the owner wrote, for the message.
        error: Class of the error.

    Raises:
        FedplccError: Of the class `error`: the module cannot be imported.
    """
    here = os.getcwd()
    if here not in _folders:
        _folders.append(here)
    with _modules_in(here):
        try:
            return importlib.import_module(name)
        # Imported code may raise anything, and may be a script that calls sys.exit().
        except (Exception, SystemExit) as cause:
            raise error(f"cannot import {name!r} of {spec!r}: {type(cause).__name__}: {cause}") from cause


def places() -> list[str]:
    """Return the folders, absolute, where a worker process finds every module that this process has found."""
    return [str(Path(folder).absolute()) for folder in (*sys.path, *_folders)]  # "" is the present folder


@contextmanager
def _modules_in(folder: str) -> Iterator[None]:
    """Find modules of a folder last of all, and only now: any later import would else run a file that lies there."""
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # imported code may have changed the path
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
