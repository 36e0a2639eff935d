"""A release of a small project: the same bytes whoever builds it, and lines of the guide that refuse what was changed."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release.__main__ import make_release
from release.building import build_twice, digest
from release.project import Refused, read_project
from tests.support import ROOT
from tests.support.records.small_project import VERSION, commit, write_small_project

GUIDE = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
COMMAND_S = 120.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen, of OpenSSH's client"),
]


@dataclass(frozen=True)
class Released:
    """A small project's release, and the folders around it."""

    root: Path
    folder: Path
    key: Path

    def file(self, ending: str) -> Path:
        """The one file of the release whose name ends so."""
        (found,) = (path for path in self.folder.iterdir() if path.name.endswith(ending))
        return found

    def copy(self, folder: Path) -> Path:
        """A copy, with what a person writes down who trusts the key."""
        shutil.copytree(self.folder, folder)
        trusted = self.key.with_suffix(".pub").read_text()
        (folder / "allowed_signers").write_text(f'releaser namespaces="fedplcc-release" {trusted}')
        return folder


def lines_of_the_guide(name: str) -> str:
    """What the guide prints to be typed, for this project."""
    block = GUIDE.partition(f"<!-- {name} -->\n```\n")[2].partition("\n```")[0]
    assert block
    return block.replace("fedplcc-VERSION", f"sapling-{VERSION}").replace("trainer.txt", "aggregator.txt")


def typed(lines: str, folder: Path, *, without_network: bool = False) -> subprocess.CompletedProcess[str]:
    """Run lines of the guide in a folder."""
    command = [*(["unshare", "--net"] if without_network else []), "sh", "-e", "-c", lines]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S, check=False)


def new_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True, timeout=COMMAND_S)
    return path


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Released:
    top = tmp_path_factory.mktemp("release")
    root, key = write_small_project(top / "sapling", top / "packages"), new_key(top / "key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(top / "packages"))
        folder, fingerprint = make_release(root, key, top / "dist", bundle=("aggregator",), site=root / "sapling")
    assert fingerprint.startswith("SHA256:")
    return Released(root, folder, key)


def test_the_release_has_each_file_of_the_guide_and_leaves_nothing_else(released: Released) -> None:
    guide = GUIDE.partition("## What it has")[2].partition("\n\n## ")[0]
    named = {name for name in re.findall(r"`([\w.-]+)`", guide) if "." in name or name.isupper()} - {"licences.txt"}
    expected = {name.replace("fedplcc-VERSION", f"sapling-{VERSION}") for name in named if "trainer" not in name}
    present = {path.name for path in released.folder.iterdir()}
    assert present - {"licences.txt"} == {name for name in expected if name not in (".dist-info", "metadata.tools")}
    assert [path.name for path in released.folder.parent.iterdir()] == [released.folder.name]
    notes = released.file("NOTES.md").read_text()
    assert notes.startswith(f"# sapling {VERSION} - 2026-01-02\n\n- It grows.\n\nCommit ")
    assert "Before" not in notes


@pytest.mark.full
def test_another_clone_gives_the_same_bytes(released: Released, tmp_path: Path) -> None:
    clone = tmp_path / "a folder elsewhere"
    subprocess.run(["git", "clone", "--quiet", str(released.root), str(clone)], check=True, timeout=COMMAND_S)
    name = f"sapling-{VERSION}.cdx.json"
    (tmp_path / "out").mkdir()
    built = build_twice(
        read_project(clone), {name: (released.folder / name).read_bytes()}, tmp_path / "work", tmp_path / "out"
    )
    assert digest(built.wheel) == digest(released.file(".whl"))
    assert digest(built.sdist) == digest(released.folder / f"sapling-{VERSION}.tar.gz")


@pytest.mark.full
def test_a_build_that_depends_on_its_folder_is_refused(released: Released, tmp_path: Path) -> None:
    root = shutil.copytree(released.root, tmp_path / "sapling")
    (root / "setup.py").write_text(
        "import pathlib, setuptools\n"
        "pathlib.Path('sapling/where.py').write_text(f'WHERE = {str(pathlib.Path.cwd())!r}')\n"
        "setuptools.setup()\n"
    )
    commit(root)
    with pytest.raises(
        Refused, match=r"two builds of \w{12} differ in sapling-1.2.0-py3-none-any.whl, sapling-1.2.0.tar.gz"
    ):
        build_twice(read_project(root), {}, tmp_path / "work", tmp_path)


def test_the_list_of_parts_is_in_the_wheel_and_valid(released: Released) -> None:
    name = f"sapling-{VERSION}.cdx.json"
    beside = (released.folder / name).read_bytes()
    home = f"sapling-{VERSION}.dist-info"
    with zipfile.ZipFile(released.file(".whl")) as wheel:
        assert wheel.read(f"{home}/sboms/{name}") == beside
        rows = list(csv.reader(wheel.read(f"{home}/RECORD").decode().splitlines()))
        assert [row[0] for row in rows] == wheel.namelist()
        for path, hashed, _size in rows[:-1]:
            made = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(path)).digest()).rstrip(b"=").decode()
            assert hashed == f"sha256={made}", path
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(beside.decode()) is None
    listed = json.loads(beside)
    assert [(part["name"], part["scope"]) for part in listed["components"]] == [("leaf", "optional")]
    assert listed["components"][0]["licenses"] == [{"license": {"id": "MIT"}}]


