"""`fedplcc doctor STATE_DIR` and `replay` on what a real aggregator left, whole and damaged."""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from fedplcc.aggregator.store.database.engines.connections import database_errors
from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.command.exit_codes import ExitCode
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.identity.audit_chain import AuditRecord
from fedplcc.shared.run_lists import RunLabels
from fedplcc.shared.tensors import blob_ref, to_bytes
from fedplcc.shared.types import MODEL, Payload, Run, Update
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import Staged
from tests.support import present
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.unit.fedplcc.state.calls import Kept, command, damaged, findings, model_of, sql


def test_flipped_rows_without_a_digest_are_found(state: Path, left: tuple[Path, Run, Run]) -> None:
    run_id = left[1].run_id
    with closing(SqlStore.in_folder(state)) as store, store.transaction() as transaction:
        transaction.save_labels(run_id, RunLabels(tags=("good",)))
    assert findings(state, ExitCode.OK) == []
    for change, back, told in (
        ("UPDATE run_tags SET tag = 'gooe'", "UPDATE run_tags SET tag = 'good'", "run_tags are not what run_labels"),
        (
            "UPDATE client_blobs SET client_id = 'anm' WHERE client_id = 'ann'",
            "UPDATE client_blobs SET client_id = 'ann' WHERE client_id = 'anm'",
            "name clients that never joined",
        ),
        (
            "UPDATE client_blobs SET sha256 = 'x' || sha256",
            "UPDATE client_blobs SET sha256 = substr(sha256, 2)",
            "name blobs that are not kept",
        ),
    ):
        sql(state, change)
        (sentence,) = findings(state)
        assert told in sentence
        sql(state, back)
    assert findings(state, ExitCode.OK) == []


def test_a_clock_behind_the_newest_time_on_record_is_told(state: Path) -> None:
    now = time.time()
    assert findings(state, ExitCode.OK) == []
    with closing(SqlStore.in_folder(state)) as store, store.transaction() as transaction:
        transaction.add_audit([AuditRecord(time=now + 20 * 86_400, caller="owner", method="CreateRun")])
    (told,) = findings(state)
    assert told.startswith("it is 20.0 days behind the newest time on record")


# doctor


def test_the_doctor_changes_nothing(state: Path) -> None:
    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in state.rglob("*") if path.is_file() and "sqlite-" not in path.name}

    before = content()
    assert findings(state, ExitCode.OK) == []
    assert content() == before


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("harm", "words"),
    [(damaged, "does not have its SHA-256"), (shortened, "bytes and not"), (Path.unlink, "is not there")],
)
def test_a_blob_that_is_not_what_its_row_says_is_named_with_its_round(
    state: Path, left: tuple[Path, Run, Run], harm: Callable[[Path], None], words: str
) -> None:
    path = model_of(state, left[1], 5)
    harm(path)
    (sentence,) = findings(state)
    assert path.name[:12] in sentence
    assert f"run {left[1].run_id}, round 5, global model" in sentence
    assert words in sentence


def test_a_damaged_blob_is_named_with_its_round_however_many_rounds_there_are(
    state: Path, left: tuple[Path, Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedplcc.doctor.aggregator_state.PAGE", 2)
    damaged(model_of(state, left[1], 5))
    (sentence,) = findings(state)
    assert f"run {left[1].run_id}, round 5, global model" in sentence


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM events WHERE sequence = 7", "events are missing, 7 to 7"),
        ("UPDATE runs SET status = 'paused' WHERE status = 'completed'", " of runs (run "),
        ("UPDATE runs SET round = 1 WHERE round = 2", " of runs (run "),
        ("UPDATE rounds SET phase = 'evaluating' WHERE number = 5", "/5 of rounds (run "),
        (
            "DELETE FROM updates WHERE round = 2 AND client_id = 'ann'",
            "round 2 has 1 and its history 2 of update_committed",
        ),
        ("DELETE FROM evaluations WHERE round = 3", "round 3 has 0 and its history 2 of evaluation_reported"),
        ("DELETE FROM rounds WHERE number = 3", "rounds are missing in the database"),
    ],
)
def test_a_history_that_contradicts_the_database_is_found(state: Path, statement: str, words: str) -> None:
    sql(state, statement)
    assert any(words in sentence for sentence in findings(state))


