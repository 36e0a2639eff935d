"""Whether tests notice: guarantees at random, a change in the code of each, and the tests that are said to prove it.

    python -m tests.mutations --number 20 --seed 0

A change negates a condition or drops a statement, in a copy of the project: in a module that a cited test is named after,
or in one that it imports and few others do. It notes when it is reached, in other processes too, so that a change in a line
which no cited test runs is told from a survivor. Only tests of `make test` run. Promises of files and of processes alone,
whose tests import no such module, are left out. A survivor is for a person to judge: the promise may be as it was.
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
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TRIES = 4
"""Changes tried for a guarantee until one is reached."""
LEAST_USUAL = 3
"""Modules of an import that are changed: those that the fewest files of tests import."""
LIMIT_S = 900
FASTEST = ("unit", "contract", "property", "chaos", "browser", "integration")
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
    rows = re.findall(r"^\| (.+?) \| (.+?) \| .+ \|$", text, re.MULTILINE)
    cited = ((promise, re.findall(r"\]\(\.\./(tests/[\w/]+/test_\w+\.py)\)", row)) for promise, row in rows)
    fastest = [(promise, sorted(files, key=lambda file: FASTEST.index(file.split("/")[1]))) for promise, files in cited]
    return [Guarantee(promise, tuple(files)) for promise, files in fastest if files]


def modules_of(root: Path, tests: Sequence[str]) -> list[Path]:
    """Return the modules that bear the names of files of tests; else, of those that they import, the least usual."""
    named = filter(None, (re.match(r"tests/unit/(\w+)/(?:.*/)?test_(\w+\.py)$", file) for file in tests))
    namesakes = {path for found in named for path in (root / found[1]).rglob(found[2]) if places_in(path)}
    imported = {path for file in tests for path in imported_by(root, root / file) if places_in(path)}
    return sorted(namesakes) or sorted(imported, key=lambda path: (importers(root)[path], path))[:LEAST_USUAL]


def imported_by(root: Path, file: Path) -> set[Path]:
    """Return the product's modules that a file of tests imports."""
    named = re.findall(r"^from fedplcc\.(?!shared\.gen)([\w.]+) import", file.read_text(), re.MULTILINE)
    paths = (root.joinpath("fedplcc", *name.split(".")).with_suffix(".py").resolve() for name in named)
    return {path for path in paths if path.exists()}


@cache
def importers(root: Path) -> Counter[Path]:
    """Count the files of tests that import each module: what everybody imports is what no promise is about."""
    return Counter(path for file in (root / "tests").rglob("*.py") for path in imported_by(root, file))


@cache
def places_in(module: Path) -> list[Place]:
    """Return what can be changed in the functions of a module as it was when it was first asked for."""
    found = set()
    tree = ast.walk(ast.parse(module.read_text()))
    for node in (
        inner for each in tree if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for inner in ast.walk(each)
    ):
        if isinstance(node, ast.If):
            found.add(Place(module, node.lineno, "a condition is negated"))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            found.add(Place(module, node.lineno, "a call is dropped"))
        elif isinstance(node, ast.Raise | ast.AugAssign):
            found.add(Place(module, node.lineno, "a statement is dropped"))
    return sorted(found)


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
        said = ""
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
    told = guarantees((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))
    known = [each for each in told if modules_of(ROOT, each.tests)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "project"
        shutil.copytree(ROOT, root, symlinks=True, ignore=NOT_COPIED)
        for guarantee, said in judged(root, rng.sample(known, min(given.number, len(known))), rng):
            print(f"{guarantee.promise[:80]}\n    {said}", flush=True)
            survived += said.startswith("survived")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
