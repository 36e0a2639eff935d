"""Every command that the console, a service or a command prints is one that `fedplcc` takes, word for word."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer
from typer.main import get_command

from fedplcc.command.all_commands import app
from fedplcc.command.shared_options import FLAGS, VALUES
from fedplcc.gateway.console.files import console_files
from tests.contract.test_command_names import command_lines
from tests.support import ROOT

PACKAGES = ("aggregator", "fedplcc", "gateway", "shared", "trainer")
IN_SCRIPT = re.compile(r"""(["'`])(fedplcc [a-z].*?)\1""")
"""A command that a module of the console holds as a text of its own."""
FIELD = re.compile(r"\$\{\w+\}")
GATEWAY = "--gateway https://fl.example.org:8080"
"""What the console writes for ${there}."""
NAMED = {"where": "", "command": "watch"}
"""What stands for these names in a message: options, and a word of a command."""
LACKS_A_VALUE = "requires an argument"
"""What the parser says of an option that ends a mention, as in: give it with `fedplcc state audit --witness`."""


@cache
def _root() -> Any:
    return get_command(app)


def parse(line: str) -> None:
    """Parse a command line as `fedplcc` does, and run nothing.

    Raises:
        Exception: The parser's own error.
    """
    command = _root()
    words, rest = iter(shlex.split(line)), list[str]()
    for word in words:
        if word in VALUES:
            next(words)
        elif word not in FLAGS:
            rest.append(word)
    while getattr(command, "commands", None) and rest and not rest[0].startswith("-"):
        _, command, rest = command.resolve_command(typer.Context(command), rest)
    command.make_context("fedplcc", rest)


def why_not(line: str, *, is_mention: bool) -> str | None:
    """Say why a command line cannot be typed; None if it can.

    A mention may be the name of a command without what it needs, or end with an option that wants a value.
    """
    try:
        parse(line)
    except typer.Exit:
        return None  # --help
    except (Exception, SystemExit) as error:
        is_short = type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError") or LACKS_A_VALUE in str(error)
        return None if is_mention and is_short else f"{line}: {type(error).__name__} {error}"
    return None


def in_console() -> list[str]:
    """The commands that the console shows as they are typed."""
    files = console_files().values()
    texts = [file.content.decode() for file in files if file.name.endswith(".js")]
    return [
        FIELD.sub(GATEWAY, found[2]).removeprefix("fedplcc ") for text in texts for found in IN_SCRIPT.finditer(text)
    ]


def texts_of(source: str) -> Iterator[str]:
    """The texts of a module that are no docstrings, with a value of `NAMED` or "1" for each in them."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in ast.walk(node) if part is not node}
            yield "".join(map(_part, node.values))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in silent:
            yield node.value


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    value = part.value if isinstance(part, ast.FormattedValue) else part
    return NAMED.get(value.id, "1") if isinstance(value, ast.Name) else "1"


def in_messages() -> Iterator[tuple[str, str]]:
    """The commands in texts of the packages, each with its file."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if "/gen/" in name or file.resolve() != file or name.endswith("old_names.py"):
                continue
            for text in texts_of(file.read_text(encoding="utf-8")):
                for line in command_lines(name, text):
                    yield name, re.split(r"[.,;:] |[.,;:]$|\n", line.text)[0]


def test_every_command_of_the_console_can_be_typed_as_it_stands() -> None:
    shown = in_console()
    assert len(shown) >= 8
    assert [why for line in shown if (why := why_not(line, is_mention=False))] == []


def test_every_command_in_a_message_can_be_typed() -> None:
    found = list(in_messages())
    assert len(found) > 60
    assert [(name, why) for name, line in found if (why := why_not(line, is_mention=True))] == []


@pytest.mark.parametrize(
    "line", ["trainer --client", "run begin", "run start --config run.toml now", "join --code-file /", "invite"]
)
def test_a_command_that_cannot_be_typed_is_found(line: str) -> None:
    assert why_not(line, is_mention=False) is not None


def test_a_stale_command_that_is_planted_in_a_message_is_found() -> None:
    (text,) = texts_of('def f(run):\n    """Doc: fedplcc no"""\n    say(f"try: fedplcc run start {run} now")\n')
    (line,) = command_lines("planted.py", text)
    assert why_not(line.text, is_mention=True) is not None
