"""The folder of a demo or a simulation: its choice, its lock and its content.

    federation.json     what is trained on what: the configuration and the clients' tables, defaults filled in
    state/              the aggregator's database and blobs, the trainers' state; gone when the run has completed
    logs/               a log per process of a demo
    run.json, ...       what the run leaves, see artifacts.py

The same configuration in the same folder goes on where it stopped; another one is refused, so that results never mix. It
takes the place of a run of which nothing is trained, as one whose data could not be read.
"""

from __future__ import annotations

import fcntl
import itertools
import json
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
from fedplcc.runs.difference import differing_keys
from fedplcc.shared.config.run import ClientSection, FederationFile
from fedplcc.shared.config.sections import validate
from fedplcc.shared.errors import InvalidConfig, StoreUnavailable
from fedplcc.shared.process.disk import read_regular

RUNS = Path("fedplcc-runs")
"""The usual folder of runs, below the present folder."""
FEDERATION = "federation.json"
UNTRAINED = frozenset(
    {
        FEDERATION,
        "state/aggregator/committed",
        *(f"state/aggregator/aggregator.sqlite{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    }
)
"""The files of a run that no client has trained or sent anything for: a model would be a file beside the database."""
REQUEST_ID = "run"
"""Request id of a folder's one run: the same id again means the same run."""


class _Content(Enum):
    NOTHING = auto()
    UNFINISHED = auto()
    ENDED = auto()
    SHORTER = auto()
    UNTRAINED_RUN = auto()
    """Of another configuration, and nothing of it is trained."""
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
def claimed_folder(out: Path | None, federation: FederationFile, *, extends: bool = False) -> Iterator[RunFolder]:
    """Choose the folder for a run and hold it for this process while the block lasts.

    Args:
        out: The folder. If None it is `fedplcc-runs/NAME`, or with -2, -3, ... behind it where that
            one is taken; an unfinished run of the same configuration is gone on with.
        extends: Whether a folder with the same run of fewer rounds, and its state, is gone on with to more.

    Raises:
        InvalidConfig: The folder holds something else, or another process works in it.
        StoreUnavailable: It cannot be made or written.
    """
    for path in _candidates(out, federation.config.run.name):
        make_folder(path)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            problem, content = _try(path, descriptor, federation, extends)
            if out is None and (problem or content is _Content.ENDED):
                continue
            if problem:
                raise InvalidConfig(problem)
            if content is _Content.UNTRAINED_RUN:
                RunFolder(path, False).remove_state()
            if content in (_Content.NOTHING, _Content.UNTRAINED_RUN, _Content.SHORTER):
                write_text(path / FEDERATION, federation_json(federation))
            # A stopped or failed run keeps its state: when it is started again, the aggregator gives the reason.
            has_state = RunFolder(path, False).state.exists()
            yield RunFolder(path, content is _Content.ENDED and not has_state)
            return
        finally:
            os.close(descriptor)


def is_untrained(path: Path) -> bool:
    """Whether a folder holds a run of which nothing is trained, and nothing else; False if it cannot be read."""

    def fail(error: OSError) -> None:
        raise error

    found = set[str]()
    try:
        for folder, folders, files in os.walk(path, onerror=fail):
            if any(Path(folder, name).is_symlink() for name in (*folders, *files)):
                return False
            found |= {Path(folder, name).relative_to(path).as_posix() for name in files}
    except OSError:
        return False
    return FEDERATION in found and found <= UNTRAINED


def recorded_clients(folder: Path) -> dict[str, ClientSection]:
    """Return the clients that a run's folder tells of, by name; none without federation.json, as in a fetched run's.

    Raises:
        InvalidConfig: federation.json names no clients.
        StoreUnavailable: It cannot be read.
    """
    path = folder / FEDERATION
    try:
        tables = json.loads(read_regular(path))["clients"]
        return {str(name): validate(ClientSection, table, f"clients.{name}.") for name, table in dict(tables).items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StoreUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidConfig(f"{path} does not name a run's clients") from error


def _candidates(out: Path | None, name: str) -> Iterator[Path]:
    if out is not None:
        yield out
        return
    yield RUNS / name
    for number in itertools.count(2):
        yield RUNS / f"{name}-{number}"


def _try(path: Path, descriptor: int, federation: FederationFile, extends: bool) -> tuple[str, _Content]:
    """The reason why the folder cannot be used, or an empty one, and its content."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return (
            f"another fedplcc works in {path}; wait for it, or choose another folder with --out",
            _Content.OTHER_FILES,
        )
    wanted = federation_json(federation)
    content = _content(path, wanted)
    if content is _Content.SHORTER and not extends:
        content = _Content.ANOTHER_RUN
    if content is _Content.ANOTHER_RUN and is_untrained(path):
        content = _Content.UNTRAINED_RUN
    if content is _Content.SHORTER and not RunFolder(path, False).state.exists():
        return f"{path} has no state to go on from: train the first rounds with --keep to go on later", content
    if extends and content in (_Content.NOTHING, _Content.UNTRAINED_RUN):
        return f"{path} holds no run to go on with; leave out --continue, or name another folder with --out", content
    if content is _Content.ANOTHER_RUN:
        held = read_regular(path / FEDERATION).decode(errors="replace")
        keys = differing_keys(held, wanted)
        return (
            f"{path} holds a run of another configuration ({f'{keys}; ' if keys else ''}{path / FEDERATION}); "
            "choose another folder with --out",
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
        written = read_regular(path / FEDERATION).decode(errors="replace")
        if written != wanted:
            return _Content.SHORTER if _is_shorter(written, wanted) else _Content.ANOTHER_RUN
        return _Content.ENDED if MANIFEST in names else _Content.UNFINISHED


def _is_shorter(written: str, wanted: str) -> bool:
    """Whether two configurations differ in the number of rounds alone, of which the first has fewer."""
    try:
        one, other = json.loads(written), json.loads(wanted)
        rounds = [document["config"]["run"].pop("rounds") for document in (one, other)]
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    return bool(one == other and rounds[0] < rounds[1])
