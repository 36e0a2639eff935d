"""Help and completion: every command shows examples that work, nothing gets lost on the way to the terminal, and fast."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.command.completion import method_names
from fedplcc.command.examples import examples_of
from fedplcc.command.exit_codes import ExitCode
from fedplcc.command.services import BUILDERS
from fedplcc.command.shared_options import split
from fedplcc.shared.config.settings import AggregatorSettings, GatewaySettings, Settings, TrainerSettings, load
from fedplcc.shared.methods import METHODS

ROOT: Any = get_command(app)
HEAVY = ("torch", "numpy", "grpc", "fastapi", "httpx", "matplotlib", "sqlalchemy", "scipy", "PIL")


def every_command(command: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group with the words that call it, each as it is when it is called."""
    yield path, command
    context = typer.Context(command)
    for name in getattr(command, "commands", {}):
        _, child, _ = command.resolve_command(context, [name])
        yield from every_command(child, (*path, name))


COMMANDS = dict(every_command())
LEAVES = {path: command for path, command in COMMANDS.items() if not hasattr(command, "commands")}


def parsed(line: str) -> tuple[tuple[str, ...], Any]:
    """Which command an example calls, and the values that it is called with."""
    words = shlex.split(line)
    words = words[: next((place for place, word in enumerate(words) if word in (">", "|", "&&")), len(words))]
    assert words.pop(0) == "fedplcc"
    path: tuple[str, ...] = ()
    if words and words[0] not in BUILDERS:
        words = split(words)[1]
    while words and (*path, words[0]) in COMMANDS:
        path = (*path, words.pop(0))
    if words == ["--help"]:
        return path, {}
    return path, COMMANDS[path].make_context("fedplcc", words).params


def test_every_command_has_examples_that_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, command in LEAVES.items():
        lines = examples_of(command.epilog or "")
        assert 1 <= len(lines) <= 3, path
        for line in lines:
            assert len(line) <= 76, f"{line} would wrap on a terminal of 80 columns"
            called, _values = parsed(line)
            assert called == path, line


def test_the_examples_of_the_whole_command_are_understood() -> None:
    lines = examples_of(ROOT.epilog)
    assert len(lines) == 3
    for line in lines:
        assert parsed(line)[0] in COMMANDS


SETTINGS: dict[str, type[Settings]] = {
    "aggregator": AggregatorSettings,
    "trainer": TrainerSettings,
    "gateway": GatewaySettings,
}


@pytest.mark.parametrize("service", SETTINGS)
def test_the_values_in_the_services_examples_are_right(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer.toml").write_text('[trainer]\nclient = "north"\ndata = "folder:images"\n')
    for line in examples_of(LEAVES[(service,)].epilog):
        _, values = parsed(line)
        file = values.pop("config")
        load(SETTINGS[service], values, file)


def test_the_first_steps_of_the_help_can_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = examples_of(LEAVES["config", "init"].epilog)[:1] + examples_of(LEAVES["config", "check"].epilog)[:1]
    lines += examples_of(LEAVES["config", "init"].epilog)[1:2]
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, result.output


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w\[\]<>/.:*{}=@-]+", text.replace("`", ""))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: " ".join(path) or "fedplcc")
def test_no_word_of_the_help_is_lost_and_no_line_is_too_long(path: tuple[str, ...]) -> None:
    """Help is Markdown: <this> and *this* would vanish."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    shown = set(words_of(re.sub(r"[│╭╮╰╯─]", " ", result.stdout)))
    command = COMMANDS[path]
    texts = [command.help or "", *examples_of(command.epilog or "")]
    for param in command.params:
        texts.append("" if getattr(param, "hidden", False) else getattr(param, "help", None) or "")
    text = " ".join(texts)
    # A long word may be broken, so it is looked for in what is left without spaces.
    packed = re.sub(r"[\s│]", "", result.stdout)
    lost = [word for word in words_of(text) if word not in shown and word not in packed]
    assert lost == []


def test_the_help_of_every_group_names_the_exit_codes() -> None:
    groups = [command for path, command in COMMANDS.items() if path not in LEAVES]
    assert len(groups) >= 4
    for command in groups:
        assert all(f"{code:d}: {code.meaning}" in command.epilog for code in ExitCode)


# Speed, told by what is loaded and not by the clock


def loaded_by(*calls: tuple[list[str], dict[str, str]]) -> dict[str, Any]:
    """What a fresh interpreter prints for some calls of the command, and which heavy modules it holds then."""
    program = f"""
import contextlib, io, json, os, sys
from fedplcc.__main__ import main
outputs = []
for words, environment in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    os.environ.update(environment)
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main()
    outputs.append(text.getvalue())
    for name in environment: del os.environ[name]
print(json.dumps({{"loaded": [name for name in {HEAVY!r} if name in sys.modules], "outputs": outputs}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(calls)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    return dict(json.loads(done.stdout))


def completion(line: str) -> tuple[list[str], dict[str, str]]:
    """What bash asks for when somebody presses Tab at the end of a line."""
    count = len(shlex.split(line)) - (0 if line.endswith(" ") else 1)
    return [], {"_FEDPLCC_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(count)}


def test_help_and_completion_load_nothing_heavy() -> None:
    helps: list[tuple[list[str], dict[str, str]]] = [([*path, "--help"], {}) for path in COMMANDS]
    lines = {
        "fedplcc ": ["demo", "config", "doctor", "run", "trainer"],
        "fedplcc run w": ["watch"],
        "fedplcc simulate --me": ["--method"],
        "fedplcc simulate --method fedp": ["fedplcc"],
        "fedplcc demo --device c": ["cpu", "cuda"],
        "fedplcc aggregator --hea": ["--heartbeat-interval-s"],
        "fedplcc trainer --data dig": ["digits:mnist", "digits:synth"],
        "fedplcc gateway --log-level w": ["warning"],
    }
    found = loaded_by(*helps, *(completion(line) for line in lines))
    assert found["loaded"] == []
    assert all("Usage" in text for text in found["outputs"][: len(helps)])
    for (line, expected), text in zip(lines.items(), found["outputs"][len(helps) :], strict=True):
        assert set(expected) <= set(text.split()), f"{line!r} gave {text!r}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_every_shell_can_be_shown(shell: str) -> None:
    environment = {"_FEDPLCC_COMPLETE": f"source_{shell}"}
    result = CliRunner().invoke(app, [], prog_name="fedplcc", env=environment)
    assert result.exit_code == 0, result.output
    assert "_FEDPLCC_COMPLETE" in result.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=result.stdout, text=True, check=True)


def test_the_methods_that_the_shell_offers_are_all_methods() -> None:
    assert set(method_names()) == set(METHODS)


def test_a_service_that_is_listed_is_made_when_it_is_called() -> None:
    assert set(BUILDERS) == set(SETTINGS)
    for name in SETTINGS:
        listed, called = ROOT.commands[name], LEAVES[(name,)]
        assert listed.name == called.name
        assert (called.help or "").startswith(listed.help)
        assert len(called.params) > len(listed.params)
