"""Files of clients' data that have changed since a run ended, whose results are then of what they were."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from fedplcc.runs.artifacts import MANIFEST
from fedplcc.shared.config.run import FederationFile
from fedplcc.trainer.data.specs import places_of


def changed_since(federation: FederationFile, folder: Path, known: dict[str, int] | None = None) -> str | None:
    """Return a sentence on clients whose files have changed since a run ended; None where none have, or it has not ended.

    Args:
        federation: The run's configuration with its clients.
        folder: Its folder.
        known: When files of data specifications last changed, for the next call.
    """
    if not (folder / MANIFEST).exists():
        return None
    ended, known = (folder / MANIFEST).stat().st_mtime_ns, {} if known is None else known
    for client in federation.clients.values():
        if client.data not in known:
            known[client.data] = _last_change(client.data)
    changed = [name for name, client in federation.clients.items() if known[client.data] > ended]
    if not changed:
        return None
    names = ", ".join(changed)
    return f"files of {names} have changed since this run ended, or were linked: its results are of what they were"


def _last_change(spec: str) -> int:
    """Return when a file that a specification names, or what a link there leads to, last changed; late if one is gone."""
    waiting, seen, last = [os.fspath(place) for place in places_of(spec)], set[tuple[int, int]](), 0
    try:
        while waiting:
            place = waiting.pop()
            found = os.stat(place)
            last = max(last, found.st_ctime_ns, os.lstat(place).st_ctime_ns)
            if stat.S_ISDIR(found.st_mode) and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                with os.scandir(place) as entries:
                    waiting += [entry.path for entry in entries if os.path.exists(entry.path)]
    except OSError:
        return sys.maxsize
    return last