def test_the_line_of_the_guide_accepts_the_release_and_refuses_a_changed_one(
    released: Released, tmp_path: Path
) -> None:
    line = lines_of_the_guide("verify")
    folder = released.copy(tmp_path / "release")
    accepted = typed(line, folder)
    assert accepted.returncode == 0, accepted.stderr
    assert 'Good "fedplcc-release" signature for releaser' in accepted.stdout
    wheel = folder / released.file(".whl").name
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"!")
    refused = typed(line, folder)
    assert refused.returncode != 0
    assert f"{wheel.name}: FAILED" in refused.stdout
    sums = folder / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(digest(released.file(".whl")), digest(wheel)))
    assert typed(line, folder).returncode != 0  # new sums, the old signature
    new_key(tmp_path / "other")
    sign = ["ssh-keygen", "-Y", "sign", "-q", "-n", "fedplcc-release", "-f", str(tmp_path / "other"), str(sums)]
    (folder / "SHA256SUMS.sig").unlink()
    subprocess.run(sign, check=True, capture_output=True, timeout=COMMAND_S)
    assert typed(line, folder).returncode != 0  # somebody else's signature


def test_a_changed_bundle_is_refused(released: Released, tmp_path: Path) -> None:
    folder = released.copy(tmp_path / "release")
    bundle = folder / f"sapling-{VERSION}-offline.tar"
    bundle.write_bytes(bundle.read_bytes().replace(b"leaf==1.0", b"leaf==1.1"))
    refused = typed(lines_of_the_guide("verify"), folder)
    assert refused.returncode != 0
    assert f"{bundle.name}: FAILED" in refused.stdout


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, of util-linux")
def test_the_bundle_installs_without_a_network_what_its_list_has_and_nothing_else(
    released: Released, tmp_path: Path
) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=COMMAND_S)
    folder = released.copy(tmp_path / "release")
    pip = f"{sys.executable} -m pip --python {environment}/bin/python --disable-pip-version-check"
    lines = lines_of_the_guide("install").replace("python -m pip", pip)
    unpacked = folder / f"sapling-{VERSION}-offline"
    with tarfile.open(f"{unpacked}.tar") as archive:
        assert {(member.mtime, member.uid, member.mode) for member in archive} == {
            (read_project(released.root).epoch_s, 0, 0o644)
        }
    unpack, install = lines.splitlines()
    typed(unpack, folder)
    leaf = unpacked / "wheels" / "leaf-1.0-py3-none-any.whl"
    leaf.write_bytes(leaf.read_bytes().replace(b"green", b"black"))
    refused = typed(install, unpacked, without_network=True)
    if "unshare" in refused.stderr:
        pytest.skip(f"this machine allows no network namespaces: {refused.stderr}")
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    done = typed(lines, folder, without_network=True)
    assert done.returncode == 0, done.stderr
    asked = "import importlib.metadata as m; print(*sorted(f'{d.name} {d.version}' for d in m.distributions()), sep=chr(10))"
    found = subprocess.run(
        [environment / "bin" / "python", "-I", "-c", asked],
        check=True,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    listed = json.loads((folder / f"sapling-{VERSION}-aggregator.cdx.json").read_text())
    parts = [listed["metadata"]["component"], *listed["components"]]
    assert found.stdout.split("\n")[:-1] == sorted(f"{part['name']} {part['version']}" for part in parts)
    assert {part["hashes"][0]["content"] for part in parts} == {
        digest(path) for path in (unpacked / "wheels").iterdir()
    }
    assert {part.get("scope", "required") for part in parts} == {"required"}


def test_a_licence_that_the_wheel_does_not_say_and_a_key_that_is_not_there_leave_no_release(
    released: Released, tmp_path: Path
) -> None:
    root = shutil.copytree(released.root, tmp_path / "sapling")
    with pytest.raises(Refused, match="there is no key"):
        make_release(root, tmp_path / "no-key", tmp_path / "dist")
    assert not (tmp_path / "dist").exists()
    (root / "locks" / "licences.txt").write_text("leaf AGPL-3.0-only\n")
    commit(root)
    with pytest.raises(Refused, match=r"leaf is under AGPL-3.0-only, which release/licences.py does not accept"):
        make_release(root, released.key, tmp_path / "dist")
