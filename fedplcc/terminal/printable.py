"""Safe printing of text from others, such as file names. Pure."""

from __future__ import annotations

import re

# Control characters, separators of lines, and halves of characters, which stand for bytes of a name that is no UTF-8. Also
# what makes text run the other way: "gnp.exe" must not pass for "exe.png".
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with characters escaped that move the cursor, change the direction or cannot be encoded."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
