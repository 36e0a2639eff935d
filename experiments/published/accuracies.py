"""Published accuracies, from accuracies.toml beside this module."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from fedplcc.comparison.round_values import ATTACKED_MODELS, STREAM_MODELS
from fedplcc.shared.config.sections import Section
from fedplcc.shared.types import GLOBAL_MODEL, LOCAL_MODEL

Percent = Annotated[float, Field(ge=0, le=100)]
MEAN = "mean"
"""Column of the printed average."""


class PublishedTable(Section):
    """Accuracies of the methods of one paper in one set-up."""

    title: str
    source: str
    """Paper, year, address and number of the printed table."""
    view: Literal["last", "last5", "last10", "passes10"]
    """View of our numbers that corresponds to the printed ones."""
    notes: tuple[str, ...] = Field((), strict=False)
    """Notes on the numbers."""
    differs: tuple[str, ...] = Field((), strict=False)
    """Differences from the set-up that no configuration can remove."""
    columns: tuple[str, ...] = Field(strict=False)
    """Domains, and "mean", the printed average. Before it, with a space, stands the model where it is not the global one on
    test images as they are: "local", or a model under an attack, such as "global/fgsm"."""
    labels: tuple[str, ...] = Field(strict=False)
    accuracy: Mapping[str, Annotated[tuple[Percent, ...], Field(strict=False)]]
    """Percent in the order of the columns, by the method's name in the paper."""

    @model_validator(mode="after")
    def _a_value_for_each_column(self) -> Self:
        if len(self.labels) != len(self.columns):
            raise ValueError("there are not as many labels as columns")
        for method, values in self.accuracy.items():
            if len(values) != len(self.columns):
                raise ValueError(f"{method} has not a value for each column")
        if strange := {model for model, _ in self.kinds} - {
            GLOBAL_MODEL,
            LOCAL_MODEL,
            *ATTACKED_MODELS,
            *STREAM_MODELS,
        }:
            raise ValueError(f"no model is called {min(strange)!r}")
        return self

    @property
    def domains(self) -> dict[str, str]:
        """Labels of the domains, in the order of the columns."""
        labels = zip(self.kinds, self.labels, strict=True)
        return {domain: label for (_, domain), label in labels if domain != MEAN}

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Model, and domain or "mean", of each column."""
        parts = [name.rpartition(" ") for name in self.columns]
        return [(model or GLOBAL_MODEL, domain) for model, _, domain in parts]

    def of(self, method: str) -> dict[str, float] | None:
        """Return a method's accuracies in percent by column; None if the table lacks it."""
        values = self.accuracy.get(method)
        return None if values is None else dict(zip(self.columns, values, strict=True))


@functools.cache
def published_tables() -> Mapping[str, PublishedTable]:
    """Return all tables of published numbers by their keys."""
    text = Path(__file__).with_name("accuracies.toml").read_text(encoding="utf-8")
    return TypeAdapter(Mapping[str, PublishedTable]).validate_python(tomllib.loads(text))
