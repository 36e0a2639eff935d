"""Locks: every package that an installation has, with its version and hashes.

python -m release.locks             write locks/ anew, keeping versions that still fit; needs a package index
python -m release.locks --upgrade   the newest versions that fit
python -m release.locks --check     whether locks/ and pyproject.toml agree; needs no network

A lock is a requirements file of pip's format. All are cut from one resolution, so what is deployed is what tests ran with.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = "locks"
DEPLOYED = {
    "aggregator": ("aggregator", "gateway", "postgres", "sso", "traces"),
    "trainer": ("gpu", "photos", "dicom", "export", "traces"),
}
"""Extras of each lock that a host installs."""
LOCKS = {"dev": ("dev",), **DEPLOYED}
"""Extras of each lock; the others take their versions from the first."""
OLDEST_PYTHON = "3.11.5"
RESOLVE_S = 900.0
"""Longest time of one resolution."""

_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?: ; ([^\\]*?))? *\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """A package of a lock.

    Attributes:
        name: Normalised name.
        version: The one version.
        marker: Where it is installed; empty for everywhere.
        hashes: SHA-256 of each file that may be installed.
        needed_by: Names of the packages that need it.
    """

    name: str
    version: str
    marker: str
    hashes: frozenset[str]
    needed_by: frozenset[str]

    def is_for(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether it is installed in an environment of markers, by default in this Python."""
        return not self.marker or Marker(self.marker).evaluate(dict(environment or {}))


def read_lock(path: Path) -> tuple[Pin, ...]:
    """Read a lock."""
    return tuple(_pins(path.read_text(encoding="utf-8")))


def _pins(text: str) -> Iterator[Pin]:
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _PIN.match(line)]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        found = _PIN.match(lines[start])
        assert found is not None
        block = "\n".join(lines[start:end])
        said = block.partition("# via ")[2].replace("(pyproject.toml)", "")
        yield Pin(
            canonicalize_name(found[1]),
            found[2],
            found[3] or "",
            frozenset(_HASH.findall(block)),
            frozenset(canonicalize_name(each) for each in re.split(r"[\s,#]+", said) if each),
        )


def requirements(table: Mapping[str, Any], extras: Sequence[str]) -> Iterator[Requirement]:
    """What pyproject.toml's table `project` asks for with some extras, those of its own name followed."""
    left, seen = ["", *extras], set[str]()
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        texts = table["optional-dependencies"][extra] if extra else table.get("dependencies", [])
        for requirement in map(Requirement, texts):
            if requirement.name == table["name"]:
                left += requirement.extras
            else:
                yield requirement


def disagreements(table: Mapping[str, Any], folder: Path, locks: Mapping[str, Sequence[str]] = LOCKS) -> list[str]:
    """Each place where a lock and pyproject.toml's table `project`, or two locks, do not agree, as a sentence."""
    problems: list[str] = []
    versions: dict[str, tuple[str, str]] = {}
    for lock, extras in locks.items():
        path = folder / f"{lock}.txt"
        if not path.exists():
            problems.append(f"{FOLDER}/{path.name} is not there")
            continue
        if "://" in path.read_text(encoding="utf-8"):
            problems.append(f"{FOLDER}/{path.name} names an address: a lock has names, versions and hashes alone")
        pins = {pin.name: pin for pin in read_lock(path)}
        problems += _against(table, extras, pins, f"{FOLDER}/{path.name}")
        for pin in pins.values():
            known, elsewhere = versions.setdefault(pin.name, (pin.version, path.name))
            if known != pin.version:
                problems.append(f"{FOLDER}/{path.name} has {pin.name} {pin.version}, {elsewhere} has {known}")
    return problems


def _against(table: Mapping[str, Any], extras: Sequence[str], pins: Mapping[str, Pin], lock: str) -> Iterator[str]:
    asked: set[str] = set()
    for requirement in requirements(table, extras):
        name = canonicalize_name(requirement.name)
        asked.add(name)
        pin = pins.get(name)
        if pin is None:
            yield f"{lock} lacks {name}, which pyproject.toml asks for"
        elif not requirement.specifier.contains(pin.version, prereleases=True):
            yield f"{lock} has {name} {pin.version}, pyproject.toml asks for {requirement}"
    for pin in pins.values():
        if not pin.hashes:
            yield f"{lock} has no hash of {pin.name}"
        if table["name"] in pin.needed_by and pin.name not in asked:
            yield f"{lock} has {pin.name} for {table['name']}, pyproject.toml does not ask for it"


def write_locks(root: Path, *, upgrade: bool) -> None:
    """Resolve the first lock, and cut the others out of it."""
    folder = root / FOLDER
    folder.mkdir(exist_ok=True)
    first, *_ = LOCKS
    for lock, extras in LOCKS.items():
        path = folder / f"{lock}.txt"
        if lock != first:
            shutil.copyfile(folder / f"{first}.txt", path)  # what uv finds there is kept where it fits
        _resolve(root, path, extras, upgrade=upgrade and lock == first)
        named = f"{table_of(root)['name']}[{','.join(extras)}]"
        head = f"# {named} with all that it needs, for Linux. Written by `python -m release.locks`, never by hand.\n"
        path.write_text(head + path.read_text(encoding="utf-8"), encoding="utf-8")


def _resolve(root: Path, path: Path, extras: Sequence[str], *, upgrade: bool) -> None:
    command = [sys.executable, "-m", "uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal"]
    command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header", "--no-emit-index-url"]
    command += ["--annotation-style", "line", "--output-file", str(path.relative_to(root))]
    command += [word for extra in extras for word in ("--extra", extra)]
    done = subprocess.run(
        command + ["--upgrade"] * upgrade, cwd=root, capture_output=True, text=True, timeout=RESOLVE_S, check=False
    )
    if done.returncode != 0:
        sys.exit(f"uv, of the extra release, found no versions for {', '.join(extras)}: {done.stderr.strip()}")


def table_of(root: Path) -> dict[str, Any]:
    """pyproject.toml's table `project`."""
    with (root / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["project"]
    return table


def main() -> None:
    """Write the locks, or check them."""
    parser = argparse.ArgumentParser(prog="python -m release.locks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a lock does not agree")
    parser.add_argument("--upgrade", action="store_true", help="the newest versions that fit")
    arguments = parser.parse_args()
    if not arguments.check:
        write_locks(ROOT, upgrade=arguments.upgrade)
    problems = disagreements(table_of(ROOT), ROOT / FOLDER)
    if problems:
        sys.exit("\n".join([*problems, "run: python -m release.locks"]))


if __name__ == "__main__":
    main()
