"""Recipes are configurations of their own, for any clients and classes; what a person says goes before them."""

from __future__ import annotations

import pytest

from fedplcc.shared.config.recipes import PHOTOS, PHOTOS_BY_STEPS, RECIPES, recipe, recipe_for, with_recipe
from fedplcc.shared.config.run import parse_federation
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.trainer.weights.packages import PACKAGES

MINE = {"run": {"clients": ["a", "b"]}, "data": {"classes": ["x", "y"]}}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_whole_configuration_with_clients_and_classes(name: str) -> None:
    config = parse_federation(with_recipe(MINE, name)).config
    assert config.run.method == recipe(name)["run"]["method"]
    assert config.data.classes == ("x", "y")
    if config.model.weights is not None:
        (package,) = PACKAGES.values()
        assert (config.model.name, config.model.weights) == (package.model, package.default_name)


def test_what_a_person_says_goes_before_the_recipe() -> None:
    said = with_recipe({**MINE, "run": {"rounds": 7}, "training": {"learning_rate": 0.2}}, "small-images")
    assert said["run"] == {**recipe("small-images")["run"], "rounds": 7}
    assert said["training"]["learning_rate"] == 0.2
    assert said["training"]["clip_norm"] == recipe("small-images")["training"]["clip_norm"]


@pytest.mark.parametrize("method", METHODS)
def test_another_method_has_its_own_settings_and_what_else_it_needs(method: str) -> None:
    document = {**MINE, "run": {**MINE["run"], "method": method}}
    record = METHODS[method]
    document |= {"public": {"data": "digits:synth"}} if record.uses_public(record.config()) else {}
    small, steps = with_recipe(document, "small-images"), with_recipe(document, PHOTOS)
    assert with_recipe(document, PHOTOS_BY_STEPS) == steps
    for said in (small, steps):
        assert parse_federation(said).config.run.method == method
    assert small["training"] == recipe("small-images")["training"]
    assert steps["run"]["rounds"] == (2 if method == "classsums" else 40)
    assert steps["model"] == recipe(PHOTOS if method == "classsums" else PHOTOS_BY_STEPS)["model"]
    if method not in ("fedplcc", "classsums"):
        assert small["method"] == {"global_average": "ema"}
        assert steps["method"] == ({"balance": 0.03} if record.has_prototypes else {})


@pytest.mark.parametrize(
    ("side", "name"), [(None, "small-images"), (28, "small-images"), (63, "small-images"), (64, PHOTOS)]
)
def test_images_as_large_as_photographs_get_the_recipe_for_them(side: int | None, name: str) -> None:
    assert recipe_for(side) == name


def test_an_unknown_recipe_is_told_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="unknown recipe 'photo'; did you mean 'photos'"):
        recipe("photo")
