"""The identity that a member of a federation keeps on this host."""

from __future__ import annotations

from pathlib import Path

from fedplcc.shared.identity.credentials import IDENTITY_FILE

STATE = Path("fedplcc-state")
"""Folder of the services' state directories unless they are told another."""
MEMBERS = ("trainer", "gateway")
"""State directories in it whose owner is a member."""


def identity_below(folder: Path) -> Path | None:
    """Return the file of the identity in a state directory, or in one of those below it; None if there is none."""
    files = (place / IDENTITY_FILE for place in (folder, *(folder / name for name in MEMBERS)))
    return next((file for file in files if file.is_file()), None)
