"""The command line as a person meets it: help, wrong usage, wrong files, nobody there."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from fedplcc.command.run.lists import Order, Show
from fedplcc.shared.config.settings import AggregatorSettings, GatewaySettings, Settings, TrainerSettings, is_hidden
from fedplcc.shared.run_lists import RunOrder, RunShow
from fedplcc.shared.version import VERSION
from tests.support.commands import called

NOBODY = "http://127.0.0.1:1"

GOOD = """
[run]
method = "fedavg"
[data]
classes = ["a", "b"]
[clients.ann]
data = "digits:mnist"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    return path


def test_the_version_is_said() -> None:
    assert called("--version") == (0, f"fedplcc {VERSION}\n", "")


@pytest.mark.parametrize(
    ("name", "settings"),
    [("aggregator", AggregatorSettings), ("trainer", TrainerSettings), ("gateway", GatewaySettings)],
)
def test_a_services_flags_are_its_settings(name: str, settings: type[Settings]) -> None:
    code, text, _ = called(name, "--help")
    assert code == 0
    for setting, field in settings.model_fields.items():
        assert (f"--{setting.replace('_', '-')}" in text) is not is_hidden(field), setting


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("aggregator", "--port", "70000"), "port"),
        (("gateway", "--tls-cert", "a.crt"), "tls_key"),
        (("trainer", "--client", "a b", "--data", "digits:mnist"), "client"),
        (("gateway", "--aggregator", "nowhere"), "HOST:PORT"),
    ],
)
def test_a_service_with_wrong_settings_says_which_and_does_not_start(arguments: tuple[str, ...], said: str) -> None:
    code, _, text = called(*arguments)
    assert code == 2
    assert text.startswith("fedplcc: ")
    assert said in text


def test_without_a_file_the_run_toml_of_the_folder_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (("run", "start", "--gateway", NOBODY), ("config", "check")):
        code, out, error = called(*command)
        assert (code, out) == (2, "")
        assert error == (
            "fedplcc: there is no run.toml here; name a configuration file, or write one with: fedplcc config init\n"
        )
    assert called("config", "init")[0] == 0
    assert called("config", "check")[0] == 0
    assert called("run", "start", "--gateway", NOBODY)[0] == 3, "the file is read, and nobody is there to be asked"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[run", "is not TOML"),
        (GOOD.replace("method", "methud"), "did you mean 'run.method'"),
        (GOOD.replace("fedavg", "fedavgg"), "did you mean 'fedavg'"),
        (GOOD.replace('"fedavg"', '"fedplcc"\n[method]\ntau = 0'), "method.tau = 0"),
    ],
)
def test_a_wrong_configuration_is_one_sentence_everywhere(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    for command in (("run", "start", "--gateway", NOBODY), ("simulate",), ("demo",)):
        code, out, error = called(*command, "--config", path)
        assert (code, out) == (2, "")
        assert error.count("\n") == 1
        assert said in error


@pytest.mark.parametrize(
    "command", [("list",), ("status", "x"), ("watch", "x"), ("pause", "x"), ("resume", "x"), ("stop", "x", "--yes")]
)
def test_no_gateway_there_is_exit_code_3_and_what_to_do(command: tuple[str, ...]) -> None:
    code, out, error = called("run", *command, "--gateway", NOBODY)
    assert (code, out) == (3, "")
    assert f"no gateway answers at {NOBODY}; start one with 'fedplcc gateway'" in error


def test_the_filters_of_runs_are_those_of_the_gateway() -> None:
    for choices, of_gateway in ((Order, RunOrder), (Show, RunShow)):
        assert list(get_args(choices)) == [member.value for member in of_gateway]


def test_no_gateway_there_leaves_nothing_in_the_folder(tmp_path: Path, config: Path) -> None:
    assert called("run", "fetch", "x", "--out", tmp_path / "out", "--gateway", NOBODY)[0] == 3
    assert called("run", "start", "--config", config, "--gateway", NOBODY)[0] == 3
    assert not (tmp_path / "out").exists()


def test_the_gateway_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPLCC_GATEWAY", "http://127.0.0.1:2")
    assert "127.0.0.1:2" in called("run", "list")[2]


def test_a_gateway_on_another_machine_needs_tls_or_an_explicit_flag() -> None:
    code, _, error = called("run", "list", "--gateway", "http://192.0.2.1:8080")
    assert code == 2
    assert "--insecure" in error


@pytest.mark.parametrize("request_id", ["", "two words", "\u00e4", "x" * 129])
def test_a_request_id_that_no_gateway_takes_is_refused_before_anything_is_asked(request_id: str) -> None:
    for words in (("pause", "run-1"), ("client", "quarantine", "run-1", "bob")):
        code, _, error = called("run", *words, "--request-id", request_id, "--gateway", NOBODY)
        assert code == 2
        assert error == "fedplcc: --request-id: write 1 to 128 letters, digits and signs of ASCII, without spaces\n"


def test_a_missing_configuration_is_named(tmp_path: Path) -> None:
    for command in (("run", "start"), ("simulate",)):
        code, _, error = called(*command, "--config", tmp_path / "missing.toml")
        assert code == 2
        assert "cannot read" in error
        assert "missing.toml" in error


def test_an_unknown_command_or_flag_is_wrong_usage() -> None:
    assert called("trian")[0] == 2
    assert called("run", "pause")[0] == 2
    assert called("aggregator", "--prot", "1", "--pot", "2")[0] == 2


def test_a_gateways_wrong_address_is_wrong_usage() -> None:
    code, _, error = called("run", "list", "--gateway", "ftp://host")
    assert code == 2
    assert "http://HOST:PORT" in error
