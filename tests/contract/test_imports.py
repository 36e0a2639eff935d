"""Imports between packages, checked by the contracts in pyproject.toml and by fresh interpreters."""

from __future__ import annotations

import json
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedplcc import aggregator, gateway, shared
from tests.support import ROOT

CONTRACTS = [
    contract["name"]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
]


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def lint_imports(cwd: Path) -> dict[str, str]:
    """What import-linter says of each contract: KEPT or BROKEN."""
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = python("-c", command, "--no-cache", cwd=cwd)
    verdicts = dict(re.findall(r"^(.+) (KEPT|BROKEN)\b", done.stdout, re.MULTILINE))
    assert done.returncode == int("BROKEN" in verdicts.values()), done.stdout + done.stderr
    return verdicts


def test_every_import_contract_holds() -> None:
    assert lint_imports(ROOT) == dict.fromkeys(CONTRACTS, "KEPT")


VIOLATIONS = {
    "Only the trainer and the command know torch": ("aggregator/rounds/events.py", "def lazily():\n    import torch"),
    "Methods and records are pure": ("shared/methods/maths.py", "import sqlite3"),
    "Methods know parts, parts know no method": ("shared/methods/config.py", "import fedplcc.shared.methods.method"),
    "The coordinator does not know how it is called or where it stores": (
        "aggregator/ledger/ledger.py",
        "from fedplcc.aggregator.store.database.sql_store import SqlStore",
    ),
    "Rounds are pure": ("aggregator/rounds/quorum.py", "import fedplcc.shared.process.log"),
    "Folders of the aggregator": ("aggregator/rounds/settling.py", "import fedplcc.aggregator.presence.sessions"),
    "Folders of the trainer": ("trainer/models/cnn.py", "import fedplcc.trainer.learning.training"),
    "Folders of the gateway": ("gateway/run_service.py", "import fedplcc.gateway.http.problem"),
    "The command knows the services, these know shared and never each other": (
        "gateway/http/bodies/sse.py",
        "import fedplcc.aggregator.rounds.machine",
    ),
    "Folders of shared": ("shared/errors.py", "import fedplcc.shared.types"),
    "Generated code stays at the edges": (
        "trainer/learning/training.py",
        "from fedplcc.shared.gen.fedplcc.v1 import types_pb2",
    ),
}
"""One forbidden import for each contract."""


def test_every_import_contract_breaks_when_its_rule_is_broken(tmp_path: Path) -> None:
    for package in ("aggregator", "fedplcc", "gateway", "shared", "trainer"):
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert list(VIOLATIONS) == CONTRACTS, "a new contract needs a violation here that shows that it bites"
    for file, line in VIOLATIONS.values():
        with (tmp_path / file).open("a") as module:
            module.write(f"\n{line}\n")
    assert lint_imports(tmp_path) == dict.fromkeys(CONTRACTS, "BROKEN")


def imported_by(*modules: str) -> set[str]:
    """The packages, each by its first name and after `fedplcc` by its second, that a fresh interpreter then holds."""
    program = "import sys, json, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    program += "print(json.dumps(sorted({name.removeprefix('fedplcc.').partition('.')[0] for name in sys.modules})))"
    done = python("-c", program, *modules)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


FORBIDDEN = {
    "fedplcc.aggregator.app": {"torch", "torchvision", "fastapi", "uvicorn", "gateway", "trainer"},
    "fedplcc.gateway.app": {"torch", "torchvision", "sqlalchemy", "aggregator", "trainer"},
}
"""What an installation with only that process's extra does not have, and what it must not need."""


@pytest.mark.parametrize("app", FORBIDDEN)
def test_a_service_starts_without_torch_and_without_the_other_services(app: str) -> None:
    assert not imported_by(app) & FORBIDDEN[app]


def test_no_module_of_shared_aggregator_or_gateway_brings_torch() -> None:
    modules = [
        module.name
        for package in (shared, aggregator, gateway)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]
    assert {
        "fedplcc.aggregator.app",
        "fedplcc.gateway.app",
        "fedplcc.shared.methods.arithmetic.finch",
        "fedplcc.shared.methods.prototypical.fedplcc",
    } <= set(modules)
    assert not imported_by(*modules) & {"torch", "torchvision"}


def test_the_generated_code_is_what_the_protos_generate() -> None:
    done = python("protos/generate.py", "--check")
    assert done.returncode == 0, done.stderr
