"""TOML that is written is read back as it was."""

import tomllib
from typing import Any

import pytest

from fedplcc.shared.config.toml_text import toml_tables, toml_value


@pytest.mark.parametrize(
    "value",
    [
        True,
        3,
        1e-05,
        0.1,
        'ü "quoted" \\ \x7f \n',
        [],
        [0.5, 0.25],
        {"a b": [1], "c": {"d": "e"}},
        [f"class {i}" for i in range(345)],
    ],
)
def test_a_value_is_read_back_from_toml_as_it_was(value: Any) -> None:
    text = toml_value(value)
    assert tomllib.loads(f"value = {text}") == {"value": value}
    assert max(map(len, text.splitlines())) <= 105


def test_tables_are_read_back_without_the_keys_that_have_no_value() -> None:
    tables: dict[str, dict[str, Any]] = {
        "run": {"name": "a", "clients": None, "odd key": [1, 2]},
        "model": {},
        "data": {"mean": (0.5, 1e-5)},
    }
    text = toml_tables(tables)
    assert tomllib.loads(text) == {"run": {"name": "a", "odd key": [1, 2]}, "data": {"mean": [0.5, 1e-5]}}
    assert text.startswith('[run]\nname = "a"\n')
    assert "\n\n[data]\n" in text
