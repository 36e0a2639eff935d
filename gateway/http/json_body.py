"""Request bodies with any JSON object, read strictly and with bounded depth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request

from shared.errors import MalformedRequest

MAX_DEPTH = 32
"""Deepest nesting: far deeper than a run configuration, far less deep than the stack allows."""


async def read_json_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        HTTPException: 415 for another media type. Browsers send application/json to another site only with its consent, so
            no page can start runs on a gateway that its reader can reach.
        MalformedRequest: See `parse_json_object`.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(415)
    return parse_json_object(await request.body())


def parse_json_object(text: bytes) -> dict[str, Any]:
    """Return the object of a JSON text.

    Raises:
        MalformedRequest: The text is not JSON, no object, nested too deep, or has something that readers of JSON understand
            differently: NaN, infinite numbers, halves of characters, repeated keys.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=_unique)
        is_deep = _is_deeper(value, MAX_DEPTH)
        if not is_deep:
            json.dumps(value, ensure_ascii=False).encode()  # raises for half a character
    except RecursionError:
        is_deep = True
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {_sentence(error)}") from error
    if is_deep:
        raise MalformedRequest(f"the body is nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        raise MalformedRequest("the body is not a JSON object")
    return value


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
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated[:40]!r} occurs twice")
    return table


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _sentence(error: ValueError) -> str:
    return "it is not Unicode text" if isinstance(error, UnicodeError) else str(error)
