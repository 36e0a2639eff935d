"""The page of the configuration names every key, with its type, range and default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, SecretStr

from docs.site.configuration import SERVICES, kind_of, page
from fedplcc.shared.config.run import RunConfig
from fedplcc.shared.config.settings import is_hidden
from fedplcc.shared.methods import METHODS

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in page().splitlines() if line.startswith("| ")
]


def row(key: str) -> list[str]:
    return next(cells for cells in ROWS if f"`{key}`" in cells[0])


@pytest.mark.parametrize("kind", SERVICES)
def test_every_setting_is_there_with_its_flag_and_its_variable(kind: type[Any]) -> None:
    for name, field in kind.model_fields.items():
        is_there = any(
            cells[0] == f"`{name}`<br>`--{name.replace('_', '-')}`<br>`FEDPLCC_{name.upper()}`" for cells in ROWS
        )
        assert is_there is not is_hidden(field), name


def test_every_key_of_a_run_is_there_and_has_a_meaning() -> None:
    sections = [field.annotation for name, field in RunConfig.model_fields.items() if name != "method"]
    for kind in (*sections, *(method.config for method in METHODS.values())):
        assert kind is not None
        for key in kind.model_fields:
            assert row(key)[-1].endswith("."), key


def test_a_row_has_type_range_and_default() -> None:
    assert row("batch_size")[1:3] == ["whole number, 2 to 65536", "`32`"]
    assert row("on_no_quorum")[1:3] == ["one of wait, fail", '`"wait"`']
    assert row("max_pool_per_class")[1:3] == ["whole number, 1 to 16777216", "not set"]
    assert row("client")[2] == "required"


def test_the_environment_of_the_moment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page()
    monkeypatch.setenv("FEDPLCC_PORT", "1")
    monkeypatch.setenv("FEDPLCC_DOMAIN", "elsewhere")
    assert page() == before


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (bool, "true or false"),
        (int | None, "whole number"),
        (bool | str, "true or false, or text"),
        (Annotated[float, Field(gt=0)], "number"),
        (Path, "path"),
        (SecretStr | None, "text, never shown"),
        (Literal["a", "b"], "text"),
        (tuple[str, ...], "list of texts"),
        (tuple[float, float, float], "list of 3 numbers"),
        (Mapping[str, int], "table"),
    ],
)
def test_a_type_is_named_in_words(annotation: Any, words: str) -> None:
    assert kind_of(annotation) == words
