"""Sentences on configurations that are valid and may not be what was meant."""

from __future__ import annotations

from typing import Any

import pytest

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
