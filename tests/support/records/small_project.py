"""A project of one module and one dependency that can be released like this one, in seconds."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path

VERSION = "1.2.0"
PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "sapling"
version = "1.2.0"
license = "MIT"

[project.optional-dependencies]
aggregator = ["leaf>=1"]
gateway = []
postgres = []
sso = []
traces = []
gpu = []
photos = []
dicom = []
export = []
dev = []

[tool.setuptools]
packages = ["sapling"]
"""
CHANGELOG = (
    f"# Changelog\n\n## Unreleased\n\n## {VERSION} - 2026-01-02\n\n- It grows.\n\n## 1.1.0 - 2025-01-02\n\n- Before.\n"
)


def write_small_project(folder: Path, packages: Path) -> Path:
    """Write the project as a repository with one commit, and its dependency as a wheel into the folder of packages."""
    wheel = write_leaf(packages)
    hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = {
        "pyproject.toml": PYPROJECT,
        "CHANGELOG.md": CHANGELOG,
        "README.md": "A sapling.\n",
        "shared/version.py": f'VERSION = "{VERSION}"\n',
        "sapling/__init__.py": "import leaf\n",
        "locks/aggregator.txt": f"leaf==1.0 \\\n    --hash=sha256:{hashed}\n    # via sapling (pyproject.toml)\n",
        "locks/trainer.txt": "",
        "locks/dev.txt": "",
        "locks/licences.txt": "leaf MIT\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    """Commit all that is in the folder, at a fixed time."""
    git(folder, "add", "--all")
    who = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.org")
    git(folder, *who, "commit", "--quiet", "--message", "grow", "--date", "2026-01-02T03:04:05Z")


def git(folder: Path, *arguments: str) -> None:
    """Run git in the folder."""
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def write_leaf(folder: Path) -> Path:
    """Write the dependency's wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    home = "leaf-1.0.dist-info"
    members = {
        "leaf.py": "COLOUR = 'green'\n",
        f"{home}/METADATA": "Metadata-Version: 2.4\nName: leaf\nVersion: 1.0\nLicense-Expression: MIT\n",
        f"{home}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {
        name: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        for name, text in members.items()
    }
    record = "".join(f"{name},sha256={hashes[name].decode()},{len(text)}\n" for name, text in members.items())
    path = folder / "leaf-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**members, f"{home}/RECORD": f"{record}{home}/RECORD,,\n"}.items():
            archive.writestr(name, text)
    return path
