from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedplcc.shared.version import VERSION as OWN_VERSION
from release.project import VERSION_FILE, Refused, notes_of, read_project
from tests.support import ROOT
from tests.support.records.small_project import CHANGELOG, VERSION, commit, git, write_small_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_small_project(tmp_path / "sapling", tmp_path / "packages")


def test_a_project_is_read_with_its_notes(root: Path) -> None:
    project = read_project(root)
    assert (project.name, project.version, project.dated, project.notes) == (
        "sapling",
        VERSION,
        "2026-01-02",
        "- It grows.",
    )
    project.export(root.parent / "exported")
    assert (root.parent / "exported" / VERSION_FILE).read_text() == f'VERSION = "{VERSION}"\n'


@pytest.mark.parametrize("name", ["CHANGELOG.md", "new.txt"])
def test_a_tree_that_is_not_as_committed_is_refused(root: Path, name: str) -> None:
    with (root / name).open("a") as file:
        file.write("more\n")
    with pytest.raises(Refused, match=f"1 files are not as committed, {name} for one"):
        read_project(root)


@pytest.mark.parametrize("tag", [VERSION, f"v{VERSION}"])
def test_a_version_that_another_commit_has_is_refused(root: Path, tag: str) -> None:
    who = ("-c", "user.name=A Tester", "-c", "user.email=tester@example.org")
    git(root, *who, "tag", "--annotate", "--message", "released", tag)
    assert read_project(root).version == VERSION
    (root / "README.md").write_text("Another tree.\n")
    commit(root)
    with pytest.raises(Refused, match=f"{tag} is tagged at .* raise the version"):
        read_project(root)


@pytest.mark.parametrize(
    ("changelog", "said"),
    [
        (CHANGELOG.replace(VERSION, "1.1.9"), f"has no notes of {VERSION}"),
        (CHANGELOG.replace("- It grows.", ""), f"has no notes of {VERSION}"),
        (CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- It waits.\n"), 'entries under "Unreleased"'),
    ],
    ids=["no section", "an empty section", "entries that wait"],
)
def test_a_version_without_its_notes_is_refused(changelog: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        notes_of(changelog, VERSION)


def test_this_project_s_version_and_changelog_are_read() -> None:
    found = re.search(r'^VERSION = "([^"]+)"$', (ROOT / VERSION_FILE).read_text(), re.M)
    assert found is not None
    assert found[1] == OWN_VERSION
    text = re.sub(r"^## Unreleased\n.*?(?=^## )", "", (ROOT / "CHANGELOG.md").read_text(), flags=re.M | re.S)
    notes, dated = notes_of(text, OWN_VERSION)
    assert notes
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", dated)
