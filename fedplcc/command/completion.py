"""Values that the shell offers for options, found without loading heavy modules."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

DEVICES = ("auto", "cpu", "cuda", "cuda:0")


def method_names() -> list[str]:
    """Names of the methods: modules of shared/methods that define METHOD."""
    spec = find_spec("fedplcc.shared")
    folders = spec.submodule_search_locations if spec is not None else None
    files = [file for folder in folders or () for file in sorted((Path(folder) / "methods").rglob("*.py"))]
    return [file.stem for file in files if "\nMETHOD = " in file.read_text(encoding="utf-8")]


def methods(incomplete: str) -> list[str]:
    """Methods with this beginning."""
    return [name for name in method_names() if name.startswith(incomplete)]


def devices(incomplete: str) -> list[str]:
    """Devices with this beginning."""
    return [name for name in DEVICES if name.startswith(incomplete)]
