"""Names at the door as public cases write them: `shared.config` is `fedplcc.shared.config`, the same module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

FOLDERS = ("aggregator", "gateway", "shared", "trainer")


class BareNames:
    """Finds a module below one of the folders as fedplcc's own, loaded once."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.split(".")[0] in FOLDERS else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(f"fedplcc.{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing: the module is loaded."""


sys.meta_path.insert(0, BareNames())
