"""Check that whatever code, documents and configurations cite is there.

python -m docs.site.citations

Five forms are citations:

- `docs/algorithms.md, rule 1.7`; in a document also the link `[rule 1.7](algorithms.md#...)`: the page has the rule.
- `FedPLCC, eq. 10 and 11`; in the file of a method, or of its tests, `eq. 10` alone: the method's section has the equation.
- `section 4.1`, only of another publication, which is named before it: "the paper's section 4.1", "RFC 9113, section 6.9".
- `docs/decisions/012`: the folder has the file of this number.
- `deploy/alerts.md`, `rounds/quorum.py`: a path is there, seen from a folder above the file that cites it; a name without a
  folder is that of some file.

Of Python, comments and docstrings are read, of all else the whole text. The build of the site checks links of documents.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALGORITHMS = "docs/algorithms.md"
DECISIONS = "docs/decisions"
SUFFIXES = {".py", ".md", ".toml", ".js", ".proto", ".yaml", ".yml", ".json", ".html", ".css", ".service"}
LEFT_OUT = {
    "shared/gen": "generated from protos/, whose comments are read",
    "docs/configuration.md": "generated from docstrings, which are read",
    "docs/site/citations.py": "shows the forms",
    "tests/golden": "what was recorded",
    "CHANGELOG.md": "history: what was there then",
}
"""Files and folders that are not read, each with the reason."""
NOT_YET = {"report.md", "RELEASE-NOTES.md", "fedpull.py", "fedavgm.py", "fedcentre.py"}
"""Files that a command writes, and the examples of a guide."""
EXTERNAL = ("RFC", "standard", "paper", "https://")
"""Words before a section's number that name another publication."""

_NUMBERS = r"(\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)"
_RULE = re.compile(rf"(docs/algorithms\.md, |\[)?\b[Rr]ules? (?=\d+\.){_NUMBERS}")
_EQUATION = re.compile(rf"(?:\b([A-Z]\w*), )?\b(?:[Ee]q\.|[Ee]quations?) {_NUMBERS}")
_SECTION = re.compile(r"\b[Ss]ections? \d+")
_DECISION = re.compile(r"\bdocs/decisions/(\d+)\b(?!-)")
_OLD_DECISION = re.compile(r"DECISIONS(?:\.md)?`?(?:\]\([^)]*\))?,? (?:records? )?\d+")
_FILE = re.compile(r"(?<![\w/.:*<{$-])(?![\w./-]*\.\.\.)[\w./-]+\.(?:md|py)\b(?![/*])")
_REACH = 160
"""Characters before a section's number in which its publication is named."""


@dataclass(frozen=True, slots=True)
class Known:
    """Rules, equations, decisions and files that can be cited.

    Attributes:
        rules: Numbers of rules, as "1.7".
        equations: Numbers of equations by the name of their method, as "FedPLCC".
        decisions: Numbers of the files of decisions, as "012".
        files: Names of files, alone and with any number of their folders: `c.py`, `b/c.py`, `a/b/c.py`.
    """

    rules: frozenset[str]
    equations: Mapping[str, frozenset[str]]
    decisions: frozenset[str]
    files: frozenset[str] = frozenset()


def known(algorithms: str, paths: Iterable[str]) -> Known:
    """Return what the page of algorithms defines, and the numbers and names of these files."""
    paths = list(paths)
    return Known(
        rules=frozenset(re.findall(r"^### Rule (\d+\.\d+):", algorithms, re.MULTILINE)),
        equations={
            name: frozenset(numbers)
            for name, section in sections(algorithms)
            if (numbers := re.findall(r"\*\*[Ee]q\. (\d+)\*\*", section))
        },
        decisions=frozenset(re.findall(rf"^{DECISIONS}/(\d+)-", "\n".join(paths), re.MULTILINE)),
        files=frozenset(
            "/".join(parts[i:]) for path in paths for parts in [path.split("/")] for i in range(len(parts))
        ),
    )


