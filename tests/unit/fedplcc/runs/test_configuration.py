"""Configuration files with what the command line changes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from fedplcc.command.all_commands import app
from fedplcc.runs.configuration import (
    Overrides,
    demo_file,
    federation_json,
    local_clients,
    override,
    read_federation,
    require_validation,
)
from fedplcc.runs.configuration_check import judge
from fedplcc.runs.initial_model import with_model_file
from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.errors import InvalidConfig
from tests.support.federation import tiny_federation


def a_document() -> dict[str, Any]:
    return {
        "run": {"method": "fedplcc", "rounds": 3, "seed": 1},
        "method": {"lambda1": 7.0},
        "data": {"classes": ["a", "b"]},
        "clients": {"ann": {"data": "digits:mnist"}, "bob": {"data": "digits:synth", "samples_per_class": 4}},
    }


def test_overrides_replace_what_the_file_says_and_leave_the_given_document_alone() -> None:
    before = a_document()
    changed = override(before, Overrides(rounds=9, seed=0, samples_per_class=2))
    assert (changed["run"]["rounds"], changed["run"]["seed"]) == (9, 0)
    assert [client["samples_per_class"] for client in changed["clients"].values()] == [2, 2]
    assert before == a_document()


def test_a_number_of_samples_stands_for_a_share_of_the_file() -> None:
    document = a_document()
    document["clients"]["ann"]["fraction"] = 0.3
    assert override(document, Overrides())["clients"]["ann"]["fraction"] == 0.3
    changed = override(document, Overrides(samples_per_class=2))
    assert changed["clients"]["ann"] == {"data": "digits:mnist", "samples_per_class": 2}


def test_another_method_takes_no_hyper_parameters_from_the_file() -> None:
    assert "method" not in override(a_document(), Overrides(method="fedavg"))
    assert override(a_document(), Overrides(method="fedplcc"))["method"] == {"lambda1": 7.0}


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("training.batch_size=16", 16),
        ("training.batch_size = 16", 16),
        ("training.learning_rate=1e-3", 0.001),
        ("training.augment=['flip']", ["flip"]),
        ("training.note=it is text", "it is text"),
        ('training.note="16"', "16"),
        ("training.note=a=b", "a=b"),
    ],
)
def test_an_assignment_is_read_as_toml_and_else_as_text(assignment: str, value: object) -> None:
    changed = override(a_document(), Overrides(assignments=[assignment]))
    assert list(changed["training"].values()) == [value]


def test_assignments_reach_into_nested_tables_and_come_last() -> None:
    overrides = Overrides(samples_per_class=2, assignments=["clients.bob.samples_per_class=5", "method.lambda2=0"])
    changed = override(a_document(), overrides)
    assert changed["clients"]["bob"] == {"data": "digits:synth", "samples_per_class": 5}
    assert changed["method"] == {"lambda1": 7.0, "lambda2": 0}


@pytest.mark.parametrize("assignment", ["rounds=3", "run.rounds", "run.=3", "=3"])
def test_an_assignment_without_section_key_or_value_shows_how_to_write_one(assignment: str) -> None:
    with pytest.raises(InvalidConfig, match=r"SECTION\.KEY=VALUE"):
        override(a_document(), Overrides(assignments=[assignment]))


@pytest.mark.parametrize(
    "overrides",
    [
        Overrides(assignments=["training.batch_size=8", "training.batch_size = 16"]),
        Overrides(rounds=3, assignments=["run.rounds=5"]),
        Overrides(seed=3, assignments=["run.seed=3"]),
    ],
)
def test_a_key_that_is_set_twice_is_refused(overrides: Overrides) -> None:
    with pytest.raises(InvalidConfig, match="is set 2 times"):
        override(a_document(), overrides)


def test_an_assignment_to_an_unknown_key_names_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"batch_sise.*did you mean 'training.batch_size'"):
        read_federation(demo_file(), Overrides(assignments=["training.batch_sise=3"]))


def test_a_client_of_the_roster_without_a_table_is_named() -> None:
    values = a_document()
    values["run"]["clients"] = ["ann", "cid"]
    with pytest.raises(InvalidConfig, match=r"'cid'.*\[clients\.cid\]"):
        local_clients(parse_federation(values))


def test_only_clients_of_the_roster_are_made() -> None:
    values = a_document()
    values["run"]["clients"] = ["bob"]
    assert list(local_clients(parse_federation(values))) == ["bob"]


def test_a_run_that_waits_for_more_clients_than_there_are_is_refused() -> None:
    values = a_document()
    values["run"]["min_clients"] = 3
    with pytest.raises(InvalidConfig, match="min_clients = 3"):
        local_clients(parse_federation(values))


def test_equal_federations_have_equal_text_and_every_difference_shows(tmp_path: Path) -> None:
    values = tiny_federation.document(tmp_path)
    text = federation_json(tiny_federation.federation(values))
    assert (
        federation_json(tiny_federation.federation({**values, "training": {**values["training"], "threads": 1}}))
        == text
    )
    changes = [
        {"method": {"lambda1": 2.0, "lambda2": 10.0}},
        {"run": {**values["run"], "rounds": 4}},
        {"clients": {**values["clients"], "left": {**values["clients"]["left"], "samples_per_class": 3}}},
    ]
    assert all(federation_json(tiny_federation.federation({**values, **change})) != text for change in changes)


@pytest.mark.parametrize(
    ("settings", "without"),
    [
        ({}, "ann"),
        ({"clients.ann.validation_per_class": 2}, "bob"),
        ({"clients.ann.validation_per_class": 2, "clients.bob.validation_per_class": 2}, None),
        ({"clients.ann.validation_per_class": 2, "run.clients": ["ann"]}, None),
        ({"data.validation_every": 5}, None),
    ],
)
def test_a_patience_needs_validation_images_of_every_client(settings: dict[str, Any], without: str | None) -> None:
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    document = override(a_document(), Overrides(assignments=[*words, "run.patience=1"]))
    federation = parse_federation(document)
    if without is None:
        require_validation(federation)
        assert judge(document).problems == ()
        return
    sentence = (
        f"run.patience = 1 does nothing: client {without} has no validation images; set data.validation_every, or "
        "validation_per_class for each client"
    )
    with pytest.raises(InvalidConfig) as refusal:
        require_validation(federation)
    assert (refusal.value.detail, judge(document).problems) == (sentence, (sentence,))


def test_simulate_refuses_a_patience_that_does_nothing_before_it_makes_a_folder(tmp_path: Path) -> None:
    words = ["simulate", "--set", "run.patience=1", "--rounds", "3", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert (result.exit_code, (tmp_path / "out").exists()) == (2, False)
    assert "run.patience = 1 does nothing: client mnist has no validation images" in result.stderr


def test_the_classes_of_a_model_file_are_those_of_the_run_beside_it(tmp_path: Path) -> None:
    """Else the rows of its head are other classes where the two runs have them in another order."""
    model = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(2, np.float32)}, model)
    document = a_document()
    names = document["data"]["classes"]
    manifest = {"run_id": "r", "config": {**document, "data": {**document["data"], "classes": [*reversed(names)]}}}
    document["run"] = {**document["run"], "initial_model": str(model)}
    assert with_model_file(parse_federation(document)).config.run.initial_classes is None
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    assert with_model_file(parse_federation(document)).config.run.initial_classes == tuple(reversed(names))
    document["run"] = {**document["run"], "initial_classes": names}
    with pytest.raises(InvalidConfig, match="leave the key out"):
        with_model_file(parse_federation(document))


def test_a_deployed_run_may_have_a_patience_as_its_sites_set_images_aside() -> None:
    document = a_document()
    del document["clients"]
    document["run"] |= {"patience": 1, "clients": ["ann"]}
    assert judge(document).problems == ()


def test_an_assignment_into_what_is_no_table_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="table"):
        override(a_document(), Overrides(assignments=["run.rounds.many=3"]))
