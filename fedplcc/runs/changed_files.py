"""Files of clients' data that have changed since a run ended, whose results are then of what they were."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fedplcc.runs.artifacts import MANIFEST
from fedplcc.shared.config.run import FederationFile
from fedplcc.trainer.data.specs import places_of


def changed_since(federation: FederationFile, folder: Path) -> str | None:
    """Return a sentence on clients whose files have changed since a run ended; None where none have, or it has not ended."""
    if not (folder / MANIFEST).exists():
        return None
    ended = (folder / MANIFEST).stat().st_mtime_ns

    changed = [name for name, client in federation.clients.items() if _is_younger(client.data, ended)]
    if not changed:
        return None
    names = ", ".join(changed)
    return f"files of {names} have changed since this run ended, or were linked: its results are of what they were"


def _is_younger(spec: str, ended: int) -> bool:
    """Whether a file that a data specification names, or what a link there leads to, is younger than a time, or gone."""
    waiting, seen = [os.fspath(place) for place in places_of(spec)], set[tuple[int, int]]()
    try:
        while waiting:
            place = waiting.pop()
            found = os.stat(place)
            if max(found.st_ctime_ns, os.lstat(place).st_ctime_ns) > ended:
                return True
            if stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                with os.scandir(place) as entries:
                    waiting += [entry.path for entry in entries if os.path.exists(entry.path)]
    except OSError:
        return True
    return False
