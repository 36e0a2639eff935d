"""Pages of listings: bounded in entries and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from fedplcc.shared.errors import MalformedRequest

MAX_PAGE = 1000
"""Most entries of a page."""
MAX_PAGE_BYTES = 512 << 10
"""Most bytes of a page of several entries. One entry may be larger: it must only fit into a message."""
FIRST_READ, MOST_READ = 2, 128
"""Fewest and most records read from the store at a time: each part is twice as large as the one before, so that a page of
large records reads few that it does not send."""

_T = TypeVar("_T")
_Cursor = TypeVar("_Cursor")
_Message = TypeVar("_Message", bound=Message)


def page_size(asked: int, *, default: int, most: int) -> int:
    """Return the asked number of entries; zero asks for the default. Raises MalformedRequest above `most`."""
    if not 0 <= asked <= most:
        raise MalformedRequest(f"page_size = {asked}: 1 to {most}")
    return asked or default


def listing(read: Callable[[_Cursor, int], list[_T]], last: _Cursor, cursor: Callable[[_T], _Cursor]) -> Iterator[_T]:
    """Yield the records after the cursor `last`, read in parts as they are consumed; `read(last, most)` reads one part."""
    most = FIRST_READ
    while True:
        part = read(last, most)
        yield from part
        if len(part) < most:
            return
        last, most = cursor(part[-1]), min(2 * most, MOST_READ)


def cut_page(entries: Iterable[_Message], most: int) -> tuple[list[_Message], bool]:
    """Return the entries that fit into one answer (at least one, if there is any) and whether more follow."""
    page: list[_Message] = []
    size_bytes = 0
    for entry in entries:
        size_bytes += entry.ByteSize()
        if len(page) == most or (page and size_bytes > MAX_PAGE_BYTES):
            return page, True
        page.append(entry)
    return page, False


def report_cursor(token: str) -> tuple[int, str]:
    """Return round and client of the last report on the previous page; an empty token stands before the first report."""
    if not token:
        return -1, ""
    number, _, client_id = token.partition(":")
    if not re.fullmatch(r"[0-9]{1,10}", number) or not client_id:
        raise MalformedRequest("page_token: not a token from an earlier answer")
    return int(number), client_id
