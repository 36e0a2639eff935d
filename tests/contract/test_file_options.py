"""Every option that names a file takes a file, and every one that names a folder takes a folder, in every command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from fedplcc.command.all_commands import app

NOUN = re.compile(
    r"(?P<folder>folder|state directory)|(?P<file>file|configuration|picture|weights|\bPEM\b|\.pem|write it)", re.I
)
"""The first of these words in an option's help says what it names."""


def path_options(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any, Any]]:
    """Every option and argument that is a path, with its command's name and its command."""
    command = command or get_command(app)
    for each in command.params:
        if re.search(r"\bpathlib\.(_local\.)?Path\b", repr(each.type_descriptor)):
            yield " ".join(("fedplcc", *path, each.opts[0])), command, each
    for name in getattr(command, "commands", {}):
        _, child, _ = command.resolve_command(typer.Context(command), [name])
        yield from path_options(child, (*path, name))


OPTIONS = {name: (command, option) for name, command, option in path_options()}


def meant(option: Any) -> str:
    """What an option names by its help: "file" or "folder"."""
    found = NOUN.search(option.help or "")
    assert found is not None, f"the help says neither file nor folder: {option.help}"
    return str(found.lastgroup)


def takes(command: Any, option: Any, value: Path) -> bool:
    """Whether an option takes a path that is there."""
    several = option.multiple or option.nargs != 1
    try:
        option.process_value(typer.Context(command), [str(value)] if several else str(value))
    except typer.BadParameter:
        return False
    return True


def test_all_commands_are_looked_at() -> None:
    assert {"fedplcc gateway --join-file", "fedplcc trainer --config", "fedplcc join --code-file"} < set(OPTIONS)
    assert len(OPTIONS) > 50


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_takes_what_its_help_says(name: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command, option = OPTIONS[name]
    assert takes(command, option, {"file": file, "folder": tmp_path}[meant(option)])


def test_an_option_that_says_file_and_takes_folders_is_found(tmp_path: Path) -> None:
    planted = typer.Typer()

    @planted.command()
    def serve(join: Path = typer.Option(..., file_okay=False, help="File with the invitation.")) -> None:  # noqa: B008
        del join

    (tmp_path / "file").touch()
    command = get_command(planted)
    (option,) = [each for each in command.params if "--join" in each.opts]
    assert meant(option) == "file"
    assert not takes(command, option, tmp_path / "file")
