"""The wheel as a stranger gets it: built, installed in a new environment, and used from a folder far from the sources.

The environment has the wheel alone and finds the libraries of this one, of which it may load those that the wheel declares;
`make test-full` installs the libraries too, which takes minutes.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedplcc.deployment.files import WHEEL
from fedplcc.shared.version import VERSION
from tests.support import ROOT
from tests.support.sources import build_wheel, copy_sources, tracked

LINKED = ("aggregator", "gateway", "shared", "trainer")
"""Folders that are packages of `fedplcc` by a link."""
INSTALL_S = 900
"""Torch alone unpacks to 5 GB."""
SCRIPTS = {"fedplcc.aggregator.store.migrations.env"}
"""Modules that a library runs as a script."""
OF_EXTRAS = {
    *(f"fedplcc.tracking.{name}_tracker" for name in ("tensorboard", "mlflow", "wandb")),
    *(
        f"fedplcc.aggregator.identity.sign_on.{name}"
        for name in ("id_tokens", "pending", "provider", "rules", "sign_ons")
    ),
}
"""Modules that are loaded when somebody asks for a tracker or for single sign-on: the wheel without extras has not what they
import."""

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

    def requirements(self) -> list[str]:
        """What the wheel asks for."""
        (place,) = self.environment.glob("lib/python*/site-packages")
        (own,) = importlib.metadata.distributions(name="fedplcc", path=[str(place)])
        return own.requires or []

    def file_names(self) -> list[str]:
        """Every file in the wheel."""
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()


@pytest.fixture(scope="module", params=["wheel", pytest.param("wheel and libraries", marks=pytest.mark.full)])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    top = tmp_path_factory.mktemp("wheel")
    sources, environment, foreign = top / "sources", top / "environment", top / "foreign"
    foreign.mkdir()
    copy_sources(sources)
    # Modules are compiled when they are imported, which spares most of torch's.
    install, flags = ["install", "--quiet", "--disable-pip-version-check", "--no-compile"], list[str]()
    if request.param == "wheel":
        flags.append("--no-isolation")
        install.append("--no-deps")
    elif not _reaches_an_index(top / "probe"):
        pytest.skip("needs a package index, and pip reaches none")
    wheel = build_wheel(sources, top, *flags)
    _run([sys.executable, "-m", "venv", str(environment)], top)
    if request.param == "wheel":
        (libraries,) = environment.glob("lib/python*/site-packages")
        (libraries / "borrowed.pth").write_text(sysconfig.get_path("purelib"))  # whose own .pth files are not read
    install.append(f"fedplcc[demo] @ {wheel.as_uri()}")
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
    sources = {str(path.relative_to(ROOT)) for path in tracked("fedplcc") if not path.is_symlink()}
    sources |= {f"fedplcc/{path.relative_to(ROOT)}" for name in LINKED for path in tracked(name)}
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
    homes, declared = importlib.metadata.packages_distributions(), _declared(installed.requirements())
    loaded = {name for place in places.values() for name in _loaded_by(Path(place))}
    undeclared = {name for name in loaded if name in homes and declared.isdisjoint(map(canonicalize_name, homes[name]))}
    assert loaded >= {"torch", "fastapi", "sqlalchemy"}
    assert undeclared == set(), "loaded, and not among what the wheel asks for"


def test_the_files_of_a_deployment_are_written_from_the_wheel_as_a_clone_has_them(
    installed: Installed, tmp_path: Path
) -> None:
    assert installed.run("fedplcc", "deploy", "files", str(tmp_path)).startswith("wrote ")
    locks = [ROOT / "locks" / f"{name}.txt" for name in ("aggregator", "trainer")]
    kept = [*tracked("deploy"), *tracked("Dockerfile.*"), ROOT / ".dockerignore", *locks]
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {path.relative_to(ROOT): path.read_bytes() for path in kept}
    assert installed.wheel.name == WHEEL, "what the Dockerfiles take"


def test_the_console_is_served_from_the_installed_wheel(installed: Installed) -> None:
    output = installed.run("python", "-I", "-c", ASK_FOR_PAGE)
    for path in ("/", "/console/app.js", "/console/styles/console.css"):
        assert f"{path} 200 True\n" in output


@pytest.mark.full
def test_the_demo_runs_from_a_foreign_folder(installed: Installed) -> None:
    assert installed.run("fedplcc", "--version") == f"fedplcc {VERSION}\n"
    output = installed.run("fedplcc", "demo", "--rounds", "1", "--samples-per-class", "5", "--json")
    summary = json.loads(output.splitlines()[-1])
    assert (summary["status"], summary["round"]) == ("completed", 1)
    assert 0 < summary["accuracy"]["mean"] < 1
    results = installed.folder / "fedplcc-runs" / "digits"
    assert Path(summary["directory"]) == results.resolve()
    assert (results / "model.safetensors").stat().st_size > 19_000_000


def _reaches_an_index(folder: Path) -> bool:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "setuptools"]
    return subprocess.run(command, capture_output=True, timeout=INSTALL_S, check=False).returncode == 0


def _loaded_by(module: Path) -> set[str]:
    """The packages that a module loads when it is imported."""
    nodes = ast.parse(module.read_text()).body
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in imported} - {"fedplcc"}


def _declared(requirements: Sequence[str], extras: frozenset[str] = frozenset({"demo"})) -> set[str]:
    """Names of all distributions that these requirements lead to, with their own ones."""
    found: set[str] = set()
    left = [(text, extras) for text in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        text, wanted = left.pop()
        requirement = Requirement(text)
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in wanted | {""}):
            continue
        further = frozenset(requirement.extras)
        found.add(name)
        if (name, further) not in seen:
            seen.add((name, further))
            texts = requirements if name == "fedplcc" else _required_by(name)
            left += [(each, further) for each in texts]
    return found


def _required_by(name: str) -> Sequence[str]:
    try:
        return importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()


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
