"""A recording file layer: what a folder holds, what of it the disk holds, and every state that a power cut could leave.

SIGKILL keeps the page cache, so killing processes never shows a missing fsync. Here a folder is watched while a program
works in it. Before and after every fsync, rename, link, removal and mkdir, and every commit of the database, the recording
notes two trees: what the program sees, and what is durable under the weakest promises that POSIX makes:

- the bytes of a file are durable as of the last fsync of that file, and nothing else is;
- the names in a folder are durable as of the last fsync of that folder, and nothing else is.

`cuts` turns each moment into the trees that a power cut could leave then. What was not synced may be there, in part or not
at all, in any order; so a moment has several: nothing of it; all of it (a kill); all of the names but none, half, or only
zeros of the bytes, as a file system does that writes names before data; and random subsets.

The files of SQLite are synced by SQLite itself, below Python, where no fsync is seen. In WAL mode with synchronous FULL (a
test asks the store's own connection) it syncs the WAL before a commit returns, and the folder when it makes the WAL; the
database file only changes at a checkpoint, which SQLite syncs before it reuses the WAL. So these files are taken to be
durable from `store.commit.after` on, and before that as they were, or with any part of the WAL's new frames: SQLite's
checksums must tell a torn transaction from a whole one. The -shm file is an index that SQLite makes anew.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedplcc.shared.process import failpoints

CALLS = ("fsync", "fdatasync", "link", "mkdir", "remove", "rename", "replace", "rmdir", "unlink")
"""Functions of `os` that change what is on the disk, or make it durable; pathlib, shutil and tempfile use them too."""
COMMITTED = "store.commit.after"
"""The failpoint from which on the database's files are durable."""
DATABASE, WAL, INDEX = ".sqlite", ".sqlite-wal", ".sqlite-shm"
NUM_RANDOM = 2
"""Random subsets of what was not synced, at each moment."""

Tree = Mapping[str, bytes | None]
"""A folder's content by relative path: the bytes of files, None for folders."""


@dataclass(slots=True)
class _File:
    current: bytes = b""
    durable: bytes = b""


@dataclass(slots=True)
class _Folder:
    current: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moment:
    """A program's view and the disk's content at one point of its work.

    Attributes:
        what: The step that it is at.
        num_answers: How many answers it had given.
        files: Bytes by number of the file: as seen, and as durable.
        folders: Names to numbers by number of the folder: as seen, and as durable. 0 is the folder itself.
    """

    what: str
    num_answers: int
    files: Mapping[int, tuple[bytes, bytes]]
    folders: Mapping[int, tuple[Mapping[str, int], Mapping[str, int]]]


