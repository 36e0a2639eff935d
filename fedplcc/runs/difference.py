"""The keys in which two federation.json differ, for sentences."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

MAX_NAMED_KEYS = 3
"""Most differing keys that a message names."""


def differing_keys(held: str, wanted: str) -> str:
    """Return the first dotted keys whose values differ, with commas between; empty where a text is no JSON."""
    try:
        keys = _differing(json.loads(held), json.loads(wanted))
    except ValueError:
        return ""
    if "run.method" in keys:
        keys = [key for key in keys if not key.startswith("method.")]  # another method has other keys
    return ", ".join(keys[:MAX_NAMED_KEYS]) + (" and more" if len(keys) > MAX_NAMED_KEYS else "")


def _differing(held: Any, wanted: Any, prefix: str = "") -> list[str]:
    if not (isinstance(held, Mapping) and isinstance(wanted, Mapping)):
        return [] if held == wanted else [re.sub(r"^config\.", "", prefix)]
    found: list[str] = []
    for key in sorted({*held, *wanted}):
        if held.get(key) != wanted.get(key):
            found += _differing(held.get(key), wanted.get(key), f"{prefix}.{key}" if prefix else str(key))
    return found
