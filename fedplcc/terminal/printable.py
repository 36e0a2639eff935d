"""Safe printing of text from others, such as file names, on terminals and in tables. Pure."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

# Control characters, separators of lines, and halves of characters, which stand for bytes of a name that is no UTF-8. Also
# what makes text run the other way: "gnp.exe" must not pass for "exe.png".
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with characters escaped that move the cursor, change the direction or cannot be encoded."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def table_cell(value: Any) -> Any:
    """The value of a cell in a CSV file: an apostrophe before a text that a spreadsheet would compute; others choose names.

    Numbers stay as they are, and so do a plus and a minus alone, which are names of classes.
    """
    if not isinstance(value, str) or value[:1] not in ("=", "+", "-", "@", "\t", "\r") or value in ("+", "-"):
        return value
    with suppress(ValueError):
        float(value)
        return value
    return f"'{value}"
