"""Recipes: tables that people with a kind of images begin with, each a TOML file beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from fedplcc.runs.backbone_digests import with_digests
from fedplcc.shared.config.run import read_document
from fedplcc.shared.config.sections import unknown
from fedplcc.shared.errors import InvalidConfig

PHOTOS = "photos"
NAMES = (PHOTOS, "small-images")
"""Of the recipes: photographs and other images of tens of pixels and more; images of about 32 pixels, such as digits."""


def recipe(name: str) -> dict[str, Any]:
    """Return a recipe's tables, without clients and classes.

    Raises:
        InvalidConfig: There is no such recipe.
    """
    if name not in NAMES:
        raise InvalidConfig(unknown("recipe", name, NAMES))
    return read_document(Path(str(resources.files(__name__) / f"{name}.toml")))


def with_recipe(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a configuration's tables with those of a recipe below them: what both say is the document's."""
    merged: dict[str, Any] = recipe(name)
    for section, values in document.items():
        below = merged.get(section)
        merged[section] = {**below, **values} if isinstance(below, Mapping) and isinstance(values, Mapping) else values
    return merged


def has_weights(name: str) -> bool:
    """Whether this host has the weights that a recipe begins with; those of an installed package are then kept, too."""
    model = with_digests(recipe(name)).get("model", {})
    return "weights" not in model or "weights_sha256" in model
