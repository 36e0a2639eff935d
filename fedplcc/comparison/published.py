"""Published accuracies, from published.toml beside this module."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from shared.config.sections import Section
from shared.types import GLOBAL_MODEL, LOCAL_MODEL

Percent = Annotated[float, Field(ge=0, le=100)]
MEAN = "mean"
"""The column of the printed average."""
LOCAL = "local "
"""Before the name of a column that is of the clients' own models."""


class PublishedTable(Section):
    """Accuracies of one paper's methods in one set-up."""

    title: str
    source: str
    """Paper, year, address and number of the table."""
    view: Literal["last", "last5", "last10"]
    """Which of our numbers is of the same kind."""
    notes: tuple[str, ...] = Field((), strict=False)
    """What a reader should know of the numbers."""
    differs: tuple[str, ...] = Field((), strict=False)
    """What is never the same here, whatever the configuration says."""
    columns: tuple[str, ...] = Field(strict=False)
    """Domains, and "mean", the average as it is printed; with `LOCAL` before them, of the clients' own models."""
    labels: tuple[str, ...] = Field(strict=False)
    accuracy: Mapping[str, Annotated[tuple[Percent, ...], Field(strict=False)]]
    """By the method's name in the paper, in the order of the columns; in percent."""

    @model_validator(mode="after")
    def _a_value_for_each_column(self) -> Self:
        if len(self.labels) != len(self.columns):
            raise ValueError("there are not as many labels as columns")
        for method, values in self.accuracy.items():
            if len(values) != len(self.columns):
                raise ValueError(f"{method} has not a value for each column")
        return self

    @property
    def domains(self) -> dict[str, str]:
        """Labels of the domains among the columns, in order."""
        labels = zip(self.kinds, self.labels, strict=True)
        return {domain: label for (_, domain), label in labels if domain != MEAN}

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """Of each column the model that it is of, and the domain or "mean"."""
        return [
            (LOCAL_MODEL if name.startswith(LOCAL) else GLOBAL_MODEL, name.removeprefix(LOCAL)) for name in self.columns
        ]

    def of(self, method: str) -> dict[str, float] | None:
        """A method's accuracies in percent by column; None if the table does not have it."""
        values = self.accuracy.get(method)
        return None if values is None else dict(zip(self.columns, values, strict=True))


@functools.cache
def published_tables() -> Mapping[str, PublishedTable]:
    """Every table of published numbers, by its key."""
    text = (resources.files("fedplcc.comparison") / "published.toml").read_text(encoding="utf-8")
    return TypeAdapter(Mapping[str, PublishedTable]).validate_python(tomllib.loads(text))
