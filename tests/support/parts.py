"""Which tests a command runs: `make test` a covering set, `make test-full` the rest; who names tests gets those."""

from __future__ import annotations

import zlib
from enum import StrEnum

SHARDS = 5
"""Shares of the tests that `make test-full SHARD=2` chooses from, about equally large."""


class Part(StrEnum):
    """A part of the tests."""

    COVERING = "covering"
    REST = "rest"
    ALL = "all"

    def has(self, *, is_full: bool) -> bool:
        """Whether a test that is marked `full`, or one that is not, belongs to this part."""
        return self is Part.ALL or is_full == (self is Part.REST)


def part_of(*, is_named: bool) -> Part:
    """Return the part of a command that chooses none: whoever names tests, by path, words or marks, gets all of them."""
    return Part.ALL if is_named else Part.COVERING


def shard_of(nodeid: str) -> int:
    """Return the shard of a test, from 1: that of its file, whose tests may go on from each other, on every machine."""
    return zlib.crc32(nodeid.partition("::")[0].encode()) % SHARDS + 1
