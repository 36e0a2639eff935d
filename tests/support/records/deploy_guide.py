"""The guide of deploy/ as tests read it: its blocks of commands, each with the marks that say where a person types it.

A block's fence is followed by its language and its marks, which Markdown does not show:

    ```sh aggregator-host backup
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import ROOT

GUIDE = ROOT / "deploy" / "README.md"
AGGREGATOR_HOST, ALL_HOSTS = "aggregator-host", "all-hosts"
INSTALL, INVITED = "install", "invited"
"""Marks of what is not typed by tests, and of what reads the invitation of its host."""

_HEADING = re.compile(r"^#+ +(.*)$")
_FENCE = re.compile(r"^```(\S*) *(.*)$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    section: str
    language: str
    marks: frozenset[str]
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def blocks(*marks: str, section: str = "") -> list[Block]:
    """The guide's blocks that have all of these marks, in order."""
    return [
        block for block in _all_blocks() if block.marks.issuperset(marks) and (not section or block.section == section)
    ]


def block(*marks: str) -> Block:
    """The one block with these marks."""
    (found,) = blocks(*marks)
    return found


def _all_blocks() -> Iterator[Block]:
    section, fence, lines = "", None, list[str]()
    for line in GUIDE.read_text().splitlines():
        if fence is not None:
            if line == "```":
                yield Block(section, fence[1], frozenset(fence[2].split()), "\n".join(lines))
                fence, lines = None, []
            else:
                lines.append(line)
        elif found := _FENCE.match(line):
            fence = found
        elif heading := _HEADING.match(line):
            section = heading[1]
    assert fence is None, "a block is not closed"
