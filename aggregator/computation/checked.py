"""Parts of all checks of uploads: the content of a blob, bounds of numbers, a refusal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import BinaryIO, Literal, Protocol

from fedplcc.shared.bounds import MAX_VALUE, is_bounded
from fedplcc.shared.tensors import malformed as malformed

MAX_ENTRIES = 64
"""Most named scalars, lists, losses or timings in a message."""


class Content(Protocol):
    """Content of one of an update's blobs: a file, or bytes in memory."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Open it for reading."""

    def read_bytes(self) -> bytes:
        """Return all of it."""


def check_numbers(what: str, entries: Mapping[str, float]) -> None:
    """Check a message's named numbers.

    Raises:
        MalformedUpdate: check is entries, or bound for a number that is finite and too large.
    """
    if len(entries) > MAX_ENTRIES:
        raise malformed("entries", f"more than {MAX_ENTRIES} {what}")
    wrong = [name for name, value in entries.items() if not math.isfinite(value) or len(name) > MAX_ENTRIES]
    if wrong:
        raise malformed("entries", f"{what}: {wrong[0][:MAX_ENTRIES]!r} is not a short name with a finite number")
    large = next((name for name, value in entries.items() if not is_bounded(value)), None)
    if large is not None:
        raise malformed(
            "bound", f"{what}: {large!r} is {entries[large]:g}; a number is at most {MAX_VALUE:g} in magnitude"
        )
