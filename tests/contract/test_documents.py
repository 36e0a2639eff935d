"""The documents agree with the code: tables of methods, of results and of guarantees."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.config import MethodConfig
from fedplcc.shared.methods.prototypes import ClusterConfig, PrototypeConfig
from tests.support import ROOT

DOCS = ROOT / "docs"
SHARED_KEYS = (MethodConfig, PrototypeConfig, ClusterConfig)


def rows(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = [number for number, line in enumerate(lines) if re.fullmatch(r"[|:-]+", line)]
    kept = [line for number, line in enumerate(lines) if number not in heads and number + 1 not in heads]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in kept]


def test_the_table_of_methods_has_every_method_with_its_own_keys() -> None:
    table = rows((DOCS / "methods.md").read_text(encoding="utf-8").partition("## Results")[0])
    assert [row[0].strip("`") for row in table] == list(METHODS)
    for row, method in zip(table, METHODS.values(), strict=True):
        inherited = next(kind for kind in method.config.__mro__ if kind in SHARED_KEYS)
        own = [key for key in method.config.model_fields if key in method.config.__annotations__]
        assert set(own) >= method.config.model_fields.keys() - inherited.model_fields.keys()
        assert re.findall(r"`(\w+)`", row[5]) == own, method.name


GUARANTEES = rows((DOCS / "guarantees.md").read_text(encoding="utf-8"))
TESTS = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}


def test_every_guarantee_has_a_test_and_a_command() -> None:
    assert len(GUARANTEES) > 40
    assert all(len(row) == 3 and "](../" in row[1] and "`" in row[2] for row in GUARANTEES)


def test_the_command_of_a_guarantee_names_tests_that_there_are() -> None:
    for command in (found for row in GUARANTEES for found in re.findall(r'`make test ARGS="([^"]+)"`', row[2])):
        words = shlex.split(command)
        picked = words[words.index("-k") + 1] if "-k" in words else ""
        files = [word for word in words if word.startswith("tests")]
        assert picked or files, command
        assert [file for file in files if not (ROOT / file).exists()] == []
        for word in re.findall(r"\w+", picked.replace(" or ", " ")):
            assert any(word in name for name in TESTS), f"-k {word} picks no file of tests"


def is_in_make_test(path: Path) -> bool:
    """Whether a file has a test that is not left to `make test-full`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0])
    ]
    if any("mark.full" in ast.unparse(mark) for mark in marks):
        return False
    tests = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]
    return any("pytest.mark.full" not in map(ast.unparse, test.decorator_list) for test in tests)


def test_every_guarantee_has_a_test_in_make_test() -> None:
    """But those that are a number, which a benchmark measures."""
    without = []
    for promise, cited, _command in GUARANTEES:
        files = [ROOT / file for file in re.findall(r"\]\(\.\./([\w/]+\.py)\)", cited)]
        tests = [file for file in files if file.name.startswith("test_")]
        if not any(map(is_in_make_test, tests)) and not all("benchmarks" in file.parts for file in files):
            without.append(promise)
    assert without == []


WHERE = rows((DOCS / "architecture.md").read_text(encoding="utf-8").split("<!-- where -->")[1])


def test_the_architecture_answers_twenty_questions() -> None:
    assert len(WHERE) == 20
    for row in WHERE:
        path = row[1].removeprefix("[").partition("]")[0]
        assert row[1] == f"[{path}](../{path})"
        assert row[2].strip("`") in (ROOT / path).read_text(encoding="utf-8"), row[0]
