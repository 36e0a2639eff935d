"""Rows of features are kept whole or not at all, over processes and kills, within a bound."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fedplcc.shared.types import FloatArray
from fedplcc.trainer.features.cache import FeatureCache

WIDTH = 8


def rows(begin: int, count: int) -> dict[bytes, FloatArray]:
    return {bytes([number]) * 32: np.full(WIDTH, number + 0.5, np.float32) for number in range(begin, begin + count)}


def same(found: dict[bytes, FloatArray], wanted: dict[bytes, FloatArray]) -> bool:
    return found.keys() == wanted.keys() and all(np.array_equal(found[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("is_older", [False, True], ids=["new", "made readable by another version"])
def test_the_file_and_its_journal_are_their_owners_alone(tmp_path: Path, is_older: bool) -> None:
    path = tmp_path / "f.sqlite"
    before = os.umask(0o022)
    try:
        if is_older:
            with closing(sqlite3.connect(path)) as file:
                file.execute("PRAGMA journal_mode = WAL")
        cache = FeatureCache(path)
        with closing(cache._opened()) as reader:
            cache.keep(rows(0, 3))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
            assert reader.execute("SELECT COUNT(*) FROM features").fetchone() == (3,)
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("f.sqlite", "f.sqlite-shm", "f.sqlite-wal"), 0o600)


def test_without_a_file_nothing_is_kept_or_made(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "f.sqlite")
    assert cache.found(list(rows(0, 1)), WIDTH) == {}
    assert not list(tmp_path.iterdir())
    FeatureCache(None).keep(rows(0, 1))
    FeatureCache(tmp_path / "none" / "f.sqlite").keep(rows(0, 1))
    assert not list(tmp_path.iterdir())
    assert FeatureCache(None).found(list(rows(0, 1)), WIDTH) == {}


def test_a_row_with_a_changed_bit_or_another_width_is_not_found(tmp_path: Path) -> None:
    path, wanted = tmp_path / "f.sqlite", rows(0, 2)
    FeatureCache(path).keep(wanted)
    broken, whole = wanted
    with sqlite3.connect(path) as file:
        (row,) = file.execute("SELECT row FROM features WHERE key = ?", (broken,)).fetchone()
        file.execute("UPDATE features SET row = ? WHERE key = ?", (row[:-1] + bytes([row[-1] ^ 1]), broken))
    file.close()
    assert FeatureCache(path).found([broken, whole], WIDTH).keys() == {whole}
    assert FeatureCache(path).found([whole], WIDTH - 1) == {}


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_file_that_is_no_cache_costs_nothing_but_time(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "f.sqlite"
    path.write_bytes(content)
    cache = FeatureCache(path)
    cache.keep(rows(0, 1))
    assert cache.found(list(rows(0, 1)), WIDTH) == {}


def test_the_oldest_rows_make_room(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "f.sqlite", max_bytes=40_000)
    for begin in range(0, 250, 50):
        wide = {key: np.resize(row, 100) for key, row in rows(begin, 50).items()}
        cache.keep(wide)
    found = cache.found([bytes([number]) * 32 for number in range(250)], 100)
    assert sorted(key[0] for key in found)[-50:] == list(range(200, 250))
    assert bytes(32) not in found
    assert sum(map(len, found.values())) * 4 <= 40_000


WRITER = """
import sys
from pathlib import Path
import numpy as np
from fedplcc.trainer.features.cache import FeatureCache
cache, first = FeatureCache(Path(sys.argv[1])), int(sys.argv[2])
print("begun", flush=True)
for number in range(first, first + 60):
    cache.keep({bytes([number]) * 32: np.full(8, number + 0.5, np.float32)})
"""


def test_two_processes_write_and_a_killed_one_leaves_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "f.sqlite"
    command = [sys.executable, "-c", WRITER, str(path)]
    with (
        subprocess.Popen([*command, "0"], stdout=subprocess.PIPE) as whole,
        subprocess.Popen([*command, "100"], stdout=subprocess.PIPE) as killed,
    ):
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()
        assert whole.wait(60) == 0
    found = FeatureCache(path).found([bytes([number]) * 32 for number in range(160)], WIDTH)
    assert same({key: row for key, row in found.items() if key[0] < 60}, rows(0, 60))
    assert all((row == key[0] + 0.5).all() for key, row in found.items())
