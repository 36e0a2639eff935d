"""Whether tests notice: guarantees at random, a change in the code of each, and the tests that are said to prove it.

    python -m tests.mutations --number 20 --seed 0

A change negates a condition or drops a statement, in a copy of the project: in a module that a cited test mirrors or
imports, or in what every round runs. It notes when it is reached, in other processes too, so that a change in a line
which no cited test runs is told from a survivor. Only tests of `make test` run. A survivor is for a person to judge:
the promise may be as it was.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TRIES = 4
"""Changes tried for a guarantee until one is reached."""
LIMIT_S = 900
PRODUCT = ("aggregator", "fedplcc", "gateway", "shared", "trainer")
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", "build", "tests-output", "node_modules", "*.egg-info")


class Guarantee(NamedTuple):
    """A promise and the files of tests that are cited for it."""

    promise: str
    tests: tuple[str, ...]


class Place(NamedTuple):
    """A node of a module's tree that can be changed, and what is done to it."""

    module: Path
    line: int
    change: str


def guarantees(text: str) -> list[Guarantee]:
    """Read the rows that cite files of tests."""
    found = []
    for row in re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", text, re.MULTILINE):
        cited = tuple(file for file in re.findall(r"\]\(\.\./(tests/[\w/]+/test_\w+\.py)\)", row[1]))
        if cited:
            found.append(Guarantee(row[0], cited))
    return found


def modules_of(root: Path, tests: Sequence[str]) -> list[Path]:
    """Return the product's modules that files of tests mirror; else those that they import; else those of rounds."""
    mirrored = [
        root / re.sub(r"^tests/unit/(.*)test_", r"\1", file) for file in tests if file.startswith("tests/unit/")
    ]
    found = [path for path in mirrored if path.exists() and places_in(path)]
    if found:
        return found
    imported = set()
    for file in tests:
        for node in ast.walk(ast.parse((root / file).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedplcc."):
                path = root.joinpath(*(node.module or "").split(".")).with_suffix(".py").resolve()
                if path.exists() and "gen" not in path.parts and places_in(path):
                    imported.add(path)
    return sorted(imported or (root / "aggregator" / "rounds").glob("*.py"))


@cache
def places_in(module: Path) -> list[Place]:
    """Return what can be changed in the functions of a module as it was when it was first asked for."""
    functions = [
        node
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = []
    for node in (inner for function in functions for inner in ast.walk(function)):
        if isinstance(node, ast.If):
            found.append(Place(module, node.lineno, "a condition is negated"))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.append(Place(module, node.lineno, "a call is dropped"))
        elif isinstance(node, ast.Raise | ast.AugAssign):
            found.append(Place(module, node.lineno, "a statement is dropped"))
    return sorted(set(found))


class _Changed(ast.NodeTransformer):
    def __init__(self, place: Place, mark: Path) -> None:
        self._place, self._reached = place, f"__import__('pathlib').Path({str(mark)!r}).touch()"

    def visit(self, node: ast.AST) -> ast.AST:
        node = self.generic_visit(node)
        if getattr(node, "lineno", 0) != self._place.line or not isinstance(node, ast.stmt):
            return node
        if isinstance(node, ast.If) and "negated" in self._place.change:
            condition = ast.unparse(node.test)
            node.test = ast.parse(f"({self._reached} or True) and not ({condition})", mode="eval").body
        elif isinstance(node, ast.Expr | ast.Raise | ast.AugAssign) and "dropped" in self._place.change:
            return ast.parse(self._reached).body[0]
        return node


def changed(place: Place, mark: Path) -> str:
    """Return the text of the module with the change."""
    tree = _Changed(place, mark).visit(ast.parse(place.module.read_text()))
    return ast.unparse(ast.fix_missing_locations(tree))


def verdict(root: Path, place: Place, tests: Sequence[str]) -> tuple[str, str]:
    """Run the tests with one change; returns "noticed", "survived" or "not reached", and the first test that failed."""
    mark, text = root / "reached", place.module.read_text()
    mark.unlink(missing_ok=True)
    place.module.write_text(changed(place, mark))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--part", "covering", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "noticed", "the tests do not end"
    finally:
        place.module.write_text(text)
    if done.returncode in (0, 5):
        return ("survived" if mark.exists() else "not reached"), ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return "noticed", failed[1] if failed else done.stdout.strip().rpartition("\n")[2]


def judged(root: Path, chosen: Sequence[Guarantee], rng: random.Random) -> Iterator[tuple[Guarantee, str]]:
    """Yield each guarantee with what became of a change in its code."""
    for guarantee in chosen:
        places = [place for module in modules_of(root, guarantee.tests) for place in places_in(module)]
        said = "no code to change"
        for place in rng.sample(places, min(TRIES, len(places))):
            what, first = verdict(root, place, guarantee.tests)
            said = f"{what}: {place.module.relative_to(root)}:{place.line}, {place.change}; {first}".rstrip("; ")
            if what != "not reached":
                break
        yield guarantee, said


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge some guarantees; returns 1 if a change survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--number", type=int, default=20, help="guarantees to judge; 20 by default")
    parser.add_argument("--seed", type=int, default=0, help="chooses guarantees and changes; 0 by default")
    given = parser.parse_args(arguments)
    rng, survived = random.Random(given.seed), 0
    known = guarantees((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "project"
        shutil.copytree(ROOT, root, symlinks=True, ignore=NOT_COPIED)
        for guarantee, said in judged(root, rng.sample(known, min(given.number, len(known))), rng):
            print(f"{guarantee.promise[:80]}\n    {said}", flush=True)
            survived += said.startswith("survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
