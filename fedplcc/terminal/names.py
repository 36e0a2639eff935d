"""Lists of names as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def named_few(names: Iterable[str], most: int = 5) -> str:
    """The names with commas between, or the first few of them and how many more there are."""
    listed = list(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
