"""Tokens of pages: where the next page of a list begins, in a text that only its maker reads.

A token has the list's name and order, and the number or name after which the next page begins: rows that come or go shift an
offset, and a token of another list is refused. Nothing is kept for it, and it gives no access.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from fedplcc.shared.convert.reading.fields import malformed
from fedplcc.shared.errors import MalformedRequest

MAX_TOKEN = 1024
"""Most characters of a page token."""


def token_of(kind: str, *place: str | float) -> str:
    """Return the token of a place in a list of a kind, for instance `("rounds", 12)`."""
    text = json.dumps([kind, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def refused_token() -> MalformedRequest:
    """Return the refusal of a token that no answer of the list gave."""
    return malformed("page_token", "not a token from an earlier answer of this list in this order")


def place_of(kind: str, token: str) -> list[Any]:
    """Return the place that a token names; the caller checks its parts.

    Raises:
        MalformedRequest: The token is none, or of another kind of list.
    """
    if len(token) > MAX_TOKEN or not re.fullmatch("[A-Za-z0-9_-]+", token):
        raise refused_token()
    try:
        named, *place = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise refused_token() from error
    if named != kind:
        raise refused_token()
    return list(place)


def number_of(kind: str, token: str, *, most: int) -> int:
    """Return the number that a token of a numbered list names, from 0 to `most`.

    Raises:
        MalformedRequest: The token is none, or of another kind of list.
    """
    place = place_of(kind, token)
    if len(place) != 1 or type(place[0]) is not int or not 0 <= place[0] <= most:
        raise refused_token()
    return place[0]
