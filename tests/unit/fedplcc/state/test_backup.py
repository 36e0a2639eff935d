"""`fedplcc state backup` and `restore` on what a real aggregator left, whole and damaged."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from fedplcc.aggregator.identity.authority import Authority
from fedplcc.aggregator.store.blobs.garbage_lock import collecting
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.command.exit_codes import ExitCode
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import Run, RunStatus
from tests.unit.fedplcc.state.calls import Kept, command, damaged, findings, model_of


def test_a_restored_backup_goes_on_to_the_same_end(left: tuple[Path, Run, Run], tmp_path: Path) -> None:
    folder, _done, middle = left
    answer = command("state", "backup", folder, tmp_path / "backup")
    assert answer.exit_code == ExitCode.OK, answer.output
    assert "each with its SHA-256" in answer.stdout
    restored = tmp_path / "elsewhere" / "state"
    answer = command("state", "restore", tmp_path / "backup", restored)
    assert answer.exit_code == ExitCode.OK, answer.output
    assert findings(restored, ExitCode.OK) == []
    assert {path.name for path in (restored / "initial").iterdir()} == {
        path.name for path in (folder / "initial").iterdir()
    }
    with Kept.small(restored) as federation, Kept.small(tmp_path / "undisturbed") as undisturbed:
        federation.join()
        assert federation.run_to_end(middle.run_id).status is RunStatus.COMPLETED
        undisturbed.join()
        run = undisturbed.create("fedplcc", run={"rounds": 9, "seed": 1})
        undisturbed.run_to_end(run.run_id)
        assert federation.metrics_lines(middle.run_id) == undisturbed.metrics_lines(run.run_id)


def test_a_restored_backup_is_the_same_federation_and_its_keys_stay_private(state: Path, tmp_path: Path) -> None:
    before = Authority.open(state)
    answer = command("state", "backup", state, tmp_path / "backup")
    assert answer.exit_code == ExitCode.OK, answer.output
    assert "the keys of the federation" in answer.stdout
    answer = command("state", "restore", tmp_path / "backup", tmp_path / "restored")
    assert answer.exit_code == ExitCode.OK, answer.output
    for folder in (tmp_path / "backup", tmp_path / "restored"):
        assert stat.S_IMODE((folder / "identity").stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in (folder / "identity").iterdir()} == {0o600}
        assert findings(folder, ExitCode.OK) == [], "the doctor tells nobody to move the keys"
    after = Authority.open(tmp_path / "restored")
    assert (after.federation, after.roots_sha256, after.enrolment_sha256) == (
        before.federation,
        before.roots_sha256,
        before.enrolment_sha256,
    )


@pytest.mark.parametrize(("mode", "most"), [(0o755, 0o750), (0o750, 0o750), (0o700, 0o700)])
def test_a_backup_and_what_is_restored_of_it_are_as_closed_as_the_state(
    state: Path, tmp_path: Path, mode: int, most: int
) -> None:
    state.chmod(mode)
    before = os.umask(0)
    try:
        assert command("state", "backup", state, tmp_path / "backup").exit_code == ExitCode.OK
        assert command("state", "restore", tmp_path / "backup", tmp_path / "restored").exit_code == ExitCode.OK
        assert os.umask(0) == 0, "the command's own mask is back"
    finally:
        os.umask(before)
    for folder in (tmp_path / "backup", tmp_path / "restored"):
        for path in (folder, *folder.rglob("*")):
            allowed = most if path.is_dir() else most & 0o666 & ~0o027
            assert not stat.S_IMODE(path.stat().st_mode) & ~allowed, path


def test_a_backup_whose_keys_are_damaged_is_not_restored(state: Path, tmp_path: Path) -> None:
    Authority.open(state)
    assert command("state", "backup", state, tmp_path / "backup").exit_code == ExitCode.OK
    damaged(tmp_path / "backup" / "identity" / "authority.json")
    answer = command("state", "restore", tmp_path / "backup", tmp_path / "restored")
    assert answer.exit_code == ExitCode.FAILED
    assert "is not what was backed up" in answer.stderr
    assert not list((tmp_path / "restored").iterdir()), "half a state is no state"


def test_a_backup_says_no_numbers_but_those_of_its_blobs(state: Path, tmp_path: Path) -> None:
    assert command("state", "backup", state, tmp_path / "backup").exit_code == ExitCode.OK
    manifest = tmp_path / "backup" / "backup.json"
    document = json.loads(manifest.read_text())
    for key in ("num_blobs", "blob_bytes"):
        manifest.write_text(json.dumps({**document, key: -5}))
        answer = command("state", "restore", tmp_path / "backup", tmp_path / "restored")
        assert answer.exit_code == ExitCode.FAILED
        assert "backup.json is not what was backed up" in answer.stderr


@pytest.fixture
def made(state: Path, tmp_path: Path) -> Path:
    """A backup."""
    assert command("state", "backup", state, tmp_path / "backup").exit_code == ExitCode.OK
    return tmp_path / "backup"


def test_a_backup_wants_an_empty_folder_and_a_state(state: Path, made: Path, tmp_path: Path) -> None:
    answer = command("state", "backup", state, made)
    assert answer.exit_code == ExitCode.USAGE
    assert f"{made} is not empty: a backup needs a new or an empty folder" in answer.stderr
    answer = command("state", "backup", tmp_path, tmp_path / "new")
    assert answer.exit_code == ExitCode.USAGE
    assert "is no state directory of an aggregator; do you mean" not in answer.stderr
    assert not (tmp_path / "new").exists()
    (tmp_path / "served").mkdir()
    belonging = {"state": "ab", "database": "postgresql://db/fedplcc"}
    (tmp_path / "served" / "database.json").write_text(json.dumps(belonging))
    answer = command("state", "backup", tmp_path / "served", tmp_path / "new")
    assert answer.exit_code == ExitCode.USAGE
    assert "served is postgresql://db/fedplcc: give its URL with --database-url" in answer.stderr


def test_a_backup_and_its_state_lie_apart(state: Path, made: Path) -> None:
    for answer in (
        command("state", "backup", state, state / "backup"),
        command("state", "restore", made, made / "restored"),
    ):
        assert answer.exit_code == ExitCode.USAGE
        assert " lies within " in answer.stderr
    assert not (state / "backup").exists()
    assert not (made / "restored").exists()


@pytest.mark.parametrize("damage", ["cut short", "overwritten"])
def test_a_damaged_database_ends_every_command_with_what_helps(
    state: Path, left: tuple[Path, Run, Run], tmp_path: Path, damage: str
) -> None:
    with closing(sqlite3.connect(state / "aggregator.sqlite")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    with (state / "aggregator.sqlite").open("r+b") as file:
        if damage == "cut short":
            file.truncate(50_000)
        else:
            file.write(b"no database at all" * 100)
    for answer in (
        command("state", "backup", state, tmp_path / "backup"),
        command("state", "audit", state, "--replay", left[1].run_id, "--round", "5"),
    ):
        assert answer.exit_code == ExitCode.STORAGE
        assert "aggregator.sqlite is damaged (" in answer.stderr
        assert answer.stderr.endswith("): restore a backup\n")
    with pytest.raises(StoreUnavailable, match=r"cannot open the database: .*; restore a backup$"):
        SqlStore.in_folder(state)


def test_a_damaged_blob_is_not_backed_up_as_if_it_were_whole(
    state: Path, left: tuple[Path, Run, Run], tmp_path: Path
) -> None:
    damaged(model_of(state, left[1], 5))
    answer = command("state", "backup", state, tmp_path / "backup")
    assert answer.exit_code == ExitCode.FAILED
    assert "is damaged: 'fedplcc doctor'" in answer.stderr
    answer = command("state", "restore", tmp_path / "backup", tmp_path / "restored")
    assert answer.exit_code == ExitCode.USAGE
    assert "is no complete backup: there is no backup.json in it" in answer.stderr


def test_a_backup_whose_blobs_are_named_as_paths_writes_nothing_elsewhere(made: Path, tmp_path: Path) -> None:
    name = "../../../escaped"
    (made / "blobs" / ".." / name).resolve().write_bytes(b"a hostile file")
    with closing(sqlite3.connect(made / "aggregator.sqlite")) as database, database:
        database.execute("UPDATE blobs SET sha256 = ? WHERE sha256 = (SELECT min(sha256) FROM blobs)", [name])
    manifest = json.loads((made / "backup.json").read_bytes())
    (made / "backup.json").write_text(
        json.dumps({**manifest, "database_sha256": sha256_hex((made / "aggregator.sqlite").read_bytes())})
    )
    target = tmp_path / "deep" / "deeper" / "deepest" / "restored"
    answer = command("state", "restore", made, target)
    assert answer.exit_code != ExitCode.OK
    assert "names blobs by what is no SHA-256" in answer.stderr
    assert not (target / "blobs" / ".." / name).resolve().exists()


def test_a_restore_wants_an_empty_folder_and_a_whole_backup(made: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "aggregator.sqlite").touch()
    answer = command("state", "restore", made, tmp_path / "full")
    assert answer.exit_code == ExitCode.USAGE
    assert "is not empty: a restored state needs a new or an empty folder" in answer.stderr

    blob = next(path for path in made.glob("blobs/*/*"))
    damaged(blob)
    answer = command("state", "restore", made, tmp_path / "restored")
    assert answer.exit_code == ExitCode.FAILED
    assert f"the blob {blob} is damaged" in answer.stderr
    assert not list((tmp_path / "restored").iterdir()), "half a state is no state"
    damaged(blob)
    assert command("state", "restore", made, tmp_path / "restored").exit_code == ExitCode.OK

    damaged(made / "aggregator.sqlite")
    answer = command("state", "restore", made, tmp_path / "again")
    assert answer.exit_code == ExitCode.FAILED
    assert "is not what was backed up" in answer.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": 2, "version": "9.9"}', "was written by version 9.9"),
        ('{"format": 1}', "is not what 'fedplcc state backup' writes"),
        (
            '{"format": 1, "database_sha256": "", "num_blobs": 1, "blob_bytes": "x", "created_at": 1}',
            "is not what 'fedplcc state backup' writes",
        ),
        ("{", "cannot be read"),
    ],
)
def test_a_manifest_that_this_version_cannot_read_is_refused(made: Path, tmp_path: Path, text: str, words: str) -> None:
    (made / "backup.json").write_text(text)
    answer = command("state", "restore", made, tmp_path / "restored")
    assert answer.exit_code == ExitCode.USAGE
    assert words in answer.stderr


@pytest.mark.parametrize("name", ["backup.json", "aggregator.sqlite", "identity/authority.json", "initial/x.name"])
def test_a_backup_with_a_file_without_an_end_is_refused(made: Path, tmp_path: Path, name: str) -> None:
    (made / name).parent.mkdir(exist_ok=True)
    (made / name).unlink(missing_ok=True)
    os.mkfifo(made / name)
    answer = command("state", "restore", made, tmp_path / "restored")
    assert (answer.exit_code, "is no regular file" in answer.stderr) == (ExitCode.USAGE, True)


def test_nothing_is_collected_between_the_copies(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedplcc.aggregator.store.blobs.garbage_lock import BackupIsRunning
    from fedplcc.state import backup, snapshot

    def copy(source: Path, target: Path, url: str | None) -> None:
        with pytest.raises(BackupIsRunning), collecting(state):
            pass
        real(source, target, url)

    real = snapshot.copy_database
    monkeypatch.setattr(backup, "copy_database", copy)
    assert command("state", "backup", state, tmp_path / "backup").exit_code == ExitCode.OK
    with collecting(state):
        pass
