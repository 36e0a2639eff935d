"""The folder of a demo or a simulation: its choice, its lock and its content.

    federation.json     what is trained on what: the configuration and the clients' tables, defaults filled in
    state/              the aggregator's database and blobs, the trainers' state; gone when the run has completed
    logs/               a log per process of a demo
    run.json, ...       what the run leaves, see artifacts.py

The same configuration in the same folder goes on where it stopped; another one is refused, so that results never mix.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from fedplcc.runs.artifacts import MANIFEST
from fedplcc.runs.atomic_file import disk_errors, make_folder, write_text
from fedplcc.runs.configuration import federation_json
from shared.config.run import FederationFile
from shared.errors import InvalidConfig

RUNS = Path("fedplcc-runs")
"""The usual folder of runs, below the present folder."""
FEDERATION = "federation.json"
REQUEST_ID = "run"
"""Request id of a folder's one run: the same id again means the same run."""


class _Content(Enum):
    NOTHING = auto()
    UNFINISHED = auto()
    ENDED = auto()
    ANOTHER_RUN = auto()
    OTHER_FILES = auto()


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run's folder, held by this process."""

    path: Path
    is_finished: bool
    """Whether the run has completed and what it leaves is there."""

    @property
    def state(self) -> Path:
        """Folder of the state, for continuing the run."""
        return self.path / "state"

    @property
    def aggregator_state(self) -> Path:
        """Folder of the aggregator's state, in the same place for demo and simulation."""
        return self.state / "aggregator"

    @property
    def logs(self) -> Path:
        """Folder of the processes' logs."""
        return self.path / "logs"

    def prepare(self) -> None:
        """Make the folders of the state.

        Raises:
            StoreUnavailable: They cannot be made.
        """
        make_folder(self.aggregator_state)

    def remove_state(self) -> None:
        """Delete the state, with every round's models."""
        with disk_errors(self.state):
            shutil.rmtree(self.state, ignore_errors=True)


@contextmanager
def claimed_folder(out: Path | None, federation: FederationFile) -> Iterator[RunFolder]:
    """Choose the folder for a run and hold it for this process while the block lasts.

    Args:
        out: The folder. If None it is `fedplcc-runs/NAME`, or with -2, -3, ... behind it where that
            one is taken; an unfinished run of the same configuration is gone on with.
        federation: What is to be trained.

    Raises:
        InvalidConfig: The folder holds something else, or another process works in it.
        StoreUnavailable: It cannot be made or written.
    """
    for path in _candidates(out, federation.config.run.name):
        make_folder(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            problem, content = _try(path, descriptor, federation)
            if out is None and (problem or content is _Content.ENDED):
                continue
            if problem:
                raise InvalidConfig(problem)
            if content is _Content.NOTHING:
                write_text(path / FEDERATION, federation_json(federation))
            # A stopped or failed run keeps its state: when it is started again, the aggregator gives the reason.
            has_state = RunFolder(path, False).state.exists()
            yield RunFolder(path, content is _Content.ENDED and not has_state)
            return
        finally:
            os.close(descriptor)


def _candidates(out: Path | None, name: str) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    yield RUNS / name
    for number in itertools.count(2):
        yield RUNS / f"{name}-{number}"


def _try(path: Path, descriptor: int, federation: FederationFile) -> tuple[str, _Content]:
    """The reason why the folder cannot be used, or an empty one, and its content."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return (
            f"another fedplcc works in {path}; wait for it, or choose another folder with --out",
            _Content.OTHER_FILES,
        )
    content = _content(path, federation_json(federation))
    if content is _Content.ANOTHER_RUN:
        return (
            f"{path} holds a run of another configuration ({path / FEDERATION}); choose another folder with --out",
            content,
        )
    if content is _Content.OTHER_FILES:
        return f"{path} holds files that are no run's; choose an empty or a new folder with --out", content
    return "", content


def _content(path: Path, wanted: str) -> _Content:
    with disk_errors(path):
        names = {entry.name for entry in path.iterdir() if not entry.name.endswith(".tmp")}
        if FEDERATION not in names:
            return _Content.OTHER_FILES if names else _Content.NOTHING
        if (path / FEDERATION).read_text(encoding="utf-8", errors="replace") != wanted:
            return _Content.ANOTHER_RUN
        return _Content.ENDED if MANIFEST in names else _Content.UNFINISHED
