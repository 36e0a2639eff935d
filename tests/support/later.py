"""Packages that take seconds to load, loaded when a test first asks something of them: each worker collects every file."""

from __future__ import annotations

import importlib
from typing import Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest", "is_hypothesis")):
            raise AttributeError(attribute)  # what pytest and its plugins ask every name of a file of tests for
        return getattr(importlib.import_module(self._name), attribute)


def later(name: str) -> Any:
    """Stand for a module that is loaded with the first use of its attributes."""
    return _Later(name)
