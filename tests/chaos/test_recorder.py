"""A power cut at every moment leaves what recovery holds on; `python -m tests.chaos.recorder` looks at all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fedplcc.aggregator.store.database.engines.sqlite import Sqlite
from tests.chaos import recorder
from tests.chaos.recorder import NEEDED, PROGRAMS, Program, explore, without_fsync
from tests.chaos.recording import Recording, cuts, write
from tests.support.hosts.memory_folder import memory_folder


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_power_may_be_cut_at_any_moment(program: Program) -> None:
    found = explore(program, every=8)
    print(found)
    assert found.violations == []
    assert found.num_moments > 10


@pytest.mark.parametrize(("program", "step"), NEEDED[1::6], ids=lambda value: getattr(value, "name", value))
def test_an_fsync_that_is_left_out_is_found(program: Program, step: str) -> None:
    with without_fsync(step):
        assert explore(program, is_over_at_first=True).violations


def test_what_was_not_synced_may_be_lost_or_there_in_part(tmp_path: Path) -> None:
    with memory_folder() as folder:
        root = Path(folder)
        recording = Recording(root)
        with recording.recording():
            (root / "named").mkdir()
            descriptor = os.open(root, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
            with (root / "named" / "file").open("wb") as file:
                file.write(b"synced")
                file.flush()
                os.fsync(file.fileno())
                file.write(b"unsynced")
                file.flush()
    left = [tree for _kind, tree in cuts(recording.moments[-1], random.Random(0))]
    assert {"named": None} in left, "a name that no fsync of its folder made durable is lost"
    whole, synced = b"syncedunsynced", b"synced"
    for data in (whole, synced, b"syncedunsy", synced + bytes(8)):
        assert {"named": None, "named/file": data} in left
    assert all(tree.get("named/file", synced).startswith(synced) for tree in left if tree["named"] is None)  # type: ignore[union-attr]
    before_mkdir = [tree for _kind, tree in cuts(recording.moments[0], random.Random(0))]
    assert before_mkdir.count({}) == len(before_mkdir)
    write(left[1], tmp_path)
    assert (tmp_path / "named" / "file").read_bytes() == whole


def test_a_violation_ends_in_a_failed_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorder, "PROGRAMS", (recorder.TOKEN,))
    monkeypatch.setattr(recorder, "NEEDED", ((recorder.TOKEN, "trainer.token.fsync"),))
    assert recorder.main([]) == 0
    assert "0 violations; 1 of 1 missing fsyncs seen" in capsys.readouterr().out
    with without_fsync("trainer.token.fsync"):
        assert recorder.main([]) == 1
    assert "VIOLATED: a trainer's instance token" in capsys.readouterr().out


def test_the_database_is_synced_before_a_commit_returns(tmp_path: Path) -> None:
    database = Sqlite(tmp_path / "database.sqlite")
    with database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2, "FULL"
    database.close()
