"""Another version of the product beside this tree, for tests of an upgrade and of its way back.

It is the wheel that FEDPLCC_OTHER_WHEEL names, else the newest of tests/golden/VERSION/, where a release is kept; until one
is, the wheel of this tree. It is installed without its libraries, which are this environment's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tests.support import ROOT

OTHER_WHEEL = "FEDPLCC_OTHER_WHEEL"
BUILD_S = 300.0
PARTS = ("pyproject.toml", "README.md", "LICENSE", "fedplcc", "aggregator", "gateway", "shared", "trainer")
"""What a wheel is built of."""


@dataclass(frozen=True)
class Installed:
    """Packages of a version in a folder, which is the PYTHONPATH of whoever runs it."""

    version: str
    folder: Path

    def planted(self, folder: Path, version: str, changes: Mapping[str, tuple[str, str]] | None = None) -> Installed:
        """A copy that says that it is another version; in files of `fedplcc/`, by name, one text stands for another."""
        shutil.copytree(self.folder, folder)
        said = {"shared/version.py": (f'VERSION = "{self.version}"', f'VERSION = "{version}"'), **(changes or {})}
        for name, (before, after) in said.items():
            file = folder / "fedplcc" / name
            text = file.read_text()
            assert text.count(before) == 1, f"{name} has not one {before!r}"
            file.write_text(text.replace(before, after))
        return Installed(version, folder)

    def typed(self, *words: str, cwd: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Type `fedplcc WORDS` of this version in a folder."""
        return subprocess.run(
            [sys.executable, "-m", "fedplcc", *words],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(self.folder), **environment},
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )


def this_tree(folder: Path) -> Installed:
    """The wheel of this tree, installed below a folder."""
    sources = folder / "sources"
    sources.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, sources / name)
    _run("build", "--wheel", "--no-isolation", "--outdir", str(folder), str(sources))
    (wheel,) = folder.glob("*.whl")
    return _installed(wheel, folder / "this")


def other_version(folder: Path, ours: Installed) -> Installed:
    """The other version, installed below a folder; that of this tree where no release is kept."""
    kept = sorted((ROOT / "tests" / "golden").glob("*/fedplcc-*.whl"), key=lambda path: Version(path.parent.name))
    named = os.environ.get(OTHER_WHEEL)
    wheel = Path(named) if named else kept[-1] if kept else None
    return ours if wheel is None else _installed(wheel, folder / "other")


def _installed(wheel: Path, folder: Path) -> Installed:
    _run("pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder), str(wheel))
    found = re.fullmatch(r"fedplcc-([^-]+)-.*\.whl", wheel.name)
    assert found is not None, wheel
    return Installed(found[1], folder)


def _run(*words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
