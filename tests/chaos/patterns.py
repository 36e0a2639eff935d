"""Every regular expression of the source, against texts that make a careless one take much longer than they are long.

Patterns come from the syntax trees: each call of `re`, with its pattern evaluated where it stands. Texts are repetitions of
the words and characters of a pattern's own, after a beginning of its own. A search may at most triple when its text doubles.

    python -m tests.chaos.patterns        all of them
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from re import _constants as kinds
from re import _parser as parser
from typing import Any

from fedplcc.shared.documents.requests import REQUEST_ID
from tests.support import ROOT
from tests.support.growth import MOST_A_DOUBLING

PACKAGES = ("shared", "aggregator", "gateway", "trainer", "fedplcc")
USES: dict[str, Callable[[re.Pattern[str], str], object]] = {
    "match": re.Pattern.match,
    "fullmatch": re.Pattern.fullmatch,
    "search": re.Pattern.search,
} | dict.fromkeys(("sub", "subn", "split", "findall", "finditer"), lambda pattern, text: list(pattern.finditer(text)))
"""What the source does with patterns."""
SIZES = (8, 16, 18, 20, 22, 24, 26, 28, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Characters of the texts. They grow slowly at first: the time of a bad pattern may double with each."""
LONG_S = 0.02
"""Processor time of which only growth is a fault; a linear search takes a hundredth of it for the longest text."""
MOST_UNITS, MOST_BEGINNINGS = 20, 5
"""Most repeated words and most beginnings of one pattern's texts."""
_OF_CATEGORY = {
    kinds.CATEGORY_DIGIT: "1",
    kinds.CATEGORY_SPACE: " ",
    kinds.CATEGORY_WORD: "a",
    kinds.CATEGORY_NOT_DIGIT: "a",
    kinds.CATEGORY_NOT_SPACE: "a",
    kinds.CATEGORY_NOT_WORD: "!",
}


@dataclass(frozen=True, slots=True)
class Used:
    """A pattern and what is done with it."""

    where: str
    pattern: re.Pattern[str]
    use: str


class Unlisted(AssertionError):
    """A pattern is put together of what is known only when its function runs, and is not in `PUT_TOGETHER`."""


PUT_TOGETHER: dict[str, Callable[[Any], Iterable[str]]] = {
    "fedplcc/comparison/sweep/section.py: pattern": lambda module: module.FIXED,
    "fedplcc/command/gateway_calls.py: REQUEST_ID": lambda _module: [REQUEST_ID],
    "trainer/data/sets/folder.py: pattern": lambda _module: [],  # of the site's owner, for paths of the owner's files
}
"""Such patterns, by their module and text."""


def used() -> list[Used]:
    """The patterns of the source.

    Raises:
        Unlisted: One cannot be evaluated where it stands.
    """
    trees = {
        str(path.relative_to(ROOT)): ast.parse(path.read_text())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "gen" not in path.parts
    }
    uses = _uses(trees.values())
    return [each for path, tree in trees.items() for each in _used_in(path, tree, uses)]


