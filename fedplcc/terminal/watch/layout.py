"""Sharing out the lines of a screen among its sections. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """How many lines a section needs at least to say anything, and how many it would fill."""

    least: int
    most: int


def shared_out(height: int, wishes: Sequence[Wish]) -> list[int]:
    """Lines for each section, in the order of their importance.

    As many sections as fit get their least, the first ones first; what is left goes to the first that wishes more, then to
    the next. A section that does not fit gets nothing, and nothing is shared out twice: the sum is at most `height`.
    """
    given: list[int] = []
    rest = max(height, 0)
    for wish in wishes:
        share = min(wish.least, wish.most)
        given.append(share if share <= rest else 0)
        rest -= given[-1]
    for index, wish in enumerate(wishes):
        if given[index]:
            more = min(wish.most - given[index], rest)
            given[index] += more
            rest -= more
    return given
