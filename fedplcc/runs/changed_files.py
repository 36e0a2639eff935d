"""Files of clients' data that have changed since a run began, which reads them once: its results are of what they were."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from fedplcc.runs.artifacts import MANIFEST
from fedplcc.runs.run_folder import FEDERATION
from fedplcc.shared.config.run import FederationFile
from fedplcc.trainer.data.specs import places_of

GONE = sys.maxsize
"""Time of a change of files that are not there."""


def changed_since(federation: FederationFile, folder: Path) -> str | None:
    """Return a sentence on clients whose files have changed since a run began; None where none have, or it has not ended."""
    changed = _changed(federation, folder, {})
    if not changed:
        return None
    names = ", ".join(changed)
    return f"files of {names} have changed since this run began, or were linked: its results are of what they were"


def runs_of_other_files(runs: Iterable[tuple[str, FederationFile, Path]]) -> list[str]:
    """Return which runs, by name, began before files of their clients changed; of files that are gone nothing is trained."""
    known: dict[str, int] = {}
    return [name for name, federation, folder in runs if set(_changed(federation, folder, known).values()) - {GONE}]


def _changed(federation: FederationFile, folder: Path, known: dict[str, int]) -> dict[str, int]:
    """Return the clients whose files have changed since an ended run began, with the times; `known` has those of data."""
    if not (folder / MANIFEST).exists():
        return {}
    began = (folder / FEDERATION).stat().st_mtime_ns
    for client in federation.clients.values():
        if client.data not in known:
            known[client.data] = _last_change(client.data)
    times = {name: known[client.data] for name, client in federation.clients.items()}
    return {name: time for name, time in times.items() if time > began}


def _last_change(spec: str) -> int:
    """Return when a file that a specification names, or what a link there leads to, last changed."""
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
        return GONE
    return last