def _used_in(path: str, tree: ast.Module, uses: dict[str, set[str]]) -> Iterator[Used]:
    names = {
        node.value: node.targets[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        function = call.func.attr
        if ast.unparse(call.func.value) != "re" or function not in (*USES, "compile"):
            continue
        name = path.removesuffix(".py").replace("/", ".")
        module = importlib.import_module(name if name.startswith("fedplcc.") else f"fedplcc.{name}")
        places = {
            "compile": 1,
            "match": 2,
            "fullmatch": 2,
            "search": 2,
            "findall": 2,
            "finditer": 2,
            "sub": 4,
            "split": 3,
        }
        given = [
            each for each in (*call.args[places[function] :], *(kw.value for kw in call.keywords if kw.arg == "flags"))
        ]
        flags = sum(int(_value(each, module)) for each in given)
        try:
            texts: Iterable[str] = [_value(call.args[0], module)]
        except NameError as error:
            known = PUT_TOGETHER.get(f"{path}: {ast.unparse(call.args[0])}")
            if known is None:
                raise Unlisted(f"{path}:{call.lineno}: {ast.unparse(call.args[0])}") from error
            texts = known(module)
        of_name = uses.get(names.get(call, ""), set()) or {"search"}
        for text in (each.decode("latin-1") if isinstance(each, bytes) else each for each in texts):  # alike as text
            for use in sorted(of_name if function == "compile" else {function}):
                yield Used(f"{path}:{call.lineno}", re.compile(text, flags), use)


def _value(node: ast.expr, module: Any) -> Any:
    return eval(compile(ast.Expression(node), module.__name__, "eval"), vars(module))  # a part of our own source


def _uses(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """What is done with compiled patterns anywhere, by their names."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.Attribute) and node.attr in USES:
            found[ast.unparse(node.value).rpartition(".")[2]].add(node.attr)
    return found


def texts_of(pattern: re.Pattern[str]) -> Iterator[Callable[[int], str]]:
    """Makers of texts of a size: a beginning, then a word again and again, then what matches nothing."""
    words = list(dict.fromkeys(_words(parser.parse(pattern.pattern, pattern.flags))))
    characters = list(dict.fromkeys("".join(words)))
    units = [*dict.fromkeys([*characters[:12], *words[:8], *(first + second for first, second in pairwise(words))])]
    beginnings = ["", *sorted((word for word in words if len(word) > 1), key=len, reverse=True)]
    for beginning, unit in product(beginnings[:MOST_BEGINNINGS], units[:MOST_UNITS]):
        yield lambda size, beginning=beginning, unit=unit: beginning + (unit * size)[:size] + "\x00"  # type: ignore[misc]


def _words(parsed: Any) -> Iterator[str]:
    """Literal words of a parsed pattern, and a character of each of its sets."""
    word = ""
    for kind, value in parsed:
        if kind is kinds.LITERAL:
            word += chr(value)
            continue
        if word:
            yield word
        word = ""
        if kind is kinds.IN:
            yield from _of_set(value)
        elif kind in (kinds.ANY, kinds.NOT_LITERAL):
            yield "x"
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT):
            yield from _words(value[2])
        elif kind is kinds.SUBPATTERN:
            yield from _words(value[3])
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from _words(value[1])
        elif kind is kinds.BRANCH:
            for each in value[1]:
                yield from _words(each)
        elif kind is kinds.ATOMIC_GROUP:
            yield from _words(value)
    if word:
        yield word


def _of_set(entries: Any) -> Iterator[str]:
    if entries[0][0] is kinds.NEGATE:
        yield "x"
    for kind, value in entries:
        if kind is kinds.LITERAL:
            yield chr(value)
        elif kind is kinds.RANGE:
            yield chr(value[0])
        elif kind is kinds.CATEGORY:
            yield _OF_CATEGORY.get(value, "x")


def growth_of(each: Used) -> str:
    """What is wrong with a pattern, in words; empty if nothing is."""
    search = USES[each.use]
    for text in texts_of(each.pattern):
        for size in SIZES:
            if _seconds(lambda given: search(each.pattern, given), text(size)) < LONG_S:
                continue
            long, quarter = (  # two doublings: a busy machine disturbs one more than their factor
                min(_seconds(lambda given: search(each.pattern, given), text(part)) for _ in range(3))
                for part in (size, size // 4)
            )
            if long > LONG_S and long > MOST_A_DOUBLING**2 * quarter:
                return f"{each.where}: {each.use} of {each.pattern.pattern!r} takes {long:.3f} s for {text(size)[:40]!r}..."
            if long > LONG_S:
                break
    return ""


def _seconds(work: Callable[[str], object], given: str) -> float:
    begin = time.thread_time()
    work(given)
    return time.thread_time() - begin


def main() -> int:
    """Look at every pattern; the exit code is 1 if one is bad."""
    every = used()
    wrong = [found for each in every if (found := growth_of(each))]
    print("\n".join([f"{len(every)} uses of patterns", *wrong]))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