def test_a_model_that_a_run_needs_and_no_row_names_is_found(state: Path, left: tuple[Path, Run, Run]) -> None:
    name = model_of(state, left[2], 1).name
    for table in ("client_blobs", "blobs"):
        sql(state, f"DELETE FROM {table} WHERE sha256 = '{name}'")
    assert any(f"run {left[2].run_id} lacks {name[:12]}" in sentence for sentence in findings(state))


def test_leftovers_of_a_crash_are_told_and_are_no_problem(state: Path) -> None:
    folder = state / "blobs" / "ab"
    folder.mkdir(exist_ok=True)
    (folder / ("ab" * 32)).write_bytes(b"x" * 2048)
    (state / "staging" / "tmp1").write_bytes(b"y" * 10)
    (state / "notes.txt").write_text("mine")
    answer = command("doctor", state)
    assert answer.exit_code == ExitCode.OK
    assert "1 blobs of 2.0 KiB that no row names" in answer.stdout
    assert "1 files of 10 B in staging" in answer.stdout
    assert "notes.txt: move them elsewhere" in answer.stdout


def test_what_is_no_state_directory_is_said_to_be_none(tmp_path: Path, state: Path) -> None:
    assert findings(tmp_path / "nothing") == [
        f"{tmp_path / 'nothing'} is no state directory of an aggregator: there is no aggregator.sqlite in it"
    ]
    (tmp_path / "parent").mkdir()
    shutil.copytree(state, tmp_path / "parent" / "aggregator")
    (sentence,) = findings(tmp_path / "parent")
    assert f"do you mean {tmp_path / 'parent' / 'aggregator'}?" in sentence
    (state / "aggregator.sqlite").write_bytes(b"no database at all, but rather long" * 100)
    for name in ("aggregator.sqlite-wal", "aggregator.sqlite-shm"):
        (state / name).unlink(missing_ok=True)
    assert any("restore a backup" in sentence for sentence in findings(state))


# a trainer's


def test_what_a_trainer_keeps_is_examined_too(tmp_path: Path) -> None:
    state = tmp_path / "trainer-ann"
    state.mkdir()
    (state / "instance-token").write_text("a token")
    assert "keeps no finished update" in command("doctor", state).stdout
    data = to_bytes(NumpyClient("ann").first_model())
    blob = blob_ref(MODEL, data)
    update = Update(client_id="ann", payload=Payload(tensor_groups=(blob,)), num_examples=12)
    staged = Staged(identity="work", run_id="run", round=3, update=update)
    folder = state / "client-state" / "ann"
    ClientStates(folder).stage(staged, {blob.sha256: data})
    answer = command("doctor", state)
    assert answer.exit_code == ExitCode.OK
    assert "the update of round 3 and client states of 0 runs, each file with its SHA-256" in answer.stdout
    damaged(folder / blob.sha256)
    (sentence,) = findings(state, ExitCode.OK)
    assert f"1 of 1 files in {folder} are gone or damaged ({blob.sha256})" in sentence
    damaged(folder / "manifest.json")
    (sentence,) = findings(state, ExitCode.OK)
    assert "manifest.json cannot be read" in sentence


# replay


def test_the_last_round_is_computed_again_to_the_same_bytes(left: tuple[Path, Run, Run]) -> None:
    folder, done, middle = left
    answer = command("state", "audit", folder, "--replay", done.run_id, "--round", 5)
    assert answer.exit_code == ExitCode.OK, answer.output
    assert answer.stdout.endswith(f"round 5 of {done.run_id} from 2 updates: equal\n")
    answer = command("state", "audit", folder, "--replay", middle.run_id, "--round", middle.round_number - 1, "--json")
    document = json.loads(answer.stdout)
    assert document["is_equal"]
    assert document["model"]["computed"] == model_of(folder, middle, middle.round_number - 1).name
    assert document["clients"] == ["ann", "bob"]


