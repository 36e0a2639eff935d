"""Modules of the working folder: found while one that was named is imported, and never else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.importing import import_module

NAMES = ("named_module", "its_neighbour", "an_outsider")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "named_module.py").write_text("import its_neighbour\n")
    for name in NAMES[1:]:
        (tmp_path / f"{name}.py").write_text("")
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_named_module_and_its_neighbours_are_found_and_no_later_import_is(folder: Path) -> None:
    before = list(sys.path)
    module = import_module("named_module", "named_module:make", InvalidModel)
    assert module.__file__ == str(folder / "named_module.py")
    assert "its_neighbour" in sys.modules
    assert sys.path == before
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("an_outsider")


@pytest.mark.parametrize("text", ["raise OSError('gone')", "raise SystemExit(0)", "import sys; sys.path = ['other']"])
def test_whatever_a_module_does_the_folder_leaves_the_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "named_module.py").write_text(text)
    if "sys.path" in text:
        import_module("named_module", "named_module:make", InvalidModel)
    else:
        with pytest.raises(InvalidModel, match="cannot import 'named_module' of 'named_module:make'"):
            import_module("named_module", "named_module:make", InvalidModel)
    assert str(folder) not in sys.path


def test_a_script_in_the_repositorys_folder_has_the_same_modules_by_both_names() -> None:
    same = "shared.errors.InvalidData is e.InvalidData and trainer.data.roles.has_role is r.has_role"
    script = (
        "import shared.errors, trainer.data.roles, fedplcc.shared.errors as e, fedplcc.trainer.data.roles as r\n"
        f"assert {same}"
    )
    subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], check=True, timeout=120)
