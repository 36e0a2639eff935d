"""All problems of a configuration are reported at once, each at its key, in the words of the check that refuses it."""

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest

from fedplcc.shared.config.problems import MAX_PROBLEMS, run_problems
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig
from tests.support.growth import require_linear

RIGHT: dict[str, Any] = {
    "run": {"name": "scans", "method": "fedplcc", "rounds": 3, "clients": ["ann", "bob"]},
    "method": {"lambda1": 1.0},
    "data": {"classes": ["a", "b"]},
}


def changed(**sections: dict[str, Any] | int | list[Any]) -> dict[str, Any]:
    document = copy.deepcopy(RIGHT)
    for name, table in sections.items():
        document[name] = {**document.get(name, {}), **table} if isinstance(table, dict) else table
    return document


WRONG = [
    (changed(run={"rouns": 3}), ["run.rouns"]),
    (changed(run={"method": "fedplc"}), ["run.method"]),
    (changed(run={"clients": ["ann", "a b"]}), ["run.clients.1"]),
    (changed(run={"clients": ["ann", "ann"]}), ["run.clients"]),
    (changed(run={"min_clients": 2}), ["run.clients"]),
    (changed(run={"cohort_size": 3}), ["run.cohort_size"]),
    (changed(method={"tau": 0, "lambda3": 1}), ["method.lambda3", "method.tau"]),
    (changed(model={"name": "cnn4", "stem": "cifar3x3"}), ["model.stem"]),
    (changed(model={"name": "timm:x", "options": {"hidden": 1}}), ["model"]),
    (changed(model={"name": "timm:x", "weights": "a"}), ["model.weights_sha256"]),
    (changed(data={"classes": ["a"]}), ["data.classes"]),
    (changed(data={"classes": ["a", "b", 7]}), ["data.classes.2"]),
    (changed(data={"classes": [7, 8]}), ["data.classes.0"]),
    (changed(data={"window": [0, "a"]}), ["data.window.1", "data.window"]),
    (changed(evaluation={"joining": "pool"}), ["evaluation.joining"] * 2),
    (changed(aggregation={"rule": "clipped_mean", "clip_to": "mean"}), ["aggregation.clip_to"] * 2),
    (changed(training={"batch_size": 1, "momentum": 1}), ["training.batch_size", "training.momentum"]),
    (changed(quorum={"min_clients": 1}), ["quorum.deadline_s"]),
    (changed(quorum={"deadline_s": 9.0, "min_clients": 3}), ["quorum.min_clients"]),
    (changed(admission={"quarantined": ["ann", "bob"]}), ["admission.quarantined"]),
    (
        changed(method={"lambda1": 0.0}, run={"method": "fedproto"}, admission={"max_update_norm": 1.0})
        | {"method": {"share_model": False}},
        ["admission.max_update_norm"],
    ),
    (
        changed(admission={"max_prototype_norm": 1.0}, run={"method": "fedavg"}) | {"method": {}},
        ["admission.max_prototype_norm"],
    ),
    (
        changed(admission={"max_prototypes_per_class": 4096}, run={"clients": [f"c{number}" for number in range(50)]}),
        ["admission.max_prototypes_per_class"],
    ),
]
MISSHAPEN = [
    (changed(run=7), ["run"]),
    (changed(method=[]), ["method"]),
    (changed(notes={"by": "me"}), ["notes"]),
    ({}, ["run.method", "data.classes"]),
]
MISSHAPEN_DOCUMENTS = [document for document, _ in MISSHAPEN]


@pytest.mark.parametrize(("document", "locations"), WRONG + MISSHAPEN)
def test_each_problem_is_said_at_its_key(document: dict[str, Any], locations: list[str]) -> None:
    problems = run_problems(document)
    assert [problem.location for problem in problems] == locations
    with pytest.raises(InvalidConfig) as refusal:
        parse_run_config(document)
    if document not in MISSHAPEN_DOCUMENTS:
        assert refusal.value.detail.split("; ")[0] in "; ".join(problem.detail for problem in problems)


@pytest.mark.parametrize(
    ("key", "places"),
    [
        ("training.norm", "'model.norm'"),
        ("run.validation_every", "'data.validation_every'"),
        ("training.patience", "'run.patience'"),
        ("run.learning_rate", "'training.learning_rate'"),
        ("data.fraction", "'clients.NAME.fraction'"),
        ("method.epsilon", "'evaluation.epsilon' or 'privacy.epsilon'"),
        ("training.method", "'run.method'"),
        ("evaluation.min_clients", "'run.min_clients' or 'quorum.min_clients'"),
    ],
)
def test_a_key_of_another_section_is_named_with_its_place(key: str, places: str) -> None:
    document = changed()
    *sections, name = key.split(".")
    table = document
    for section in sections:
        table = table.setdefault(section, {})
    table[name] = 1
    sentence = f"unknown key '{key}'; did you mean {places}?"
    assert sentence in "; ".join(problem.detail for problem in run_problems(document))
    with pytest.raises(InvalidConfig) as refusal:
        parse_run_config(document)
    assert refusal.value.detail == sentence


MANY: dict[str, Callable[[int], dict[str, Any]]] = {
    "unknown sections": lambda size: {f"s{number}": {} for number in range(size)},
    "unknown keys": lambda size: changed(run={f"key_{number}": 1 for number in range(size)}),
    "a long key": lambda size: changed(run={"k" * 10 * size: 1}),
    "a long value": lambda size: changed(run={"name": "a b" * 10 * size}),
    "a long method": lambda size: changed(run={"method": "fedplc" * 10 * size}),
    "wrong clients": lambda size: changed(run={"clients": [0] * size}),
    "wrong classes": lambda size: changed(data={"classes": [None] * size}),
    "many classes": lambda size: changed(data={"classes": [f"class {number}" for number in range(size)]}),
    "keys of the method": lambda size: changed(method={f"key_{number}": 1 for number in range(size)}),
    "options of timm": lambda size: changed(model={"name": "timm:a", "options": {f"o{n}": n for n in range(size)}}),
}


@pytest.mark.parametrize("kind", MANY)
def test_problems_are_found_in_time_in_proportion_to_the_configuration_and_told_in_bounds(kind: str) -> None:
    make = MANY[kind]
    found = run_problems(make(25_000))
    assert len(found) <= MAX_PROBLEMS + 1
    assert all(len(each.location) <= 300 and len(each.detail) <= 4000 for each in found)
    with contextlib.suppress(InvalidConfig):
        parse_run_config(make(25_000))
    require_linear(run_problems, [make(size) for size in (25_000, 50_000, 100_000)])


def test_a_configuration_with_very_many_problems_names_the_first_and_says_that_there_are_more() -> None:
    found = run_problems({f"s{number}": {} for number in range(1000)})
    assert found[0].location == "s0"
    assert found[-1].detail == "these are the first 100 problems; there are more"
