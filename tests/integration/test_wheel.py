"""The wheel as a stranger gets it: built, installed in a new environment, and used from a folder far from the sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedplcc.shared.version import VERSION
from tests.support import ROOT

LINKED = ("aggregator", "gateway", "shared", "trainer")
"""Folders that are packages of `fedplcc` by a link."""
INSTALL_S = 900
"""Torch alone unpacks to 5 GB."""
SCRIPTS = {"fedplcc.aggregator.store.migrations.env"}
"""Modules that a library runs as a script."""
OF_EXTRAS = {f"fedplcc.tracking.{name}_tracker" for name in ("tensorboard", "mlflow", "wandb")}
"""Modules that are a tracker, loaded when somebody asks for it: the wheel without extras has not what they import."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALL_S)]

IMPORT_ALL = """
import importlib, json, sys
places = {name: importlib.import_module(name).__file__ for name in json.load(sys.stdin)}
print(json.dumps(places))
"""


ASK_FOR_PAGE = """
import asyncio
from fedplcc.gateway.app import create_app
from fedplcc.shared.config.settings import GatewaySettings

async def ask(path):
    sent = []
    async def send(message):
        sent.append(message)
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    await create_app(GatewaySettings(insecure=True, log_level="error"))(scope, lambda: None, send)
    return sent[0]["status"], len(sent[1]["body"])

for path in ("/", "/console/app.js", "/console/styles/console.css"):
    status, size = asyncio.run(ask(path))
    print(path, status, size > 0)
"""


@dataclass(frozen=True)
class Installed:
    """A wheel, the environment that it was installed in, and a folder from which nothing of the sources is seen."""

    wheel: Path
    environment: Path
    folder: Path

    def run(self, *command: str, stdin: str = "", timeout_s: float = 240) -> str:
        """Run a command of the environment; returns its standard output."""
        return _run([str(self.environment / "bin" / command[0]), *command[1:]], self.folder, stdin, timeout_s)

    def file_names(self) -> list[str]:
        """Every file in the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    top = tmp_path_factory.mktemp("wheel")
    sources, environment, foreign = top / "sources", top / "environment", top / "foreign"
    foreign.mkdir()
    _copy_sources(sources)
    probe = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(top / "probe"),
        "setuptools",
    ]
    if subprocess.run(probe, capture_output=True, timeout=INSTALL_S, check=False).returncode != 0:
        pytest.skip("needs a package index, and pip reaches none")
    _run([sys.executable, "-m", "build", "--wheel", "--outdir", str(top), str(sources)], top)
    (wheel,) = top.glob("*.whl")
    _run([sys.executable, "-m", "venv", str(environment)], top)
    # Modules are compiled when they are imported, which spares most of torch's.
    install = ["install", "--quiet", "--no-compile", "--disable-pip-version-check", f"fedplcc[demo] @ {wheel.as_uri()}"]
    try:
        _run([str(environment / "bin" / "python"), "-m", "pip", *install], top)
        yield Installed(wheel, environment, foreign)
    finally:
        shutil.rmtree(environment, ignore_errors=True)


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(installed: Installed) -> None:
    names = installed.file_names()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"fedplcc"}
    assert len(names) == len(set(names))
    sources = {str(path.relative_to(ROOT)) for path in _tracked("fedplcc") if not path.is_symlink()}
    sources |= {f"fedplcc/{path.relative_to(ROOT)}" for name in LINKED for path in _tracked(name)}
    assert {name for name in sources if name.endswith((".py", ".pyi", ".toml"))} <= set(names)
    assert {name for name in sources if name.startswith("fedplcc/gateway/console/static/")} <= set(names)


def test_every_module_is_imported_from_the_installed_wheel(installed: Installed) -> None:
    modules = [
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in installed.file_names()
        if name.endswith(".py") and not name.endswith("__main__.py")
    ]
    wanted = sorted(set(modules) - SCRIPTS - OF_EXTRAS)
    places = json.loads(installed.run("python", "-I", "-W", "ignore", "-c", IMPORT_ALL, stdin=json.dumps(wanted)))
    assert len(places) > 100
    elsewhere = {name: place for name, place in places.items() if not Path(place).is_relative_to(installed.environment)}
    assert elsewhere == {}


def test_the_console_is_served_from_the_installed_wheel(installed: Installed) -> None:
    output = installed.run("python", "-I", "-c", ASK_FOR_PAGE)
    for path in ("/", "/console/app.js", "/console/styles/console.css"):
        assert f"{path} 200 True\n" in output


def test_the_demo_runs_from_a_foreign_folder(installed: Installed) -> None:
    assert installed.run("fedplcc", "--version") == f"fedplcc {VERSION}\n"
    output = installed.run("fedplcc", "demo", "--rounds", "1", "--samples-per-class", "5", "--json")
    summary = json.loads(output.splitlines()[-1])
    assert (summary["status"], summary["round"]) == ("completed", 1)
    assert 0 < summary["accuracy"]["mean"] < 1
    results = installed.folder / "fedplcc-runs" / "digits"
    assert Path(summary["directory"]) == results.resolve()
    assert (results / "model.safetensors").stat().st_size > 19_000_000


def _copy_sources(folder: Path) -> None:
    """What version control knows, as it is now: a wheel must not depend on files that only this checkout has."""
    for path in _tracked("."):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)


def _tracked(folder: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("needs a checkout that git knows")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.exists()]


def _run(command: Sequence[str], folder: Path, stdin: str = "", timeout_s: float = INSTALL_S) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FEDPLCC_"))}
    result = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert result.returncode == 0, (
        f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    )
    return result.stdout
