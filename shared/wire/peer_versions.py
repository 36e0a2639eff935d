"""The rule of versions: who says that it is another fedplcc is served if it is at most one minor version away.

Programs of fedplcc say it in the User-Agent of each gRPC call and HTTP request, and both servers look: whichever of the two
is older, the server refuses. Others, browsers among them, say nothing of it and are served.
"""

from __future__ import annotations

import re

from fedplcc.shared.errors import VersionRefused
from fedplcc.shared.version import VERSION

USER_AGENT = f"fedplcc/{VERSION}"
"""What a program of this version says that it is."""

_NUMBERS = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?![0-9])", re.ASCII)
_OURS = re.compile(rf"fedplcc/({_NUMBERS.pattern}[\w.+-]{{0,32}})", re.ASCII)


def works_with(other: str, own: str = VERSION) -> bool:
    """Whether a version is the same, the last or the next minor one; patch versions make no difference."""
    theirs, ours = _NUMBERS.match(other), _NUMBERS.match(own)
    if theirs is None or ours is None:
        return False
    return theirs[1] == ours[1] and abs(int(theirs[2]) - int(ours[2])) <= 1


def check_version(user_agent: str) -> None:
    """Look at what a caller says that it is.

    Raises:
        VersionRefused: It is a fedplcc that does not work with this one.
    """
    found = _OURS.match(user_agent)
    if found is not None and not works_with(found[1]):
        raise VersionRefused(
            f"this is fedplcc {VERSION}, and the caller's is {found[1]}: a version works with the minor version before it "
            "and after it; deploy/README.md#upgrade says in which order to upgrade",
            version=VERSION,
            caller_version=found[1],
        )