def sections(algorithms: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each section of the page of algorithms; what stands before the first has none."""
    before, *rest = re.split(r"^## ", algorithms, flags=re.MULTILINE)
    yield "", before
    for text in rest:
        head, _, body = text.partition("\n")
        yield head.partition(". ")[2], body


def passages(path: str, text: str) -> Iterator[str]:
    """Yield the texts of a file that may cite, each on one line."""
    if not path.endswith(".py"):
        yield _on_one_line(text)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield _on_one_line(node.value.value)
    comments: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.append(token.string)
        elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT) and comments:
            yield _on_one_line("\n".join(comments))
            comments = []


def problems(path: str, text: str, known: Known, root: Path = ROOT) -> list[str]:
    """Return a sentence for each citation in a file that is wrong.

    Args:
        path: The file's, from the root.
        text: Its content.
        known: What can be cited.
        root: Folder of the repository.
    """
    if path == ALGORITHMS:
        found = [
            problem
            for name, section in sections(text)
            for problem in _problems_of(path, _on_one_line(section), known, root, method=name)
        ]
    else:
        method = _method_of(path, known)
        found = [
            problem for passage in passages(path, text) for problem in _problems_of(path, passage, known, root, method)
        ]
    return [f"{path}: {problem}" for problem in found]


NOT_OURS = frozenset(
    {"build", "dist", "node_modules", "tests-output", "fedplcc-runs", "fedplcc-state", "fedplcc-comparisons"}
)
"""Folders that commands leave in a checkout."""


def main() -> None:
    """Check every file; exits with the sentences, one a line, if there are any."""
    paths = [*files(ROOT), *LEFT_OUT]
    there = known(_read(ROOT / ALGORITHMS), paths)
    found = [problem for path in files(ROOT) for problem in problems(path, _read(ROOT / path), there)]
    if found:
        sys.exit("\n".join(found))
    print("citations: clean")


def files(root: Path) -> Iterator[str]:
    """Yield the paths, from the root, of the files that are read."""
    for top in sorted(root.iterdir()):
        if top.name.startswith(".") or top.name in NOT_OURS:
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            name = path.relative_to(root).as_posix()
            is_read = path.suffix in SUFFIXES or path.name.startswith(("Dockerfile", "Makefile"))
            if is_read and path.is_file() and not any(name == out or name.startswith(f"{out}/") for out in LEFT_OUT):
                yield name


def _problems_of(path: str, passage: str, known: Known, root: Path, method: str) -> Iterator[str]:
    for match in _RULE.finditer(passage):
        if match[1] is None and path != ALGORITHMS:
            yield f"{match[0]!r}: write docs/algorithms.md, rule N.M"
        for number in _numbers(match[2]):
            if number not in known.rules:
                yield f"{match[0]!r}: docs/algorithms.md has no rule {number}"
    for match in _EQUATION.finditer(passage):
        name = match[1] if match[1] in known.equations else method
        if not name:
            yield f"{match[0]!r}: name the method, as in FedPLCC, eq. 6"
            continue
        for number in _numbers(match[2]):
            if number not in known.equations[name]:
                yield f"{match[0]!r}: the section {name} of docs/algorithms.md has no eq. {number}"
    for match in _SECTION.finditer(passage):
        before = passage[max(0, match.start() - _REACH) : match.start()]
        if not any(word in before for word in EXTERNAL):
            yield f"{match[0]!r}: of which publication? Rules of this project have the form docs/algorithms.md, rule N.M"
    for match in _DECISION.finditer(passage):
        if match[1] not in known.decisions:
            yield f"{match[0]!r}: {DECISIONS} has no file {match[1]}-*.md"
    for match in _OLD_DECISION.finditer(passage):
        yield f"{match[0]!r}: write {DECISIONS}/NNN"
    for match in _FILE.finditer(passage):
        is_there = any((root / folder / match[0]).is_file() for folder in Path(path).parents)
        if not (is_there or match[0] in known.files or Path(match[0]).name in NOT_YET):
            yield f"{match[0]!r}: there is no such file"


def _method_of(path: str, known: Known) -> str:
    """The method whose file, or whose tests, a path is of; empty for none."""
    if "methods" not in Path(path).parent.parts:
        return ""
    stem = Path(path).stem.removeprefix("test_")
    return next((name for name in known.equations if name.lower() == stem), "")


def _numbers(text: str) -> Iterator[str]:
    """The numbers of a citation: "9 to 11" are three."""
    for part in re.split(r", | and ", text):
        first, _, last = part.partition(" to ")
        if last.isdecimal() and first.isdecimal():
            yield from map(str, range(int(first), int(last) + 1))
        else:
            yield from filter(None, (first, last))


def _on_one_line(text: str) -> str:
    """A text whose lines, without the signs of comments, are joined."""
    return " ".join(re.sub(r"^\s*(#+|//+|\*)?\s*", "", line) for line in text.splitlines())


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    main()
