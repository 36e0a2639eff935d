"""A site's features of images under frozen backbones, kept over tasks, runs and restarts.

One SQLite file holds them: several processes may use it, and a kill loses at most the rows of the last batch. A row's key is
the SHA-256 of everything that decides its bytes; a row that does not have its own digest is computed again. Beyond
`MAX_BYTES` the oldest rows go. A file that cannot be used costs time, not a run. Features tell of images, so the file is
its owner's alone.

Shape legend: N images, W width of the backbone.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import numpy as np

from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import FloatArray

log = get_logger("fedplcc.trainer.features.cache")

MAX_BYTES = 8 << 30
"""Most bytes of rows in the file: a million and a half images of a width of 1280."""
DIGEST_BYTES = 8
BUSY_S = 60.0
"""Longest wait for another process that writes."""
MAPPED_BYTES = 1 << 30
"""Bytes of the file that are read through memory mapping."""
_AT_ONCE = 500
"""Keys of one question; SQLite takes 999 variables."""


class FeatureCache:
    """Rows of features by key, in a file. A None for the path keeps nothing."""

    def __init__(self, path: Path | None, *, max_bytes: int = MAX_BYTES) -> None:
        """Name the file; it is made when the first row is kept, in a folder that is there."""
        self._path, self._max_bytes = path, max_bytes

    def found(self, keys: Sequence[bytes], width: int) -> dict[bytes, FloatArray]:
        """Return the rows that are known and whole, float32 `[W]`, by key."""
        if self._path is None or not self._path.is_file():
            return {}
        rows: dict[bytes, FloatArray] = {}
        try:
            with closing(self._opened()) as file:
                for begin in range(0, len(keys), _AT_ONCE):
                    some = keys[begin : begin + _AT_ONCE]
                    marks = ",".join("?" * len(some))
                    # Only question marks are put into the statement.
                    statement = f"SELECT key, row FROM features WHERE key IN ({marks})"  # nosec B608
                    asked = file.execute(statement, some)
                    rows.update((key, row) for key, data in asked if (row := _whole(data, width)) is not None)
        except sqlite3.Error as error:
            log.warning("feature_cache_unreadable", path=str(self._path), why=str(error))
        return rows

    def keep(self, rows: Mapping[bytes, FloatArray]) -> None:
        """Keep rows by key, durably for processes and not for the machine; a full disk keeps none."""
        if self._path is None or not self._path.parent.is_dir():
            return
        try:
            with closing(self._opened()) as file, file:
                file.executemany(
                    "INSERT OR REPLACE INTO features (key, row, bytes) VALUES (?, ?, ?)",
                    [(key, data, len(data)) for key, data in _packed(rows)],
                )
                self._make_room(file)
        except sqlite3.Error as error:
            log.warning("feature_cache_unwritable", path=str(self._path), why=str(error))

    def _opened(self) -> sqlite3.Connection:
        if self._path is not None:
            _make_private(self._path)
        file = sqlite3.connect(str(self._path), timeout=BUSY_S)
        try:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            file.execute(
                "CREATE TABLE IF NOT EXISTS features (number INTEGER PRIMARY KEY AUTOINCREMENT, "
                "key BLOB UNIQUE NOT NULL, row BLOB NOT NULL, bytes INTEGER NOT NULL)"
            )
        except sqlite3.Error:
            file.close()
            raise
        return file

    def _make_room(self, file: sqlite3.Connection) -> None:
        """Delete the oldest rows while all together are too many bytes."""
        (pages,), (size,) = (file.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
        if pages * size <= self._max_bytes:
            return
        (held,) = file.execute("SELECT TOTAL(bytes) FROM features").fetchone()
        file.execute(
            "DELETE FROM features WHERE number <= (SELECT MAX(number) FROM "
            "(SELECT number, SUM(bytes) OVER (ORDER BY number) AS upto FROM features) WHERE upto <= ?)",
            (max(0.0, held - self._max_bytes),),
        )


def _make_private(path: Path) -> None:
    """Make a file that is its owner's alone, or take from others what they may; SQLite gives its journal the same rights.

    No descriptor of a file that is there is closed here, with which the process would lose SQLite's locks on it.
    """
    with suppress(OSError):  # SQLite says what is wrong
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        elif path.stat().st_mode & 0o077:
            for each in path.parent.glob(f"{path.name}*"):
                each.chmod(0o600)


def _packed(rows: Mapping[bytes, FloatArray]) -> Iterable[tuple[bytes, bytes]]:
    for key, row in rows.items():
        data = np.ascontiguousarray(row, "<f4").tobytes()
        yield key, _digest(data) + data


def _whole(data: bytes, width: int) -> FloatArray | None:
    """Return a row whose bytes are those that were kept; None for others."""
    digest, values = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if len(values) != 4 * width or digest != _digest(values):
        return None
    return np.frombuffer(values, "<f4").astype(np.float32)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()
