"""Import of code that an owner of this process has named: models, data sets, augmentations and methods.

A folder that stayed on the path of a service would decide what every later import finds, such as an optional package that a
library tries. Worker processes of a simulation have it for their life, as they unpickle records of such modules.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from fedplcc.shared.errors import FedplccError

_folders: list[str] = []
"""Working directories in which a named module was looked for."""


def import_module(name: str, spec: str, error: type[FedplccError]) -> ModuleType:
    """Return the module of that dotted name; it, and what its import imports, may lie in the working directory.

    Args:
        spec: What the owner wrote, for the message.

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


class OneName:
    """Finds what a script in the repository's folder calls `shared.config` as `fedplcc.shared.config`, loaded once.

    Twice, a script would catch errors of another class than those that are raised.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import a module below one of the folders at the top; None for any other."""
        is_ours = name.split(".")[0] in ("aggregator", "gateway", "shared", "trainer")
        return ModuleSpec(name, self) if is_ours else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return fedplcc's module of that name."""
        return importlib.import_module(f"fedplcc.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module is loaded."""


def take_one_name() -> None:
    """Find modules of the folders at the top as fedplcc's own, from now on in this process."""
    sys.meta_path.insert(0, OneName())
