"""One writer of a SQLite database, whatever happens to the lock, and transactions that nobody can take away unseen."""

from __future__ import annotations

import errno
import os
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.aggregator.store.database.engines.sqlite import COMMITTED, committed_count
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.types import Event, EventQuery

DATABASE = "aggregator.sqlite"


def write(store: SqlStore, name: str) -> None:
    with store.transaction() as transaction:
        transaction.add_event(Event(type=name))


def written(store: SqlStore) -> list[str]:
    return [event.type for event in store.list_events(EventQuery())]


def test_a_second_writer_takes_the_database_over_and_the_first_stops_writing(folder: Path) -> None:
    """As after a deleted lock file, which admits a second aggregator."""
    said: list[str] = []
    with (
        closing(SqlStore.in_folder(folder, on_lost=said.append)) as first,
        closing(SqlStore.in_folder(folder)) as second,
    ):
        write(second, "second")
        for _ in range(2):
            with pytest.raises(
                StoreUnavailable, match="is not as this process left it: another aggregator wrote to it"
            ):
                write(first, "first")
        assert len(said) == 1, "it is reported once"
        write(second, "again")
        assert written(second) == ["second", "again"]


def killed(folder: Path, *, events: int) -> None:
    """Leave a state directory as a killed process does: nothing of the write-ahead log is in the database yet."""
    work = folder.with_name(f"{folder.name}-work")
    work.mkdir()
    store = SqlStore.in_folder(work)
    with closing(store.database.engine.connect()) as reader:
        reader.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(events):
        write(store, f"event {number}")
    shutil.copytree(work, folder, dirs_exist_ok=True)
    store.close()


@pytest.mark.parametrize("loss", ["removed", "cut", "emptied"])
def test_a_write_ahead_log_that_was_removed_or_cut_is_told_at_the_start(folder: Path, loss: str) -> None:
    killed(folder, events=5)
    wal = folder / f"{DATABASE}-wal"
    data = wal.read_bytes()
    assert data
    if loss == "removed":
        wal.unlink()
        (folder / f"{DATABASE}-shm").unlink()
    else:
        wal.write_bytes(data[: len(data) * 2 // 3] if loss == "cut" else b"")
    with pytest.raises(StoreUnavailable, match=r"lacks \d of 6 committed transactions: its write-ahead log") as refused:
        SqlStore.in_folder(folder)
    assert "remove the file 'committed'" in refused.value.detail
    wal.write_bytes(data)
    with closing(SqlStore.in_folder(folder)) as store:
        assert len(written(store)) == 5, "put back, nothing is lost"


def test_a_person_may_go_on_with_what_is_there(folder: Path) -> None:
    killed(folder, events=5)
    (folder / f"{DATABASE}-wal").unlink()
    (folder / "committed").unlink()
    with closing(SqlStore.in_folder(folder)) as store:
        assert written(store) == []
        write(store, "on")


@pytest.mark.parametrize("content", [b"", b"12\n", b"\xff" * 20, b"x" * 20])
def test_a_damaged_count_accuses_nobody(folder: Path, content: bytes) -> None:
    killed(folder, events=2)
    (folder / "committed").write_bytes(content)
    with closing(SqlStore.in_folder(folder)) as store:
        assert len(written(store)) == 2
    assert re.fullmatch(rb"\d{19}\n", (folder / "committed").read_bytes())


def test_a_killed_process_loses_nothing_and_is_accused_of_nothing(folder: Path) -> None:
    killed(folder, events=3)
    for _ in range(3):
        with closing(SqlStore.in_folder(folder)) as store:
            assert len(written(store)) == 3


def test_a_count_that_cannot_be_written_undoes_no_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where an overwrite takes new blocks of a full disk; the transaction is durable by then."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with closing(SqlStore.in_folder(folder)) as store:
        write(store, "first")
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            write(store, "second")
        assert committed_count(folder / COMMITTED) == 2, "those of the claim and of the first event"
        write(store, "third")
        assert committed_count(folder / COMMITTED) == 4
    with closing(SqlStore.in_folder(folder)) as store:
        assert written(store) == ["first", "second", "third"]
