"""The log of what leaves a site: durable before the message, one line for the same bytes, bounded and private."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.errors import DiskFull, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.types import CommittedUpdate
from fedplcc.trainer.owner.egress import log as egress_log
from fedplcc.trainer.owner.egress.log import (
    LOG_FILE,
    MAX_OLD_FILES,
    RESERVE_FILE,
    EgressLog,
    Message,
    NotWrittenDown,
    What,
    lines_in,
    most_releases,
    old_files,
)
from tests.support.failpoints import killed_at


def commit(number: int, *, run: str = "run-1", data: bytes = b"update") -> Message:
    return Message.whole(What.COMMIT, data, run=run, round=number, roles=("model",))


def write(log: EgressLog, message: Message, epsilon: float | None = 0.5) -> None:
    log.write(message, "none", lambda: epsilon)


def rounds(folder: Path) -> list[int | None]:
    return [line.round for line in lines_in(folder) if line is not None]


def test_a_line_says_what_leaves_and_is_its_owners_alone(tmp_path: Path) -> None:
    log = EgressLog(tmp_path, clock=lambda: 1.5)
    log.write(Message.whole(What.JOIN, b"join"), None, lambda: None)
    write(log, commit(3))
    joined, committed = map(json.loads, (tmp_path / LOG_FILE).read_text().splitlines())
    told = [joined[name] for name in ("what", "run", "round", "claim", "epsilon")]
    assert told == ["join", "", None, None, None]
    assert committed == {
        "time": "1970-01-01T00:00:01.500Z",
        "run": "run-1",
        "round": 3,
        "what": "commit",
        "roles": ["model"],
        "sha256": hashlib.sha256(b"update").hexdigest(),
        "bytes": 6,
        "claim": "none",
        "epsilon": 0.5,
        "releases": 0,
    }
    assert stat.S_IMODE((tmp_path / LOG_FILE).stat().st_mode) == 0o600


def test_the_same_bytes_of_a_round_are_one_line_also_in_the_next_process(tmp_path: Path) -> None:
    log = EgressLog(tmp_path)
    for message in (commit(1), commit(1), commit(2), commit(1, data=b"other"), commit(1, run="run-2")):
        write(log, message)
    write(EgressLog(tmp_path), commit(2))
    assert len(list(lines_in(tmp_path))) == 4


def test_what_a_crash_left_of_a_line_is_no_line_and_what_is_damaged_is_said(tmp_path: Path) -> None:
    write(EgressLog(tmp_path), commit(1))
    path = tmp_path / LOG_FILE
    whole = path.read_bytes()
    path.write_bytes(b"no line\n" + whole + whole[:40])
    assert [line is None for line in lines_in(tmp_path)] == [True, False]
    write(EgressLog(tmp_path), commit(2))
    assert path.read_bytes().startswith(b"no line\n" + whole)
    assert rounds(tmp_path) == [1, 2]
    path.unlink()  # its owner took it away while the trainer runs
    log = EgressLog(tmp_path)
    write(log, commit(3))
    path.write_bytes(b"")
    write(log, commit(4))
    assert rounds(tmp_path) == [4]


def test_the_files_are_bounded_and_the_newest_are_kept(tmp_path: Path) -> None:
    log, size = EgressLog(tmp_path, max_bytes=1000), 60
    for number in range(size):
        write(log, commit(number))
    (tmp_path / "egress-notes.jsonl").write_text("somebody's own\n")
    assert len(old_files(tmp_path)) == MAX_OLD_FILES
    assert all(path.stat().st_size <= 1000 for path in (*old_files(tmp_path), tmp_path / LOG_FILE))
    kept = rounds(tmp_path)
    assert kept == list(range(size))[-len(kept) :]
    assert len(kept) > 2 * MAX_OLD_FILES
    write(log, commit(size - 1))
    assert rounds(tmp_path)[-1] == size - 1


def test_refusals_and_a_run_that_is_asked_for_ever_push_nothing_else_out(tmp_path: Path) -> None:
    log = EgressLog(tmp_path, max_bytes=3000)
    for number in range(3):
        write(log, Message.whole(What.JOIN, b"join"))
        write(log, commit(number))
    for number in range(100):
        write(log, Message.whole(What.PROBLEM, b"no", run=f"vain-{number}"))
        write(log, commit(number, run="for-ever", data=b"%d" % number))
    found = [(line.what, line.run, line.round) for line in lines_in(tmp_path) if line is not None]
    assert found[:3] == [("join", "", None), ("commit", "run-1", 0), ("commit", "run-1", 1)]
    assert ("commit", "run-1", 2) in found
    assert found[-1] == ("commit", "for-ever", 99)
    assert sum(path.stat().st_size for path in old_files(tmp_path)) <= 3000 * MAX_OLD_FILES


@pytest.mark.parametrize("lines_an_hour", [1000, 60])
def test_run_after_run_pushes_nothing_else_out(tmp_path: Path, lines_an_hour: int) -> None:
    hours = iter(number / lines_an_hour for number in itertools.count())
    log = EgressLog(tmp_path, max_bytes=3000, clock=lambda: 3600.0 * int(next(hours)))
    write(log, Message.whole(What.JOIN, b"join"))
    write(log, commit(1))
    for number in range(300):
        write(log, commit(2, run=f"another-{number}"))
    found = [(line.what, line.run) for line in lines_in(tmp_path) if line is not None]
    assert found[:2] == [("join", ""), ("commit", "run-1")]
    assert found[-1] == ("commit", "another-299")
    assert sum(path.stat().st_size for path in old_files(tmp_path)) <= 3000 * MAX_OLD_FILES


def test_the_most_releases_stay_known_when_their_record_is_older_and_when_files_are_begun_anew(tmp_path: Path) -> None:
    num = 3
    log = EgressLog(tmp_path, max_bytes=600, releases=lambda: num)
    assert log.num_releases() == 0
    write(log, commit(1))
    num = 1
    for number in range(2, 30):
        write(log, commit(number))
    assert 1 not in rounds(tmp_path)
    assert EgressLog(tmp_path).num_releases() == most_releases(tmp_path) == 3
    (tmp_path / LOG_FILE).unlink()
    assert EgressLog(tmp_path).num_releases() == 3


def test_a_log_that_lacks_a_commit_of_the_aggregator_is_of_an_older_directory_and_a_new_one_is_not(
    tmp_path: Path,
) -> None:
    def joined(committed: CommittedUpdate | None) -> EgressLog:
        log = EgressLog(tmp_path, max_bytes=600, releases=lambda: 2)
        log.write(Message.whole(What.JOIN, b"join"), None, lambda: None)
        log.saw_commit(committed)
        return log

    seventh = CommittedUpdate("run-1", 7, ())
    assert joined(seventh).num_releases() == 2
    for number in range(1, 8):
        write(joined(None), commit(number))
    assert 7 in rounds(tmp_path)
    assert joined(seventh).num_releases() == joined(CommittedUpdate("run-1", 3, ())).num_releases() == 2
    older = joined(CommittedUpdate("run-2", 7, ()))
    write(older, commit(8))
    assert (
        older.num_releases() == joined(CommittedUpdate("run-1", 8, ())).num_releases() == most_releases(tmp_path) == 3
    )


def test_a_line_of_a_version_that_did_not_count_tells_that_there_was_a_release(tmp_path: Path) -> None:
    write(EgressLog(tmp_path), commit(1))
    path = tmp_path / LOG_FILE
    path.write_text(path.read_text().replace(', "releases": 0', ""))
    assert EgressLog(tmp_path).num_releases() == 1


def written_until_killed(state: Path, at: int, messages: Sequence[Message]) -> list[int | None]:
    """Write lines in a new folder until a step kills; the rounds of those that had left."""
    left: list[int | None] = []
    state.mkdir()
    with killed_at(at):
        log = EgressLog(state, max_bytes=600)
        for message in messages:
            write(log, message)
            left.append(message.round)
    return left


def test_killed_at_any_step_no_line_of_what_left_is_lost_or_made_twice(folder: Path) -> None:
    numbers = range(9)
    for at in itertools.count(1):
        state = folder / f"{at}"
        left = written_until_killed(state, at, [commit(number) for number in numbers])
        has_ended = len(left) == len(numbers)
        found = rounds(state)
        assert found in (left, [*left, len(left)]), "a message whose line is the last one may not have left"
        again = EgressLog(state, max_bytes=600)
        for number in numbers[len(left) :]:
            write(again, commit(number))
        assert rounds(state) == list(numbers)
        assert None not in list(lines_in(state))
        if has_ended:
            break
    assert at > 30


def test_killed_while_two_old_files_become_one_the_lines_that_stay_are_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_log, "MAX_OLD_FILES", 2)
    messages = [
        commit(0),
        commit(1),
        *(Message.whole(What.PROBLEM, b"no", run=f"vain-{number}") for number in range(8)),
    ]
    for at in itertools.count(1):
        state = folder / f"{at}"
        left = written_until_killed(state, at, messages)
        again = EgressLog(state, max_bytes=600)
        for message in messages[len(left) :]:
            write(again, message)
        assert {0, 1} <= set(rounds(state))
        if len(left) == len(messages):
            break
    assert at > 40


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """A disk with this much room for lines, which the reserve has in it."""
    room = {"bytes": 1 << 30}
    append, allocate, remove = disk.append, disk.allocate, disk.remove

    def take(num_bytes: int) -> None:
        if num_bytes > room["bytes"]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room["bytes"] -= num_bytes

    def appended(path: Path, data: bytes, step: str, **how: Any) -> int:
        take(len(data))
        return append(path, data, step, **how)

    def allocated(path: Path, num_bytes: int, step: str) -> None:
        take(num_bytes)
        allocate(path, num_bytes, step)

    def removed(path: Path, step: str) -> None:
        room["bytes"] += path.stat().st_size if path.exists() else 0
        remove(path, step)

    for name, function in (("append", appended), ("allocate", allocated), ("remove", removed)):
        monkeypatch.setattr(disk, name, function)
    return room


def test_a_full_disk_stops_the_message_once_the_reserve_is_used_and_room_lets_it_go(
    tmp_path: Path, full_disk: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    log = EgressLog(tmp_path)
    write(log, commit(0))
    full_disk["bytes"] = 0
    write(log, commit(1))  # out of the reserve
    assert not (tmp_path / RESERVE_FILE).exists()
    full_disk["bytes"] = 10
    for _ in range(2):
        with pytest.raises(DiskFull, match="does not leave: No space left on device; make room") as refused:
            write(log, commit(2))
        assert isinstance(refused.value, NotWrittenDown)
        assert str(tmp_path) not in refused.value.detail
    assert rounds(tmp_path) == [0, 1]
    assert sum("egress_not_written" in str(record.msg) for record in caplog.records) == 1
    full_disk["bytes"] = 1 << 30
    write(log, commit(2))
    assert rounds(tmp_path) == [0, 1, 2]
    assert (tmp_path / RESERVE_FILE).exists()


def test_a_folder_that_cannot_be_used_stops_the_message(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file or directory; see that"):
        write(EgressLog(tmp_path / "gone"), commit(1))


def test_a_write_that_was_cut_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EgressLog(tmp_path)
    write(log, commit(1))
    fsync = disk.fsync_file

    def cut(descriptor: int, step: str) -> None:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - 5)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "fsync_file", cut)
    with pytest.raises(StoreUnavailable, match="the disk is failing"):
        write(log, commit(2))
    monkeypatch.setattr(disk, "fsync_file", fsync)
    write(log, commit(3))
    assert [line and line.round for line in lines_in(tmp_path)] == [1, 3]
