"""Recipes are configurations of their own, for any clients and classes; what a person says goes before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedplcc.runs import recipes
from fedplcc.runs.recipes import recipe, with_recipe
from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.errors import InvalidConfig

MINE = {"run": {"clients": ["a", "b"]}, "data": {"classes": ["x", "y"]}}


@pytest.mark.parametrize("name", recipes.NAMES)
def test_every_recipe_is_a_whole_configuration_with_clients_and_classes(name: str) -> None:
    document = with_recipe(MINE, name)
    document["model"] = (
        {**document["model"], "weights_sha256": "0" * 64} if "weights" in document["model"] else document["model"]
    )
    config = parse_federation(document).config
    assert config.run.method == recipe(name)["run"]["method"]
    assert config.data.classes == ("x", "y")


def test_what_a_person_says_goes_before_the_recipe() -> None:
    said = with_recipe({**MINE, "run": {"rounds": 7}, "training": {"learning_rate": 0.2}}, "small-images")
    assert said["run"] == {**recipe("small-images")["run"], "rounds": 7}
    assert said["training"]["learning_rate"] == 0.2
    assert said["training"]["clip_norm"] == recipe("small-images")["training"]["clip_norm"]


def test_every_file_of_a_recipe_has_a_name() -> None:
    files = {path.stem for path in Path(recipes.__file__).parent.glob("*.toml")}
    assert files == set(recipes.NAMES)


def test_an_unknown_recipe_is_told_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="unknown recipe 'photo'; did you mean 'photos'"):
        recipe("photo")
