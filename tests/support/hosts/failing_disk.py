"""A disk that fails once, or that a process is killed at: at any call that changes what is on it, commits included.

A killed process runs no handler and no clean-up. So once it is killed every further call raises too, without effect, until
`revive` lets the next process begin.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.store.base import Transaction
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import StoreUnavailable


class Killed(BaseException):
    """The process ends here: no handler of errors sees it."""


class Disk:
    """Watches every step that changes what is on the disk.

    `is_durable` follows what a power cut would keep: a file's bytes as of its last fsync, a folder's names as of its own.
    """

    CALLS = ("fsync", "link", "rename", "unlink", "mkdir")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self._killed_before, self._fails_at = 0, 0
        self._contents: dict[int, str] = {}
        self._names: dict[int, dict[str, int]] = {}
        for name in self.CALLS:
            monkeypatch.setattr(os, name, self._watched(name, getattr(os, name)))
        monkeypatch.setattr(SqlStore, "transaction", self._watched_transaction(SqlStore.transaction))

    def kill_before(self, step: int) -> None:
        """Kill the process before its `step`-th step from here, counted from 1; 0 lets it live."""
        self.steps, self._killed_before, self._fails_at = [], step, 0

    def fail_at(self, step: int) -> None:
        """Have the `step`-th step from here fail for want of room, and every other one succeed."""
        self.steps, self._killed_before, self._fails_at = [], 0, step

    def revive(self) -> None:
        """Let the next process begin."""
        self.kill_before(0)

    def is_durable(self, root: Path, path: Path, sha256: str) -> bool:
        """Whether a power cut now would leave this file below `root` with these bytes."""
        inode = root.stat().st_ino
        for name in path.relative_to(root).parts:
            names = self._names.get(inode, {})
            if name not in names:
                return False
            inode = names[name]
        return self._contents.get(inode) == sha256

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if self._killed_before and len(self.steps) >= self._killed_before:
            raise Killed(name)
        if len(self.steps) == self._fails_at:
            assert name != "committed", "what is committed cannot fail any more"
            if name == "begin":
                raise StoreUnavailable("cannot write to the database: database or disk is full")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            is_folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)
            self._step(f"{name} folder" if is_folder else name)
            result = real(*arguments, **keywords)
            if name == "fsync":
                self._remember(arguments[0], is_folder)
            return result

        return call

    def _remember(self, descriptor: int, is_folder: bool) -> None:
        status = os.fstat(descriptor)
        if is_folder:
            names = os.listdir(descriptor)
            self._names[status.st_ino] = {name: os.stat(name, dir_fd=descriptor).st_ino for name in names}
        else:
            data = Path(f"/proc/self/fd/{descriptor}").read_bytes()  # the file may be open for writing only
            self._contents[status.st_ino] = hashlib.sha256(data).hexdigest()

    def _watched_transaction(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def transaction(store: SqlStore) -> Iterator[Transaction]:
            self._step("begin")
            with real(store) as opened:
                yield opened
            self._step("committed")

        return transaction
