"""TOML text of values and tables. Pure.

Libraries write long lists over one line or over one line a value; a list of 345 classes is readable in neither.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WIDTH = 100
"""Longest line, where a list can be cut."""


def toml_value(value: Any) -> str:
    """A value in TOML; long lists are wrapped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{toml_key(str(key))} = {toml_value(each)}" for key, each in value.items() if each is not None
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        parts = [toml_value(each) for each in value]
        line = f"[{', '.join(parts)}]"
        return line if len(line) <= WIDTH else "[\n" + "".join(f"    {part},\n" for part in _filled(parts)) + "]"
    return repr(value)


def toml_key(name: str) -> str:
    """A key in TOML, without quotes where that is allowed."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_assignment(key: str, value: Any) -> str:
    """The assignment of a value to a key, in one or several lines."""
    return f"{toml_key(key)} = {toml_value(value)}"


def toml_tables(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """A TOML document with these tables in their order, without keys whose value is None and without empty tables."""
    texts = []
    for name, table in tables.items():
        lines = [toml_assignment(key, value) for key, value in table.items() if value is not None]
        if lines:
            texts.append("\n".join([f"[{toml_key(name)}]", *lines]) + "\n")
    return "\n".join(texts)


def _filled(parts: Sequence[str]) -> Iterator[str]:
    """Several values on each line."""
    line = ""
    for part in parts:
        longer = f"{line}, {part}" if line else part
        if line and len(longer) > WIDTH - 5:
            yield line
            longer = part
        line = longer
    yield line
