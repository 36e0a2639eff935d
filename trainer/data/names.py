"""Names of classes: one form of each, and refusals that show what a reader cannot see. Pure."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence

from fedplcc.shared.errors import InvalidData

MAX_NAMED = 12
"""Most names in a list of a sentence."""

_LOOK = str.maketrans(
    "АВСЕНІЈКМОРЅТХаԁеһіјкорѕтухΑΒΕΖΗΙΚΜΝΟΡΤΥΧαονρı\u2010\u2011\u2012\u2013\u2014\u2212",
    "ABCEHIJKMOPSTXadehijkopstyxABEZHIKMNOPTYXaovpi------",
)
"""Letters of other alphabets that look like those of Latin, and dashes."""


def composed(name: str) -> str:
    """Return the name in Unicode's composed form (NFC): two systems write an accented letter in two ways."""
    return unicodedata.normalize("NFC", name)


def decoded(text: str | bytes, what: str) -> str:
    """Return a text in its composed form.

    Raises:
        InvalidData: It is bytes that are no UTF-8; the message begins with `what`.
    """
    try:
        return composed(text.decode() if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise InvalidData(f"{what} {text!r} is no text in UTF-8") from error


def looks(name: str) -> str:
    """Return what a reader sees of a name: equal texts look alike."""
    seen = unicodedata.normalize("NFKC", name)
    seen = "".join(letter for letter in seen if unicodedata.category(letter) not in ("Cf", "Cc", "Mn"))
    return " ".join(seen.translate(_LOOK).split())


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that was probably meant, with code points where the two look alike; or nothing."""
    names = list(known)
    alike = next((each for each in names if each != name and looks(each) == looks(name)), None)
    if alike is not None:
        return f"; {alike!r} looks alike and is another name: {code_points(name)}, not {code_points(alike)}"
    found = [each for each in names if looks(each).casefold() == looks(name).casefold() and each != name]
    found = found or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def code_points(name: str) -> str:
    """Return a name as the numbers of its characters."""
    return " ".join(f"U+{ord(letter):04X}" for letter in name)


def printable(name: str) -> str:
    """Return a name with escapes in place of bytes that are no text, of line ends, and of marks that turn the writing."""
    if name.isprintable():  # nearly all are, and sites have hundreds of thousands
        return name
    return "".join(
        ascii(letter)[1:-1]
        if unicodedata.category(letter) in ("Cs", "Cc", "Zl", "Zp")
        or "\u202a" <= letter <= "\u202e"
        or "\u2066" <= letter <= "\u2069"
        else letter
        for letter in name
    )


def alike(names: Iterable[str]) -> list[str]:
    """Return the names that differ from another one in writing alone, those of one kind joined.

    Writing is capital letters, look, the signs between words and before numbers, quotes and points around all, and noughts
    before a number or after its point.
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        written = re.sub(r"[\s_-]+", " ", looks(name).casefold()).strip(" .,;:'\"`")
        written = re.sub(r"(?<=[^\W\d]) (?=[0-9])", "", written)
        written = re.sub(r"(?<![0-9.])0+(?=[0-9])|(?<=[0-9])\.0+\Z", "", written)
        kinds.setdefault(written, []).append(repr(name))
    return [" and ".join(of_kind) for of_kind in kinds.values() if len(of_kind) > 1]


def alike_said(names: Iterable[str]) -> list[str]:
    """Return a sentence for the owner on each kind of names that are alike."""
    return [
        f"classes whose names look like one name: {each}; rename them if they are one class" for each in alike(names)
    ]


def listed(names: Sequence[str]) -> str:
    """Return names with commas between; of many the first ones, and how many more."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
