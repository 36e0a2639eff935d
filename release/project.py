"""The project at one commit: its name, version, notes and time, and what forbids a release of it."""

from __future__ import annotations

import datetime
import io
import re
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION_FILE = "shared/version.py"
GIT_S = 120.0
"""Longest time of one git command."""

_VERSION = re.compile(r'^VERSION = "([^"]+)"$', re.M)


class Refused(Exception):
    """A release that cannot be made; says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Project:
    """A clean working tree at a commit.

    Attributes:
        root: The tree's folder.
        commit: Hash of the commit, in full.
        epoch_s: The commit's time in seconds since 1970, which all files of the release bear.
        version: Version that the commit says.
        table: pyproject.toml's table `project`.
        notes: Markdown of the version's section in CHANGELOG.md, without its heading.
        dated: What the heading says after the version.
    """

    root: Path
    commit: str
    epoch_s: int
    version: str
    table: dict[str, Any]
    notes: str
    dated: str

    @property
    def name(self) -> str:
        """Name of the distribution."""
        return str(self.table["name"])

    @property
    def time(self) -> datetime.datetime:
        """The commit's time."""
        return datetime.datetime.fromtimestamp(self.epoch_s, datetime.UTC)

    def export(self, folder: Path) -> None:
        """Write the commit's files, and nothing else of the tree, to a folder."""
        packed = _git(self.root, "archive", "--format=tar", self.commit)
        folder.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")


def read_project(root: Path) -> Project:
    """Read the project that may be released.

    Raises:
        Refused: The tree has changes, the version has no notes or another commit's tag, or entries wait for a version.
    """
    changed = _git(root, "status", "--porcelain").decode().splitlines()
    if changed:
        raise Refused(
            f"{len(changed)} files are not as committed, {changed[0][3:]} for one: a release is made of a commit; "
            "commit or remove them"
        )
    commit = _git(root, "rev-parse", "HEAD").decode().strip()
    found = _VERSION.search((root / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None:
        raise Refused(f'{VERSION_FILE} has no line VERSION = "..."')
    version = found[1]
    for tag in (version, f"v{version}"):
        tagged = _git(root, "tag", "--list", "--format=%(objectname) %(*objectname)", tag).decode().split()
        if tagged and tagged[-1] != commit:
            raise Refused(f"{tag} is tagged at {tagged[-1][:12]}, this is {commit[:12]}: raise the version")
    notes, dated = notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    with (root / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["project"]
    epoch_s = int(_git(root, "show", "--no-patch", "--format=%ct", commit))
    return Project(root, commit, epoch_s, version, table, notes, dated)


def notes_of(changelog: str, version: str) -> tuple[str, str]:
    """Cut a version's notes out of a changelog; returns them and what its heading says after the version.

    Raises:
        Refused: The version has no section or an empty one, or "Unreleased" has entries.
    """
    sections: dict[str, tuple[str, str]] = {}
    for section in re.split(r"^## ", changelog, flags=re.M)[1:]:
        heading, _, text = section.partition("\n")
        named, _, dated = heading.partition(" - ")
        sections[named.strip("[] ")] = text.strip(), dated.strip()
    if sections.get("Unreleased", ("", ""))[0]:
        raise Refused(
            f'CHANGELOG.md has entries under "Unreleased", which would be in {version} without notes: '
            "make them the version's, and raise it in " + VERSION_FILE
        )
    if version not in sections or not sections[version][0]:
        raise Refused(f'CHANGELOG.md has no notes of {version}: write them under "## {version} - DATE"')
    return sections[version]


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, timeout=GIT_S, check=False)
    if done.returncode != 0:
        raise Refused(f"git {' '.join(arguments[:2])}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
