"""The tree as version control knows it, with changes that are not committed: a wheel depends on nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

BUILD_S = 300


def tracked(folder: str = ".") -> list[Path]:
    """The files and links below a folder; skips where there is no checkout."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("needs a checkout that git knows")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.exists()]


def copy_sources(folder: Path) -> None:
    """Copy them, links as links."""
    for path in tracked():
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


def build_wheel(sources: Path, out: Path, *flags: str) -> Path:
    """Build the wheel of copied sources, which is the only one in the folder that it goes to."""
    command = [sys.executable, "-m", "build", "--wheel", *flags, "--outdir", str(out), str(sources)]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel
