"""The gateway's description of configurations is true, and proposes nothing that the aggregator would refuse."""

import asyncio
import threading
import tomllib
from typing import Any

import pytest

from fedplcc.gateway import run_configuration
from fedplcc.gateway.routes import runs
from fedplcc.gateway.routes.runs import EXAMPLE
from fedplcc.shared.config.run import RunConfig, parse_run_config
from fedplcc.shared.config.tables.model import STEMS
from fedplcc.shared.documents.configurations import MethodChoice
from fedplcc.shared.methods import METHODS
from tests.support.records.method_settings import public_of

FORM = run_configuration.form()
MINIMAL: dict[str, Any] = {"run": {"method": "fedavg", "clients": ["ann"]}, "data": {"classes": ["a", "b"]}}


def written(name: str, **sections: Any) -> dict[str, Any]:
    document = {"run": {"method": name, "clients": ["ann"]}, "data": {"classes": ["a", "b"]}}
    return {**document, **public_of(name, {}), **sections}


def test_every_key_of_every_section_is_there_and_says_what_it_means() -> None:
    for name, kind in run_configuration.section_kinds():
        assert list(FORM.sections[name]["properties"]) == list(kind.model_fields)
    assert {*FORM.sections, "method"} == set(RunConfig.model_fields)
    image_size = FORM.sections["data"]["properties"]["image_size"]
    assert image_size["description"] == "Height and width of the model's input in pixels."
    assert (image_size["minimum"], image_size["maximum"]) == (8, 1024)
    assert "\n" not in FORM.sections["quorum"]["properties"]["deadline_s"]["description"]


def test_the_defaults_are_those_that_a_run_gets() -> None:
    config = parse_run_config(MINIMAL)
    for section, values in FORM.defaults.items():
        known = getattr(config, section)
        for key in type(known).model_fields:
            if key not in MINIMAL.get(section, {}):
                assert values[key] == getattr(known, key), f"{section}.{key}"
    assert FORM.defaults["training"]["local_steps"] == 10
    assert FORM.defaults["run"]["clients"] is FORM.defaults["run"]["min_clients"] is None
    assert "method" not in FORM.defaults["run"]
    assert "classes" not in FORM.defaults["data"]


@pytest.mark.parametrize("choice", FORM.methods, ids=[choice.name for choice in FORM.methods])
def test_a_method_is_told_in_a_sentence_and_its_defaults_are_taken(choice: MethodChoice) -> None:
    assert choice.title.lower().replace("+", "plus") == choice.name
    assert choice.summary[0].isupper()
    assert choice.summary.endswith(".")
    assert "\n" not in choice.summary
    properties = choice.settings["properties"]
    assert list(properties) == list(METHODS[choice.name].config.model_fields)
    assert all(entry["description"] for entry in properties.values())
    values = {key: entry["default"] for key, entry in properties.items() if entry["default"] is not None}
    filled = run_configuration.check(written(choice.name, method=values))
    assert filled.problems == []
    assert filled.config_hash == run_configuration.check(written(choice.name)).config_hash


def test_the_form_is_made_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    made_by = []
    monkeypatch.setattr(run_configuration, "form", lambda: made_by.append(threading.current_thread()))
    asyncio.run(runs.get_run_configuration())
    assert len(made_by) == 1
    assert threading.main_thread() not in made_by


def test_every_model_is_offered_with_its_stems() -> None:
    assert {choice.name: tuple(choice.stems) for choice in FORM.models} == dict(STEMS)
    for choice in FORM.models:
        for stem in choice.stems:
            assert run_configuration.check(written("fedavg", model={"name": choice.name, "stem": stem})).problems == []
    options = {key: entry["default"] for key, entry in FORM.timm_options["properties"].items()}
    assert run_configuration.check(written("fedavg", model={"name": "timm:x", "options": options})).problems == []


def test_a_right_configuration_is_filled_in_and_written_as_toml() -> None:
    answer = run_configuration.check(EXAMPLE)
    config = parse_run_config(EXAMPLE)
    assert answer.problems == []
    assert answer.config_hash == config.hash
    assert answer.config is not None
    assert answer.config["training"]["momentum"] == 0.9
    assert tomllib.loads(answer.toml or "") == EXAMPLE


def test_every_problem_is_told_at_its_key() -> None:
    document = written("fedplcc", method={"tau": 0, "lambda3": 1}, training={"batch_size": 1})
    answer = run_configuration.check(document)
    assert [problem.location for problem in answer.problems] == ["method.lambda3", "method.tau", "training.batch_size"]
    assert (answer.config, answer.config_hash, answer.toml) == (None, None, None)


def test_what_toml_cannot_say_is_left_unsaid() -> None:
    model = {"name": "pkg.models:make", "options": {"sizes": [1, None]}}
    answer = run_configuration.check(written("fedavg", model=model))
    assert answer.problems == []
    assert answer.toml is None
