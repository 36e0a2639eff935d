"""Durations as people write them: 90s, 30m, 24h, 7d."""

from __future__ import annotations

import re

from fedplcc.shared.errors import InvalidConfig

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds_of(text: str, name: str) -> float:
    """Return the seconds of a duration.

    Args:
        text: A whole number and a unit: s, m, h or d.
        name: Name of the option, for the error's sentence.

    Raises:
        InvalidConfig: It is none.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text.strip())
    if found is None:
        raise InvalidConfig(f"{name} = {text[:40]!r}: write a number and a unit, as 30m, 24h or 7d")
    return float(int(found[1]) * _SECONDS[found[2]])
