"""Every command line that documents and messages name exists: its command and its options; old names are found."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.exit_codes import ExitCode
from fedplcc.command.old_names import NEW_NAMES
from fedplcc.command.shared_options import FLAGS, VALUES
from tests.support import ROOT

SUFFIXES = (
    ".md",
    ".py",
    ".toml",
    ".yaml",
    ".yml",
    ".service",
    ".timer",
    ".env",
    ".sh",
    ".js",
    ".ts",
    ".html",
    ".ipynb",
)
NAMES = ("Makefile", "Dockerfile.aggregator", "Dockerfile.trainer")
APART = (
    *("CHANGELOG.md", "DECISIONS.md", "fedplcc/command/old_names.py", "tests/contract/test_command_names.py"),
    *("tests/unit/fedplcc/command/test_help.py", "tests/contract/test_printed_commands.py"),
)
"""Files that may name what there was, or half a command."""
PROSE = frozenset({"is", "needs", "recovery", "trains"})
"""Words that follow the project's name where no command is meant."""
FOR_ALL = frozenset({"--help", "-h", "--install-completion", "--show-completion", "--version"})
LINE = re.compile(
    r"(?P<before>[`'\"(]|: |\$ |\| |& |; |\bRUN |\bCMD |until |nohup |sudo |^[ \t]*)"
    r"(?:[A-Z_]+=\S+ )?fedplcc (?P<rest>[a-z\-][^`\n]*)",
    re.MULTILINE,
)
"""A command line: what stands before it, and what follows its first word up to a closing mark."""


class Named(NamedTuple):
    """A command line that a file names."""

    file: str
    text: str


def options_by_command(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], set[str]]]:
    """Every group, command and action of one with the options that it takes."""
    command = command or get_command(app)
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    yield path, options
    for action in next((each.type_descriptor.annotation for each in command.params if each.name == "action"), ()):
        yield (*path, action), options
    for name in getattr(command, "commands", {}):
        _, child, _ = command.resolve_command(typer.Context(command), [name])
        yield from options_by_command(child, (*path, name))


@pytest.fixture(scope="module")
def known() -> Mapping[tuple[str, ...], set[str]]:
    return dict(options_by_command())


def command_lines(file: str, text: str) -> Iterator[Named]:
    """The command lines in a text: in code, quotes and fences, or after a colon."""
    for found in LINE.finditer(text):
        rest, before = found["rest"], found["before"]
        closing = {"`": "`", "'": "'", '"': '"', "(": ")"}.get(before, "")
        for mark in (closing, " | ", " && ", " >", " 2>", ";", " # ", "\\n", "  "):
            rest = rest.partition(mark)[0] if mark else rest
        yield Named(file, rest)


def problem_of(line: Named, known: Mapping[tuple[str, ...], set[str]]) -> str | None:
    """What is wrong with a command line; None if nothing is."""
    words = line.text.replace('"', " ").replace("'", " ").split()
    while words and words[0].startswith("--"):
        words = words[2 if words[0] in VALUES else 1 :]
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in known:
        path = (*path, words.pop(0))
    is_group = any(len(each) > len(path) and each[: len(path)] == path for each in known)
    if is_group and words and re.fullmatch(r"[a-z]+", words[0]) and words[0] not in PROSE:
        return f"there is no command {' '.join((*path, words[0]))}"
    if not path:
        return None
    allowed = known[path] | FOR_ALL | {*FLAGS, *VALUES}
    for word in words:
        option = re.match(r"\[?(--[a-z][a-z-]*)", word)
        if option is not None and option[1] not in allowed:
            return f"{' '.join(path)} has no {option[1]}"
    return None


def texts() -> Iterator[tuple[str, str]]:
    """Every document, message and file of a deployment with its name."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if name not in APART and path.is_file() and (path.suffix in SUFFIXES or path.name in NAMES):
            yield name, path.read_text(encoding="utf-8")


def test_every_command_line_in_documents_and_messages_can_be_typed(known: Mapping[tuple[str, ...], set[str]]) -> None:
    lines = [line for name, text in texts() for line in command_lines(name, text)]
    assert len(lines) > 500
    assert [(line, why) for line in lines if (why := problem_of(line, known)) is not None] == []


@pytest.mark.parametrize(
    "text",
    [
        "Try `fedplcc run stages RUN`, which shows it.",
        "```\nfedplcc runs results --sort mean\n```",
        'raise InvalidConfig("fetch it with: fedplcc data describe SPEC --fetsh")',
        "until fedplcc health http://127.0.0.1:8080; do sleep 1; done",
        "    CMD fedplcc health 127.0.0.1:50052",
        "    sudo fedplcc backup state copy",
        "Make one with `fedplcc key make`.",
    ],
)
def test_a_stale_name_that_is_planted_is_found(text: str, known: Mapping[tuple[str, ...], set[str]]) -> None:
    (line,) = command_lines("planted.md", text)
    assert problem_of(line, known) is not None


@pytest.mark.parametrize("name", NEW_NAMES)
def test_an_old_name_answers_with_the_new_one_and_stands_in_no_help(
    name: str, known: Mapping[tuple[str, ...], set[str]]
) -> None:
    answer = CliRunner().invoke(app, [*name.split(), "anything", "--json"])
    assert (answer.exit_code, answer.stdout) == (ExitCode.USAGE, "")
    assert answer.stderr == f"fedplcc: 'fedplcc {name}' is '{NEW_NAMES[name]}' now\n"
    assert tuple(name.split()) not in known
    assert problem_of(Named("old_names.py", NEW_NAMES[name].removeprefix("fedplcc ")), known) is None
