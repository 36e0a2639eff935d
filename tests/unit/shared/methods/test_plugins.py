"""Methods of other packages: their names, what is refused, and that nothing is imported that nobody listed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config.run import parse_federation, parse_run_config
from fedplcc.shared.config.settings import AggregatorSettings
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import BUILTIN, METHODS, add_methods, refusal, remove_method
from fedplcc.shared.methods.plugins import installed
from tests.support import ROOT
from tests.support.federation.strangers import METHOD, method_text, write_package

ENTRY = "pulling"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's package as it is installed: with an entry point."""
    write_package(tmp_path)
    facts = tmp_path / "strangers-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[fedplcc.methods]\n{ENTRY} = {METHOD}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    installed.cache_clear()
    yield tmp_path
    installed.cache_clear()
    for name in set(METHODS) - set(BUILTIN):
        remove_method(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "strangers"]:
        del sys.modules[name]


def a_document(method: str) -> dict[str, Any]:
    return {"run": {"method": method, "clients": ["a"]}, "data": {"classes": ["x", "y"]}}


@pytest.mark.parametrize("name", [METHOD, ENTRY])
def test_a_document_names_it_once_it_was_listed(name: str, folder: Path) -> None:
    with pytest.raises(InvalidConfig, match=f"--allow-method {name}"):
        parse_run_config(a_document(name))
    assert "strangers" not in sys.modules
    add_methods([name, "fedavg"])
    config = parse_run_config({**a_document(name), "method": {"lambda1": 2.0}})
    assert config.algorithm is METHODS[name]
    assert (config.algorithm.name, config.method.model_dump()["lambda1"]) == (name, 2.0)
    assert refusal(name) is None
    assert list(METHODS)[-1] == name


def test_a_persons_own_file_lists_the_method_that_it_names(folder: Path) -> None:
    federation = parse_federation(a_document(METHOD))
    assert federation.config.run.method == METHOD
    assert METHOD in METHODS


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strangers.nowhere", "cannot import 'strangers.nowhere'"),
        ("strangers.parts", "'strangers.parts' has no method: set METHOD = Method"),
        ("strangers", "no installed package has a method 'strangers'"),
        ("strangers.failing", "ZeroDivisionError"),
        ("strangers.ending", "SystemExit: 3"),
        ("os.path:join", "is no name of a method"),
        ("a" * 129, "is no name of a method"),
    ],
)
def test_what_is_no_method_is_refused_in_words(name: str, said: str, folder: Path) -> None:
    (folder / "strangers" / "failing.py").write_text("1 / 0\n")
    (folder / "strangers" / "ending.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(InvalidConfig) as caught:
        add_methods([name])
    assert said in caught.value.detail
    assert name not in METHODS


def test_a_builtin_name_stays_what_it_is(folder: Path) -> None:
    facts = folder / "strangers-1.0.dist-info" / "entry_points.txt"
    facts.write_text(f"[fedplcc.methods]\nfedavg = {METHOD}\n")
    installed.cache_clear()
    add_methods(["fedavg"])
    assert METHODS["fedavg"] is BUILTIN["fedavg"]
    assert "strangers" not in sys.modules


def test_an_aggregator_takes_no_method_that_imports_torch(folder: Path) -> None:
    (folder / "strangers" / "heavy.py").write_text(method_text() + "\nimport torch\n")
    code = (
        "from fedplcc.shared.errors import InvalidConfig\nfrom fedplcc.shared.methods import add_methods\n"
        "try:\n    add_methods(['strangers.heavy'], needs_no_torch=True)\n"
        "except InvalidConfig as error:\n    print(error.detail)\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "/usr/bin"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert "method 'strangers.heavy' imports torch, and aggregator and gateway run without it" in result.stdout


def test_settings_take_names_of_methods_alone() -> None:
    assert AggregatorSettings(allow_method=("a.b", "pulling")).allow_method == ("a.b", "pulling")
    with pytest.raises(ValueError, match=r"write package\.module"):
        AggregatorSettings(allow_method=("a:b",))
