"""JSON objects that other processes send, read strictly, with bounds, in time proportional to the text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from fedplcc.shared.errors import MalformedRequest

MAX_DEPTH = 32
"""Deepest nesting: far deeper than a run configuration, far less deep than the stack allows."""
MAX_VALUES = 100_000
"""Most values of a text. An empty list of 2 bytes takes 64 in memory, and each wrong value a sentence."""

# Possessive, and the quote at the end may be missing: no text is looked at twice.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def parse_json_object(data: bytes | str, what: str = "the body") -> dict[str, Any]:
    """Return the object of a JSON text; `what` names the text in refusals.

    Raises:
        MalformedRequest: The text is not JSON, no object, nested too deep, has too many values, or has something that
            readers of JSON understand differently: NaN, infinite numbers, halves of characters, repeated keys.
    """
    try:
        text = data if isinstance(data, str) else data.decode(json.detect_encoding(data), "surrogatepass")
        if _num_values(text) > MAX_VALUES:
            raise MalformedRequest(f"{what} has more than {MAX_VALUES} values")
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
        is_deep = _is_deeper(value, MAX_DEPTH)
        if not is_deep:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a character
    except RecursionError:
        is_deep = True
    except ValueError as error:
        raise MalformedRequest(f"{what} is not JSON: {_sentence(error)}") from error
    if is_deep:
        raise MalformedRequest(f"{what} is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        raise MalformedRequest(f"{what} is not a JSON object")
    return value


def _num_values(text: str) -> int:
    """Return the number of values of a JSON text, and one more for each empty list and object, without reading them."""
    structure = _STRING.sub("", text)
    return 1 + structure.count(",") + structure.count("[") + structure.count("{")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        known: set[str] = set()
        for key, _ in pairs:
            if key in known:
                raise ValueError(f"the key {key[:40]!r} occurs twice")
            known.add(key)
    return table


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _sentence(error: ValueError) -> str:
    return "it is not Unicode text" if isinstance(error, UnicodeError) else str(error)
