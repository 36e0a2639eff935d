"""A release of this project as it stands, verified and installed on a host without a network, where a round is trained.

It takes minutes, 10 GB of disk for torch's wheels, and a package index; test_release.py shows the rest with a small project.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from fedplcc.shared.version import VERSION
from release.__main__ import make_release
from release.project import VERSION_FILE
from tests.support import ROOT
from tests.support.federation.class_folders import write_class_folders
from tests.support.records.small_project import commit, git

GUIDE = (ROOT / "docs" / "release.md").read_text(encoding="utf-8")
NEXT = re.sub(r"\d+$", lambda found: str(int(found[0]) + 1), VERSION)
WALK_S = 2400

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(WALK_S)]


def lines_of_the_guide(name: str) -> str:
    """What the guide prints to be typed."""
    block = GUIDE.partition(f"<!-- {name} -->\n```\n")[2].partition("\n```")[0]
    assert block
    return block.replace("VERSION", NEXT)


def typed(lines: str, folder: Path, environment: Path) -> str:
    """Run lines in a folder of a host that has no network, with an environment's commands; returns what they print."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FEDPLCC_", "PIP_"))}
    known["PATH"] = f"{environment / 'bin'}:{known['PATH']}"
    command = ["unshare", "--net", "bash", "-e", "-c", lines]
    done = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=WALK_S, check=False)
    assert done.returncode == 0, f"{lines}\n{done.stdout}{done.stderr}"
    return done.stdout


def answers(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=WALK_S, check=False).returncode == 0


def next_version(folder: Path) -> Path:
    """What git knows of this tree, as it is now, with the changelog's open entries as a version's notes."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listing.stdout.split("\0")):
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    version = folder / VERSION_FILE
    version.write_text(version.read_text().replace(f'"{VERSION}"', f'"{NEXT}"'))
    changelog = folder / "CHANGELOG.md"
    headed = f"## {NEXT} - 2026-01-02\n\n- It is walked.\n"
    changelog.write_text(re.sub(r"^## Unreleased\n", headed, changelog.read_text(), flags=re.M))
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def test_a_round_is_trained_on_a_host_without_a_network(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a checkout that git knows")
    if shutil.which("ssh-keygen") is None or not answers(["unshare", "--net", "true"]):
        pytest.skip("needs ssh-keygen, unshare, and to be allowed network namespaces")
    probe = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(tmp_path / "probe"), "h11"]
    if not answers(probe):
        pytest.skip("needs a package index, and pip reaches none")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
    try:
        release, _ = make_release(
            next_version(tmp_path / "tree"), key, tmp_path / "dist", bundle=("aggregator", "trainer")
        )
        trusted = key.with_suffix(".pub").read_text()
        (release / "allowed_signers").write_text(f'releaser namespaces="fedplcc-release" {trusted}')
        typed(lines_of_the_guide("verify"), release, environment)
        unpack, install = lines_of_the_guide("install").splitlines()
        typed(unpack, release, environment)
        (release / f"fedplcc-{NEXT}-offline.tar").unlink()
        install = install.replace("pip install", "pip install --no-compile")  # most of torch is never imported
        typed(install, release / f"fedplcc-{NEXT}-offline", environment)
        asked = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
        found = typed(f'python -I -c "{asked}"', tmp_path, environment)
        listed = json.loads((release / f"fedplcc-{NEXT}-trainer.cdx.json").read_text())
        parts = [listed["metadata"]["component"], *listed["components"]]
        installed: dict[str, str] = {
            canonicalize_name(name): version for name, version in (each.split("==") for each in found.split())
        }
        del installed["pip"]  # the environment's own
        assert installed == {part["name"]: part["version"] for part in parts}
        both = install.replace("trainer.txt", "aggregator.txt")  # a simulation has an aggregator of its own
        typed(both, release / f"fedplcc-{NEXT}-offline", environment)
        folder = tmp_path / "host"
        for site in ("north", "south"):
            write_class_folders(folder / "images" / site)
        sites = " ".join(f"--data {site}=folder:images/{site}" for site in ("north", "south"))
        typed(f"fedplcc config init run.toml --method fedavg {sites}", folder, environment)
        printed = typed("fedplcc simulate --config run.toml --set run.rounds=1 --json", folder, environment)
        summary = json.loads(printed.splitlines()[-1])
        assert (summary["status"], summary["round"]) == ("completed", 1)
        assert (Path(summary["directory"]) / "model.safetensors").stat().st_size > 0
    finally:
        for large in ("dist", "environment", "tree"):
            shutil.rmtree(tmp_path / large, ignore_errors=True)
