"""Options that stand once for all commands: they may stand anywhere, and a command that has no use for one says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.command.shared_options import names_in, split
from tests.support.commands import called

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "words",
    [
        ("--gateway", NOBODY, "run", "list"),
        ("run", "--gateway", NOBODY, "list"),
        ("run", "list", "--gateway", NOBODY),
        ("run", "list", f"--gateway={NOBODY}", "--json"),
    ],
)
def test_a_gateway_may_be_named_before_and_after_a_commands_name(words: tuple[str, ...]) -> None:
    code, _, error = called(*words)
    assert (code, NOBODY in error) == (3, True)


def test_what_follows_two_dashes_is_no_option() -> None:
    shared, others = split(["run", "status", "--json", "--gateway", "a", "--", "--json"])
    assert (shared, others) == (["--json", "--gateway", "a"], ["run", "status", "--", "--json"])
    assert names_in(shared) == ("--json", "--gateway")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("config", "check", "--gateway", NOBODY), "this command takes no --gateway"),
        (("--insecure", "trainer", "--client", "north"), "this command takes no --insecure"),
        (("key", "create", "x", "--scope", "read", "--json"), "--json is for list: leave it out"),
        (("client", "list", "--gateway", NOBODY), "--gateway is for forget: leave it out"),
        (("client", "forget", "north", "--role", "client"), "--role is for revoke: leave it out"),
        (("weights", "list", "resnet18"), "FILE|PACKAGE|RUN|NAME is for add and remove: leave it out"),
        (("key", "create", "x"), "create needs --scope: see 'fedplcc key --help'"),
        (("weights", "remove"), "remove needs FILE|PACKAGE|RUN|NAME: see 'fedplcc weights --help'"),
    ],
)
def test_a_command_and_an_action_that_have_no_use_for_a_word_refuse_it(words: tuple[str, ...], sentence: str) -> None:
    assert called(*words) == (2, "", f"fedplcc: {sentence}\n")


def test_the_environment_names_a_gateway_for_those_commands_alone_that_call_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPLCC_GATEWAY", NOBODY)
    file = str(tmp_path / "run.toml")
    assert called("config", "init", file)[0] == 0, "it writes a file for the digits, as no option names a gateway"
    assert called("config", "check", file)[0] == 0
    assert called("run", "list")[0] == 3


def test_an_option_that_stands_twice_and_a_misspelt_variable_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPLCC_WEIGTHS_DIR", str(tmp_path))
    path = str(tmp_path / "run.toml")
    assert called("config", "init", path, "--method", "fedavg")[0] == 0
    _, _, said = called(
        "simulate", "--config", path, "--continue", "--rounds", "3", "--rounds=5", "--set", "run.seed=1"
    )
    assert "--rounds stands there 2 times, and the last one counts" in said
    assert "unknown variable 'FEDPLCC_WEIGTHS_DIR'; did you mean 'FEDPLCC_WEIGHTS_DIR'?" in said
    assert "--set" not in said
    monkeypatch.delenv("FEDPLCC_WEIGTHS_DIR")
    _, _, said = called("simulate", "--config", path, "--continue", "--rounds", "3")
    assert "stands there" not in said
    assert "unknown variable" not in said