def test_a_round_that_pooled_prototypes_of_earlier_rounds_is_computed_again(tmp_path: Path) -> None:
    names = ("ann", "bob", "zoe")
    document = a_document("fedplcc", names, run={"rounds": 6, "cohort_size": 1, "seed": 4})
    document["method"] = {"proto_staleness": 3}
    with Kept(tmp_path, [NumpyClient(name, size=3) for name in names]) as federation:
        federation.join()
        run = federation.run_to_end(federation.coordinator.create_run("the run", document).run_id)
        federation.coordinator.garbage_collection.collect()
        last = federation.store.find_round(run.run_id, 6)
    assert last is not None
    assert set(last.updates) == {"zoe"}
    answer = command("state", "audit", tmp_path, "--replay", run.run_id, "--round", 6)
    assert answer.exit_code == ExitCode.OK, answer.output
    answer = command("state", "audit", tmp_path, "--replay", run.run_id, "--round", 5)
    assert answer.exit_code == ExitCode.COLLECTED, answer.output
    assert not findings(tmp_path, ExitCode.OK)


def test_a_round_that_was_recorded_otherwise_is_found(state: Path, left: tuple[Path, Run, Run]) -> None:
    other = model_of(state, left[1], 4).name
    with closing(SqlStore.in_folder(state)) as store:
        run = present(store.find_run(left[1].run_id))
        assert run.current_round is not None
        assert run.current_round.model is not None
        recorded = replace(run.current_round, model=replace(run.current_round.model, sha256=other))
        with store.transaction() as transaction:
            transaction.save_run(replace(run, current_round=recorded))
    answer = command("state", "audit", state, "--replay", left[1].run_id, "--round", 5)
    assert answer.exit_code == ExitCode.FAILED
    assert f"but {other} was recorded" in answer.stdout
    assert "fedplcc doctor" in answer.stderr


def test_a_damaged_update_is_not_computed_with(state: Path, left: tuple[Path, Run, Run]) -> None:
    damaged(model_of(state, left[1], 4))
    answer = command("state", "audit", state, "--replay", left[1].run_id, "--round", 5)
    assert answer.exit_code == ExitCode.FAILED
    assert "does not have its SHA-256" in answer.stderr


def test_rounds_that_are_none_are_refused(left: tuple[Path, Run, Run], tmp_path: Path) -> None:
    folder, done, middle = left
    for words, code, sentence in (
        ((done.run_id, "--round", 0), ExitCode.USAGE, "round 0 is what a client made"),
        ((done.run_id, "--round", 6), ExitCode.FAILED, "has no result of round 6 yet"),
        ((middle.run_id, "--round", middle.round_number + 1), ExitCode.FAILED, "has no result of round"),
        (("unknown", "--round", 1), ExitCode.FAILED, "there is no run 'unknown'; the newest are: test-"),
    ):
        answer = command("state", "audit", folder, "--replay", *words)
        assert answer.exit_code == code
        assert sentence in answer.stderr
    answer = command("state", "audit", tmp_path, "--replay", done.run_id, "--round", 1)
    assert answer.exit_code == ExitCode.USAGE
    assert "is no state directory" in answer.stderr
    assert not list(tmp_path.iterdir()), "nothing is written where there is nothing"


