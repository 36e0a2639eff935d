import os
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.config import settings as config
from fedplcc.shared.config.settings import (
    AggregatorSettings,
    GatewaySettings,
    TrainerSettings,
    from_command_line,
    load,
    visible_cuda_devices,
)
from fedplcc.shared.errors import InvalidConfig
from tests.support import present

TRAINER = {"client": "mnist", "data": "digits:mnist"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("FEDPLCC_")]:
        monkeypatch.delenv(name)


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("[aggregator]\nport = 1\nlease_heartbeats = 7\nheartbeat_interval_s = 9.0\n")
    monkeypatch.setenv("FEDPLCC_PORT", "2")
    monkeypatch.setenv("FEDPLCC_LEASE_HEARTBEATS", "8")
    settings = load(AggregatorSettings, {"port": 3, "host": None}, file)
    assert (settings.port, settings.lease_heartbeats, settings.heartbeat_interval_s) == (3, 8, 9.0)
    assert settings.host == "127.0.0.1"


@pytest.mark.parametrize("off", ["off", "none", ""])
def test_a_metrics_port_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    monkeypatch.setenv("FEDPLCC_METRICS_PORT", off)
    assert load(AggregatorSettings).metrics_port is None


def test_allowed_code_is_a_list_from_flags_the_environment_and_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(TrainerSettings, TRAINER).allow_code == ()
    file = tmp_path / "settings.toml"
    file.write_text('[trainer]\nallow_code = ["a.b:c"]\n')
    assert load(TrainerSettings, TRAINER, file).allow_code == ("a.b:c",)
    monkeypatch.setenv("FEDPLCC_ALLOW_CODE", "a.b:c, d:e")
    assert load(TrainerSettings, TRAINER, file).allow_code == ("a.b:c", "d:e")
    flags = [f"--{name}={value}" for name, value in TRAINER.items()]
    assert from_command_line(TrainerSettings, "trainer", "", flags).allow_code == ("a.b:c", "d:e")
    more = ["--allow-code", "f:g", "--allow-code=h.i:j"]
    assert from_command_line(TrainerSettings, "trainer", "", flags + more).allow_code == ("f:g", "h.i:j")


