"""Sentences on configurations that are valid and may not be what was meant."""

from __future__ import annotations

from typing import Any

import pytest

from fedplcc.runs.initial_model import doubts
from fedplcc.shared.config.doubts import doubts_about
from fedplcc.shared.config.recipes import PHOTOS, PHOTOS_BY_STEPS, with_recipe
from fedplcc.shared.config.run import parse_federation

MINE = {"run": {"clients": ["a", "b"]}, "data": {"classes": ["x", "y"]}}


@pytest.mark.parametrize(("name", "method"), [(PHOTOS, "fedavg"), (PHOTOS_BY_STEPS, "classsums")])
def test_a_method_with_rounds_and_head_for_another_one_is_said(name: str, method: str) -> None:
    document = with_recipe(MINE, name)
    assert doubts_about(parse_federation(document).config) == []
    run = {**document["run"], "method": method}
    changed = {**document, "run": run, "method": {}}
    (said,) = doubts_about(parse_federation(changed).config)
    assert f"{method} has the rounds and the head of the recipe {name}" in said
    assert doubts_about(parse_federation({**changed, "run": {**run, "rounds": 20}}).config) == []


@pytest.mark.parametrize(
    ("aggregation", "averaging", "is_said"),
    [
        ({"rule": "clipped_mean"}, "weighted", True),
        ({"rule": "clipped_mean", "max_weight_share": 0.3}, "weighted", False),
        ({"rule": "clipped_mean"}, "equal", False),
        ({"rule": "median"}, "weighted", False),
        ({}, "weighted", False),
    ],
)
def test_a_rule_against_liars_by_whose_counts_clients_weigh_is_said(
    aggregation: dict[str, Any], averaging: str, is_said: bool
) -> None:
    document = {**with_recipe(MINE, "small-images"), "aggregation": aggregation}
    document["method"] = {**document["method"], "averaging": averaging}
    said = doubts_about(parse_federation(document).config)
    assert ["aggregation.max_weight_share" in each for each in said] == [True] * is_said


SMALL = {**MINE, "model": {"name": "cnn4"}}


@pytest.mark.parametrize(
    ("method", "values", "clients", "is_said"),
    [
        ("fedplcc", {}, {}, True),
        ("fedplcc", {"min_cluster_size": 2}, {}, False),
        ("fedplcc", {}, {name: {"data": f"npz:{name}.npz"} for name in "ab"}, False),
        ("fedavg", {}, {}, False),
    ],
)
def test_that_members_of_a_deployed_run_get_single_samples_is_said(
    method: str, values: dict[str, Any], clients: dict[str, Any], is_said: bool
) -> None:
    run = {**MINE["run"], "method": method, "rounds": 3}
    federation = parse_federation({**SMALL, "run": run, "method": values, "clients": clients})
    assert ["bit for bit" in each for each in doubts(federation)] == [True] * is_said


@pytest.mark.parametrize(
    ("method", "tables", "said"),
    [
        ("classsums", {"training": {"learning_rate": 0.1, "class_weights": "balanced"}},
         "classsums takes no gradient steps; method.balanced lets rare classes weigh as much as others: "
         'training.learning_rate = 0.1, training.class_weights = "balanced" do nothing'),
        ("classsums", {"training": {"local_steps": 10, "momentum": 0.9}}, None),
        ("classsums", {"method": {"averaging": "equal"}}, 'clients send no models here: method.averaging = "equal" does'),
        ("classsums", {"method": {"head": "means", "shrinkage": 0.5}}, "method.shrinkage = 0.5 does nothing"),
        ("fedavg", {"training": {"learning_rate": 0.1, "class_weights": "balanced"}}, None),
        ("fedavg", {"training": {"optimizer": "adamw", "momentum": 0.5}}, "adamw has no momentum"),
        ("fedavg", {"evaluation": {"epsilon": 0.1}}, "evaluation.attacks is empty: evaluation.epsilon = 0.1 does nothing"),
        ("fedavg", {"evaluation": {"epsilon": 0.1, "attacks": ["fgsm"]}}, None),
        ("fedopt", {"method": {"server_opt": "sgdm", "adaptivity": 0.1}}, "method.adaptivity = 0.1 does nothing"),
        ("fedopt", {"method": {"server_opt": "adagrad", "beta2": 0.5}}, "method.beta2 = 0.5 does nothing"),
        ("fedrep", {"method": {"personal": "none", "head_epochs": 3}}, "method.head_epochs = 3 does nothing"),
        ("fedplcc", {"method": {"small_clusters": "merge"}}, 'method.small_clusters = "merge" does nothing'),
        ("fedavg", {"run": {"cohort_size": 1}}, "tested by its cohort alone"),
        ("fedavg", {"run": {"cohort_size": 2}}, None),
    ],
)  # fmt: skip
def test_a_key_that_nothing_reads_in_such_a_run_is_said(
    method: str, tables: dict[str, dict[str, Any]], said: str | None
) -> None:
    run = {**MINE["run"], "method": method, "rounds": 3, **tables.get("run", {})}
    found = doubts_about(parse_federation({**SMALL, **tables, "run": run}).config)
    assert found == [] if said is None else len(found) == 1 and said in found[0], found
