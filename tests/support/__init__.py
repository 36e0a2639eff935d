"""Parts that tests share, by what they are.

Numerical libraries have one thread in tests, as services start with: each test process would otherwise keep all cores busy
waiting for threads that have next to nothing to do. A library reads it when it loads, so it is said here, before any does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from fedplcc.shared.config.settings import limit_threads

ROOT = Path(__file__).parents[2]
"""The repository's folder."""

Value = TypeVar("Value")

limit_threads(1)


def present(value: Value | None) -> Value:
    """Return a value that must be there."""
    assert value is not None
    return value


def of_kind(kind: type[Value], value: object) -> Value:
    """Return a value that must be of a kind."""
    assert isinstance(value, kind), value
    return value