@pytest.mark.parametrize(("value", "seen"), [("", ()), ("0", ("0",)), (" GPU-a , MIG-b,", ("GPU-a", "MIG-b"))])
def test_what_cuda_may_see_is_read_entry_by_entry(
    monkeypatch: pytest.MonkeyPatch, value: str, seen: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_cuda_devices() == seen


@pytest.mark.parametrize(
    ("kind", "flags", "says"),
    [
        (AggregatorSettings, {"port": 70_000}, ["port", "70000", "65535"]),
        (AggregatorSettings, {"max_chunk_bytes": 5}, ["max_chunk_bytes", "5", "1024"]),
        (AggregatorSettings, {"log_level": "loud"}, ["log_level", "loud", "debug"]),
        (AggregatorSettings, {"colour": "red"}, ["colour"]),
        (GatewaySettings, {"tls_cert": "a.crt"}, ["tls_cert", "tls_key"]),
        (GatewaySettings, {"aggregator": "example.org"}, ["example.org", "HOST:PORT"]),
        (TrainerSettings, {}, ["client is missing; give --client or set FEDPLCC_CLIENT", "--data or set FEDPLCC_DATA"]),
        (TrainerSettings, {**TRAINER, "client": "../x"}, ["client", "../x"]),
        (TrainerSettings, {**TRAINER, "device": "gpu"}, ["device", "gpu", "cuda"]),
        (TrainerSettings, {**TRAINER, "sync": "push"}, ["sync", "push", "stream", "poll"]),
        (TrainerSettings, {**TRAINER, "poll_hold_s": 0}, ["poll_hold_s", "0", "0.05"]),
        (TrainerSettings, {**TRAINER, "samples_per_class": 0}, ["samples_per_class", "0", "1"]),
        (TrainerSettings, {**TRAINER, "fraction": 0}, ["fraction", "0", "more than 0"]),
        (
            TrainerSettings,
            {**TRAINER, "fraction": 0.3, "samples_per_class": 3},
            ["set at most one of 'samples_per_class' and 'fraction'"],
        ),
        (
            TrainerSettings,
            {**TRAINER, "allow_code": ["a.b:c", "os:path.join"]},
            ["allow_code", "package.module:factory"],
        ),
        (TrainerSettings, {**TRAINER, "http_proxy": "here"}, ["http_proxy", "HOST:PORT"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_what_it_may_be(
    kind: type[AggregatorSettings | GatewaySettings | TrainerSettings], flags: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(InvalidConfig) as error:
        load(kind, flags)
    for word in says:
        assert word in error.value.detail


@pytest.mark.parametrize("text", ["[aggregator]\ncolour = 1\n", "aggregator = 3", "not toml"])
def test_a_wrong_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=r"settings\.toml"):
        load(AggregatorSettings, file=file)
    with pytest.raises(InvalidConfig, match="cannot read"):
        load(AggregatorSettings, file=tmp_path / "none.toml")


def test_plain_text_off_loopback_is_accepted_when_asked_for() -> None:
    assert load(AggregatorSettings, {"host": "0.0.0.0", "insecure": True}).host == "0.0.0.0"


def test_libraries_are_told_their_threads_before_they_load(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in config.thread_limits(1):  # as they were, after the test
        monkeypatch.setenv(name, "64")
    config.limit_threads(2)
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_every_field_has_a_flag_and_its_docstring_is_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--client", "mnist", "--data", "digits:mnist", "--metrics-port", "off", "--threads", "2"]
    settings = config.from_command_line(TrainerSettings, "python -m fedplcc.trainer", "Trains.", arguments)
    assert (settings.client, settings.metrics_port, settings.threads) == ("mnist", None, 2)
    with pytest.raises(SystemExit) as ended:
        config.from_command_line(TrainerSettings, "python -m fedplcc.trainer", "Trains.", ["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for name in TrainerSettings.model_fields:
        assert "--" + name.replace("_", "-") in text
    assert "HOST:PORT of the aggregator." in text
    assert "Default: 127.0.0.1:50051." in text
    assert "Undefined" not in text


def test_a_flag_that_does_not_exist_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        config.from_command_line(TrainerSettings, "python -m fedplcc.trainer", "Trains.", ["--colour", "red"])
    assert ended.value.code == 2
    assert "--colour" in capsys.readouterr().err


def test_the_url_of_a_database_is_shown_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://u:hunter2@h/d"
    monkeypatch.setenv("FEDPLCC_DATABASE_URL", url)
    settings = load(AggregatorSettings)
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == url
    assert "hunter2" not in f"{settings} {settings!r} {settings.model_dump_json()}"
    monkeypatch.setenv("FEDPLCC_DATABASE_URL", "")
    assert load(AggregatorSettings).database_url is None, "compose gives an empty one where none is set"
    file = tmp_path / "settings.toml"
    file.write_text(f'[aggregator]\ndatabase_url = ["{url}"]\n')
    monkeypatch.delenv("FEDPLCC_DATABASE_URL")
    for flags, path in (({}, file), ({"database_url": url, "port": "x"}, None)):
        with pytest.raises(InvalidConfig) as caught:
            load(AggregatorSettings, flags, path)
        assert "hunter2" not in caught.value.detail
        assert caught.value.__cause__ is None, "a traceback would show the values"


def test_a_trainer_has_its_own_kind_of_model_if_its_owner_names_one() -> None:
    assert load(TrainerSettings, TRAINER).own_model is None
    named = from_command_line(
        TrainerSettings, "trainer", "", ["--client=a", "--data=x:y", "--model=resnet18", "--stem=cifar3x3"]
    )
    assert named.own_model is not None
    assert (named.own_model.kind, named.own_model.options) == ("resnet18 cifar3x3", {})
    grouped = present(load(TrainerSettings, {**TRAINER, "model": "resnet10", "norm": "group"}).own_model)
    assert grouped.kind == "resnet10-groupnorm imagenet5x5"
    first = present(load(TrainerSettings, {**TRAINER, "model": "resnet10"}).own_model)
    assert first.kind == "resnet10 imagenet5x5"
    options = {**TRAINER, "model": "timm:vit_tiny", "model_options": '{"hidden_dim": 64}'}
    found = present(load(TrainerSettings, options).own_model)
    assert found.options["hidden_dim"] == 64
    begun = present(load(TrainerSettings, {**options, "model_weights": f"net@{'0' * 64}"}).own_model)
    assert (begun.weights, begun.weights_sha256) == ("net", "0" * 64)


ABOUT_AN_OWN_KIND = "stem, norm, model_options and model_weights are those of a client's own model: give --model too"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"model": "resnet11"}, "model.name = \"resnet11\": unknown model 'resnet11'"),
        ({"model": "cnn5", "stem": "cifar3x3"}, "model.stem = \"cifar3x3\": model 'cnn5' has no stem to choose"),
        ({"stem": "cifar3x3"}, ABOUT_AN_OWN_KIND),
        ({"norm": "group"}, ABOUT_AN_OWN_KIND),
        ({"model": "cnn5", "norm": "group"}, "model.norm = \"group\": model 'cnn5' has no normalisation to choose"),
        ({"model_options": "{}"}, ABOUT_AN_OWN_KIND),
        ({"model_weights": f"net@{'0' * 64}"}, ABOUT_AN_OWN_KIND),
        ({"model": "timm:x", "model_weights": "net"}, "model_weights"),
        ({"model": "timm:x", "model_options": "[1]"}, 'model_options is a JSON object, such as {"hidden_dim": 64}'),
        ({"model": "timm:x", "model_options": "{"}, "model_options is a JSON object"),
        ({"model": "timm:x", "model_options": '{"width": 3}'}, "unknown key 'model.options.width'"),
        ({"model": "cnn5", "model_options": '{"width": 3}'}, "model 'cnn5' takes no options"),
        ({"model": "timm:" + "x" * 200}, "a kind of model is a name of letters"),
    ],
)
def test_what_is_wrong_with_an_own_kind_of_model_is_said(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        load(TrainerSettings, {**TRAINER, **values})
    assert sentence in refused.value.detail