class Recording:
    """Watches a folder within `recording`; `moments` and `answers` are what happened."""

    def __init__(self, root: Path) -> None:
        self.moments: list[Moment] = []
        self.answers: list[Any] = []
        """What the program promised somebody outside, in order: it must be true after every later power cut."""
        self._root = root
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {0: _Folder()}
        self._numbers: dict[int, int] = {}
        self._next_number = 1

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within the block. One recording at a time, of a program with one thread."""
        real = {name: getattr(os, name) for name in CALLS}
        for name, function in real.items():
            setattr(os, name, self._watched(name, function))
        failpoints.install(self._passed)
        try:
            self._note("begin")
            yield
            self._note("end")
        finally:
            failpoints.install(None)
            for name, function in real.items():
                setattr(os, name, function)

    def answered(self, answer: Any) -> None:
        """Say that somebody outside relies on something from now on."""
        self.answers.append(answer)

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._note(f"before {name}")
            result = real(*arguments, **keywords)
            if name in ("fsync", "fdatasync"):
                self._synced(arguments[0])
            self._note(f"after {name}")
            return result

        return call

    def _passed(self, name: str) -> None:
        if name == COMMITTED:
            self._note("before the commit is synced")
            self._database_synced()
            self._note("after the commit")

    def _synced(self, descriptor: int) -> None:
        number = self._numbers.get(os.fstat(descriptor).st_ino)
        if number is None:
            return  # beside what is watched
        if number in self._files:
            self._files[number].durable = self._files[number].current
        else:
            self._folders[number].durable = dict(self._folders[number].current)

    def _database_synced(self) -> None:
        for folder in self._folders.values():
            for name, number in folder.current.items():
                if name.endswith((DATABASE, WAL)):
                    self._files[number].durable = self._files[number].current
                    folder.durable[name] = number

    def _note(self, what: str) -> None:
        self._look(self._root, 0)
        alive = {number for folder in self._folders.values() for number in folder.current.values()}
        self._numbers = {inode: number for inode, number in self._numbers.items() if number in alive or not number}
        files = {number: (file.current, file.durable) for number, file in self._files.items()}
        folders = {number: (dict(folder.current), dict(folder.durable)) for number, folder in self._folders.items()}
        self.moments.append(Moment(what, len(self.answers), files, folders))

    def _look(self, path: Path, number: int) -> None:
        """Bring what is seen of a folder up to date."""
        seen = {}
        self._numbers[path.stat().st_ino] = number
        for entry in os.scandir(path):
            if entry.name.endswith(INDEX):
                continue
            status = entry.stat(follow_symlinks=False)
            seen[entry.name] = self._numbers.setdefault(status.st_ino, self._next_number)
            if seen[entry.name] == self._next_number:
                self._next_number += 1
            if stat.S_ISDIR(status.st_mode):
                self._folders.setdefault(seen[entry.name], _Folder())
                self._look(Path(entry.path), seen[entry.name])
            else:
                file = self._files.setdefault(seen[entry.name], _File())
                data = Path(entry.path).read_bytes()
                if data != file.current:
                    file.current = data
        self._folders[number].current = seen


Choose = Callable[[int, str], int]
"""Of so many possibilities for what (a name, or a file's bytes), the number of the one that is on the disk."""

LOST, WHOLE, HALF, ZEROS = range(4)
"""What may be there of bytes that were not synced. Of names LOST or WHOLE."""


def cuts(moment: Moment, rng: random.Random) -> Iterator[tuple[str, Tree]]:
    """Yield what a power cut could leave at a moment, each with its name; the same tree may come twice."""
    kinds: list[tuple[str, Callable[[], int], Callable[[], int]]] = [
        ("everything unsynced lost", lambda: LOST, lambda: LOST),
        ("nothing lost", lambda: WHOLE, lambda: WHOLE),
        ("names without their bytes", lambda: WHOLE, lambda: LOST),
        ("names with half of their bytes", lambda: WHOLE, lambda: HALF),
        ("names with zeros", lambda: WHOLE, lambda: ZEROS),
    ]
    kinds += [
        (f"random {number}", lambda: rng.choice((LOST, WHOLE)), lambda: rng.choice((LOST, WHOLE, HALF, ZEROS)))
        for number in range(NUM_RANDOM)
    ]
    for name, of_names, of_bytes in kinds:
        yield name, _left(moment, of_names, of_bytes)


def _left(moment: Moment, of_names: Callable[[], int], of_bytes: Callable[[], int]) -> Tree:
    tree: dict[str, bytes | None] = {}
    chosen: dict[int, bytes] = {}

    def fill(folder: int, path: str) -> None:
        current, durable = moment.folders[folder]
        for name in sorted({*current, *durable}):
            number = durable.get(name)
            if current.get(name) != number and (of_names() == WHOLE or name.endswith((DATABASE, WAL))):
                number = current.get(name)
            if number is None:
                continue
            if number in moment.folders:
                tree[f"{path}{name}"] = None
                fill(number, f"{path}{name}/")
                continue
            if number not in chosen:
                seen, synced = moment.files[number]
                chosen[number] = _bytes(name, seen, synced, of_bytes) if seen != synced else seen
            tree[f"{path}{name}"] = chosen[number]

    fill(0, "")
    return tree


def _bytes(name: str, seen: bytes, synced: bytes, of_bytes: Callable[[], int]) -> bytes:
    """What is there of a file's bytes; of the database only what SQLite itself could leave."""
    what = of_bytes()
    if name.endswith(DATABASE) or (name.endswith(WAL) and not seen.startswith(synced)):
        return seen
    new = len(seen) - len(synced) if seen.startswith(synced) else len(seen)
    kept = seen[: len(seen) - new]
    match what:
        case 0:  # LOST
            return synced
        case 1:  # WHOLE
            return seen
        case 2:  # HALF
            return kept + seen[len(kept) : len(kept) + new // 2]
        case _:
            return kept + bytes(new)


def identity(tree: Tree) -> str:
    """A name for a tree: equal trees have equal ones."""
    digest = hashlib.sha256()
    for path, data in sorted(tree.items()):
        digest.update(path.encode() + (b"/" if data is None else b"=" + hashlib.sha256(data).digest()))
    return digest.hexdigest()


def write(tree: Tree, folder: Path) -> None:
    """Make an empty folder hold a tree, all of it private to its owner: rights are made with a name and never lost."""
    for path, data in sorted(tree.items()):
        target = folder / path
        if data is None:
            target.mkdir(0o700, parents=True, exist_ok=True)
        else:
            target.touch(0o600)
            target.write_bytes(data)
