"""No code reads a sentence to learn a fact: reasons are records (shared/reasons.py), and sentences are for people."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("aggregator", "fedplcc", "gateway", "shared", "trainer")
TAKING_APART = frozenset(
    {"endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rpartition", "rsplit", "split"}
    | {"startswith", "fullmatch", "match", "search"}
)
"""Methods of texts and patterns that look into a text."""
OF_A_SENTENCE = re.compile(r"(?:\w*_)?(?:reasons?|details?|sentences?|why|hint)")
"""Last names of expressions that hold sentences."""
JOINTS = frozenset({"; ", ": "})
"""Where sentences are joined: a text that is split there was a sentence."""
ALLOWED = {
    "fedplcc/command/exit_codes.py": "the loader of libraries says only in words that there is no room for one",
    "fedplcc/doctor/aggregator_state.py": "adds advice to a sentence for people that has none",
    "gateway/run_configuration.py": "shows the title of a method's docstring",
    "trainer/data/images/pixels.py": "Pillow says only in words that it does not unpack a long profile or text",
    "trainer/data/sets/torchvision_sets.py": "torchvision says only in words that a download failed",
    "trainer/devices/processes.py": "torch says only in words that Gloo lost another process",
    "trainer/models/timm_backbone.py": "shortens an error's sentence for people",
    "trainer/reproducibility/determinism.py": "PyTorch says only in words which operation is not deterministic",
}
"""Files that may take texts apart at these places, each with the reason."""


def sentences_read(source: str) -> list[int]:
    """Lines on which a program looks into a sentence, or splits a text where sentences are joined."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.expr))
    return sorted({node.lineno for node in nodes if _reads(node)})


def _reads(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=method, value=text), args=[_, *_] as arguments) if method in TAKING_APART:
            is_pattern = method in ("fullmatch", "match", "search")
            looked_at = [*arguments] if is_pattern else [text]
            return any(map(_is_sentence, looked_at)) or (
                isinstance(arguments[0], ast.Constant) and arguments[0].value in JOINTS
            )
        case ast.Compare(ops=[ast.In() | ast.NotIn()], left=ast.Constant(value=str()), comparators=[text]):
            return _is_sentence(text)
        case ast.Compare(ops=[ast.Eq() | ast.NotEq()], left=text, comparators=[ast.Constant(value=str(literal))]):
            return " " in literal and _is_sentence(text)
    return False


def _is_sentence(text: ast.expr) -> bool:
    match text:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return OF_A_SENTENCE.fullmatch(name) is not None
        case ast.Call(func=ast.Name(id="sentence_of")):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id="error")]):
            return True
        case ast.Call(func=ast.Attribute(attr="lower" | "strip", value=inner)):
            return _is_sentence(inner)
    return False


def test_no_product_code_takes_a_sentence_apart() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "gen" not in path.parts and (lines := sentences_read(path.read_text(encoding="utf-8")))
    }
    assert {path: lines for path, lines in found.items() if path not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "an entry that is not needed any more"


@pytest.mark.parametrize(
    "program",
    [
        'run.reason.startswith("round 3 has no quorum")',
        'reasons = task.detail.split("; ")',
        'any(why.startswith("run x: round ") for why in reasons)',
        'reason, _, detail = dropped[client_id].partition(": ")',
        '"internal error" in error.detail',
        'sentence_of(reason) != "waiting for clients to join"',
        're.match("round", sentence)',
    ],
)
def test_a_program_that_reads_a_sentence_would_be_found(program: str) -> None:
    assert sentences_read(program) == [1]


@pytest.mark.parametrize(
    "program", ['name.split("/")', 'error.reason == "DISK_FULL"', "isinstance(run.reason, NoQuorum)"]
)
def test_names_and_typed_reasons_may_be_looked_at(program: str) -> None:
    assert sentences_read(program) == []