# What doctor says after damage


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("runs", "UPDATE runs SET config_json = 'x'"),
        ("runs", "UPDATE runs SET roster = '{'"),
        ("rounds", "UPDATE rounds SET metrics_json = '{}' WHERE number = 2"),
        ("updates", "UPDATE updates SET \"update\" = '?' WHERE round = 1"),
        ("evaluations", "UPDATE evaluations SET evaluation = replace(evaluation, '10', '11')"),
        ("clients", "UPDATE clients SET domain = 'elsewhere'"),
        ("clients", "UPDATE clients SET last_seen_at = 'x'"),
        ("blobs", "UPDATE blobs SET size_bytes = size_bytes + 1"),
        ("events", "UPDATE events SET data = '{}' WHERE type = 'round_committed'"),
        ("events", "UPDATE events SET digest = NULL"),
    ],
)
def test_a_changed_row_of_any_table_is_named(state: Path, table: str, statement: str) -> None:
    sql(state, statement)
    assert any(f" of {table}" in sentence and sentence.startswith("damaged, ") for sentence in findings(state))


def test_a_run_whose_row_is_gone_is_named(state: Path, left: tuple[Path, Run, Run]) -> None:
    sql(state, f"DELETE FROM runs WHERE run_id = '{left[1].run_id}'")
    assert any(f"runs are missing, {left[1].run_id} with" in sentence for sentence in findings(state))


@pytest.mark.parametrize("folder", ["blobs", "incoming", "staging"])
def test_a_missing_folder_is_a_finding(state: Path, folder: str) -> None:
    shutil.rmtree(state / folder)
    answer = command("doctor", state)
    assert f"the folder {folder} is gone" in answer.stdout
    assert answer.exit_code == (ExitCode.FAILED if folder == "blobs" else ExitCode.OK)


def test_an_aggregator_that_was_killed_does_not_run(state: Path) -> None:
    (state / "lock").touch()
    (state / "endpoint.json").write_text('{"port": 1, "metrics_port": null, "pid": 1}')
    assert "no aggregator runs on it; endpoint.json is left from one that was killed" in command("doctor", state).stdout
    with (state / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "an aggregator runs on it" in command("doctor", state).stdout
    (state / "lock").unlink()
    assert "its file lock is gone, and the process of endpoint.json lives" in command("doctor", state).stdout


def test_transactions_that_are_gone_are_told(state: Path) -> None:
    count = int((state / "committed").read_bytes())
    (state / "committed").write_bytes(b"%019d\n" % (count + 3))
    assert any(f"lacks 3 of {count + 3} committed transactions" in sentence for sentence in findings(state))


def test_a_round_whose_updates_were_collected_is_said_to_be_so(left: tuple[Path, Run, Run]) -> None:
    folder, done, _middle = left
    answer = command("state", "audit", folder, "--replay", done.run_id, "--round", 2)
    assert answer.exit_code == ExitCode.COLLECTED
    assert "the model that it started from was collected; an aggregator with a larger --keep-updates" in answer.stderr
    answer = command("state", "audit", folder, "--replay", done.run_id, "--round", 1)
    assert answer.exit_code == ExitCode.COLLECTED
    assert "updates of 2 clients were collected (ann, bob)" in answer.stderr


def test_a_database_that_may_not_grow_says_to_make_room(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite says of it what it says of a full disk."""
    connect = sqlite3.connect

    def narrow(database: str | Path, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(database, **options)
        if Path(database).parent == tmp_path / "backup":
            connection.execute("PRAGMA max_page_count = 1")
        return connection

    monkeypatch.setattr(sqlite3, "connect", narrow)
    answer = command("state", "backup", state, tmp_path / "backup")
    assert answer.exit_code == ExitCode.STORAGE
    assert answer.stderr.endswith(": database or disk is full; make room there, or choose another folder\n")
    engine = create_engine(f"sqlite:///{tmp_path / 'narrow.sqlite'}")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
        with (
            pytest.raises(StoreUnavailable, match=r"^cannot write: database or disk is full; make room$"),
            database_errors("cannot write"),
        ):
            connection.exec_driver_sql("CREATE TABLE too_much (x)")
    engine.dispose()


def test_a_folder_that_cannot_be_made_is_a_sentence(state: Path) -> None:
    answer = command("state", "backup", state, "/proc/nowhere/backup")
    assert answer.exit_code == ExitCode.STORAGE
    assert "choose another folder" in answer.stderr
