"""The console of the full screen: as large as the terminal, and ASCII where the terminal shows no Unicode."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Mapping
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console

from fedplcc.terminal.watch.curves import LEVELS

LOOKALIKES = {**dict(zip(LEVELS, "_.-~=+*#", strict=True)), "·": "|", "→": ">", "◀": "<", "…": "~"}
"""ASCII characters for those of the screen; each takes one column."""
_ASCII_ERRORS = "fedplcc-lookalikes"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")
"""Values that Python itself may have written into LC_CTYPE."""


def screen_console(environment: Mapping[str, str]) -> Console:
    """The terminal of stdout, for full screens.

    A shell or a parent process may have exported the terminal's size of an earlier moment, so COLUMNS and LINES are ignored.

    Args:
        environment: Variables of the process.
    """
    known = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    file = None if shows_unicode(sys.stdout.encoding, environment) else ascii_file(sys.stdout.fileno())
    return Console(file=file, highlight=False, markup=False, emoji=False, _environ=known)


def shows_unicode(encoding: str, environment: Mapping[str, str]) -> bool:
    """Whether a terminal shows the characters of curves and bars.

    Where the locale is C, Python writes UTF-8 and says so in LC_CTYPE; a locale or an encoding that a person has set counts.
    The console of a Linux machine has no font for curves.

    Args:
        encoding: Of the text that is written to the terminal.
        environment: Variables of the process.
    """
    named = (environment.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((locale for locale in named if locale and locale not in _COERCED), "C.UTF-8")
    codeset = locale.partition(".")[2].partition("@")[0] if locale not in ("C", "POSIX") else "ASCII"
    encodings = (encoding, codeset or "UTF-8")
    is_utf8 = all(name.lower().replace("-", "").replace("_", "") == "utf8" for name in encodings)
    return is_utf8 and environment.get("TERM") != "linux"


def ascii_file(descriptor: int) -> TextIO:
    """A text file on an open descriptor that writes ASCII: lookalikes, and question marks for all other characters."""
    codecs.register_error(_ASCII_ERRORS, _lookalikes)
    return open(descriptor, "w", encoding="ascii", errors=_ASCII_ERRORS, closefd=False)


def _lookalikes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    unknown = error.object[error.start : error.end]
    # A wide character takes two columns, a combining one none: the columns behind it keep their place.
    return "".join(LOOKALIKES.get(each, "?" * cell_len(each)) for each in unknown), error.end
