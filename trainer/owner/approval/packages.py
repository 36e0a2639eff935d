"""Digests of the code that a run uses at a site: of every package that the run names, and versions of this one and of timm.

A package is every Python file and compiled module of the top-level package, or the one file of a module. Nothing is
imported for it.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import CodeNotAllowed
from fedplcc.shared.importing import places
from fedplcc.shared.methods import BUILTIN
from fedplcc.shared.methods.plugins import entry_point
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.version import VERSION

OURS = "fedplcc"
"""Name under which the version of this package stands."""
TIMM, TORCH = "timm", "torch"
ENDINGS = frozenset({".py", ".so", ".pyd"})
MAX_FILES, MAX_BYTES = 10_000, 256 << 20
"""Most files and bytes of a package that is hashed; a larger one cannot be approved."""
MAX_NAMED = 64
"""Most names of code in one run."""


class Packages:
    """Digests of packages, computed once: what a process has imported does not change while it lives."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, document: Mapping[str, Any]) -> dict[str, str]:
        """Return the version of fedplcc, of timm for a model of it, and the SHA-256 of each package that a document names.

        Raises:
            CodeNotAllowed: A package is not there, or is too large.
        """
        found = sorted(set(_packages(document)))
        if len(found) > MAX_NAMED:
            raise CodeNotAllowed(f"the run names code of {len(found)} packages, and {MAX_NAMED} is the most")
        for name in found:
            if name not in self._known:
                try:
                    self._known[name] = _digest(name)
                except OSError as error:
                    why = error.strerror or type(error).__name__
                    raise CodeNotAllowed(
                        f"the package {name[:64]!r}, which the run names, cannot be read: {why}"
                    ) from error
        makes_model = {TIMM: version_of(TIMM)} if _model(document).startswith(f"{TIMM}:") else {}
        return {OURS: VERSION, **makes_model, **{name: self._known[name] for name in found}}


def version_of(package: str) -> str:
    """Return the version of a package, which is not imported for it; `none` where it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def code_named(document: Mapping[str, Any]) -> list[str]:
    """Return the names of code of other packages in a run's document, as it writes them."""
    method = document["run"]["method"]
    named = [] if method in BUILTIN else [str(method)]
    model = _model(document)
    named += [model] if ":" in model and not model.startswith(f"{TIMM}:") else []
    return named + [str(each) for each in document.get("training", {}).get("augmentation_code") or ()]


def _model(document: Mapping[str, Any]) -> str:
    return str(document.get("model", {}).get("name", ""))


def _packages(document: Mapping[str, Any]) -> Iterator[str]:
    for name in code_named(document):
        found = None if "." in name or ":" in name else entry_point(name)
        module = name.partition(":")[0] if found is None else found.module
        yield module.partition(".")[0]


def _digest(name: str) -> str:
    spec = importlib.machinery.PathFinder.find_spec(name, [*sys.path, *places(), str(Path.cwd())])
    if spec is None:
        raise CodeNotAllowed(f"the run names code of a package {name[:64]!r} that is not at this site")
    files: dict[str, str] = {}
    size = 0
    for label, path in _files(spec):
        size += path.stat().st_size
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise CodeNotAllowed(
                f"the package {name[:64]!r} has more than {MAX_FILES} files or {MAX_BYTES} bytes, and cannot be approved"
            )
        files[label] = sha256_hex(disk.read_regular(path))
    return sha256_hex(canonical_json(files).encode())


def _files(spec: importlib.machinery.ModuleSpec) -> Iterator[tuple[str, Path]]:
    folders = spec.submodule_search_locations
    if folders is None:
        if spec.origin is not None:
            yield Path(spec.origin).name, Path(spec.origin)
        return
    for number, folder in enumerate(folders):
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in ENDINGS and path.is_file():
                yield f"{number}/{path.relative_to(folder).as_posix()}", path
