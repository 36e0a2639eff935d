"""All problems of a configuration are reported at once, each at its key, in the words of the check that refuses it."""

import copy
from typing import Any

import pytest

from shared.config.problems import run_problems
from shared.config.run import parse_run_config
from shared.errors import InvalidConfig

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


def test_a_right_configuration_has_no_problems() -> None:
    assert run_problems(RIGHT) == []


WRONG = [
    (changed(run={"rouns": 3}), ["run.rouns"]),
    (changed(run={"rounds": 0}), ["run.rounds"]),
    (changed(run={"method": "fedplc"}), ["run.method"]),
    (changed(run={"clients": ["ann", "a b"]}), ["run.clients.1"]),
    (changed(run={"clients": ["ann", "ann"]}), ["run.clients"]),
    (changed(run={"clients": None}), ["run.clients"]),
    (changed(run={"min_clients": 2}), ["run.clients"]),
    (changed(run={"cohort_size": 3}), ["run.cohort_size"]),
    (changed(method={"tau": 0, "lambda3": 1}), ["method.lambda3", "method.tau"]),
    (changed(model={"name": "resnet11"}), ["model.name"]),
    (changed(model={"name": "cnn4", "stem": "cifar3x3"}), ["model.stem"]),
    (changed(model={"name": "timm:x", "options": {"hidden": 1}}), ["model"]),
    (
        changed(model={"name": "timm:x", "options": {"pretrained": True, "checkpoint": "a"}}),
        ["model"],
    ),
    (changed(data={"classes": ["a"]}), ["data.classes"]),
    (changed(data={"classes": ["a", "b", 7]}), ["data.classes.2"]),
    (changed(data={"std": [0.5, 0.0, 0.5]}), ["data.std.1"]),
    (changed(training={"local_steps": 1, "local_epochs": 1}), ["training.local_steps"]),
    (changed(training={"batch_size": 1, "momentum": 1}), ["training.batch_size", "training.momentum"]),
    (changed(quorum={"min_clients": 1}), ["quorum.deadline_s"]),
    (changed(quorum={"deadline_s": 9.0}), ["quorum.min_clients"]),
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


@pytest.mark.parametrize(("document", "locations"), WRONG + MISSHAPEN)
def test_each_problem_is_said_at_its_key(document: dict[str, Any], locations: list[str]) -> None:
    assert [problem.location for problem in run_problems(document)] == locations
    with pytest.raises(InvalidConfig):
        parse_run_config(document)


@pytest.mark.parametrize("document", [document for document, _ in WRONG])
def test_what_has_problems_is_refused_in_the_same_words(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        parse_run_config(document)
    assert refusal.value.detail.split("; ")[0] in "; ".join(problem.detail for problem in run_problems(document))
