"""The locks of this project agree with pyproject.toml, and each way of not agreeing is a sentence."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from release.locks import DEPLOYED, FOLDER, LOCKS, disagreements, read_lock, requirements, table_of
from tests.support import ROOT

TABLE = table_of(ROOT)


def test_the_locks_and_pyproject_agree() -> None:
    assert disagreements(TABLE, ROOT / FOLDER) == []


def test_every_extra_is_in_a_lock() -> None:
    locked = {requirement.name for extras in LOCKS.values() for requirement in requirements(TABLE, extras)}
    for extra in TABLE["optional-dependencies"]:
        assert {requirement.name for requirement in requirements(TABLE, [extra])} <= locked, extra


@pytest.mark.parametrize("lock", DEPLOYED)
def test_what_a_host_installs_has_no_tool_of_development(lock: str) -> None:
    names = {pin.name for pin in read_lock(ROOT / FOLDER / f"{lock}.txt")}
    assert names.isdisjoint({"pytest", "mypy", "ruff", "uv", "cyclonedx-python-lib"})
    assert ("torch" in names) == (lock == "trainer")


def test_a_lock_has_every_part_that_a_part_needs() -> None:
    for lock in LOCKS:
        pins = read_lock(ROOT / FOLDER / f"{lock}.txt")
        names = {pin.name for pin in pins} | {"fedplcc"}
        assert all(pin.needed_by and pin.needed_by <= names for pin in pins), lock
        assert all(len(pin.hashes) >= 1 for pin in pins), lock


def without_httpx(text: str) -> str:
    before, _, after = text.partition("\nhttpx==")
    return before + after[after.index("\nhttpx-sse==") :]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_httpx, "locks/aggregator.txt lacks httpx, which pyproject.toml asks for"),
        (
            lambda text: text.replace("\nhttpx==", "\nhttpx==0.26 # "),
            "locks/aggregator.txt lacks httpx, which pyproject.toml asks for",
        ),
        (
            lambda text: text.replace("\nnumpy==", "\nnumpy==1.0+"),
            "pyproject.toml asks for numpy>=1.26",
        ),
        (
            lambda text: f"{text}flask==3.1 \\\n    --hash=sha256:{'0' * 64}\n    # via fedplcc (pyproject.toml)\n",
            "locks/aggregator.txt has flask for fedplcc, pyproject.toml does not ask for it",
        ),
        (lambda text: f"{text}six==1.0\n    # via pip\n", "locks/aggregator.txt has no hash of six"),
        (lambda text: f"--index-url https://index.example/\n{text}", "locks/aggregator.txt names an address"),
    ],
    ids=["absent", "unreadable", "too old", "not asked for", "no hash", "an address"],
)
def test_a_lock_that_was_changed_does_not_agree(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    path = folder / "aggregator.txt"
    path.write_text(change(path.read_text()))
    assert any(said in problem for problem in disagreements(TABLE, folder))


def test_a_new_requirement_does_not_agree_until_it_is_locked() -> None:
    table: dict[str, Any] = copy.deepcopy(TABLE)
    table["optional-dependencies"]["postgres"].append("new-driver>=2")
    problems = disagreements(table, ROOT / FOLDER)
    assert problems == [
        f"locks/{lock}.txt lacks new-driver, which pyproject.toml asks for" for lock in ("dev", "aggregator")
    ]
