"""Whole runs on PostgreSQL: killed, cut off from the server, started again, they end as on SQLite."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.aggregator.store.opening import open_store
from fedplcc.shared.errors import MalformedRequest, StoreUnavailable
from fedplcc.shared.steering import StopRun
from fedplcc.shared.types import Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import a_document
from tests.support.hosts.failing_disk import Disk, Killed
from tests.support.hosts.postgres import Server

EVERY_OTHER = 5
"""Of the begins and ends of transactions, every so-manyth is tried: all steps are on SQLite, in test_crash_recovery.py."""


@pytest.fixture
def on_postgres(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each state directory a database of its own, in place of its SQLite file."""
    urls: dict[Path, str] = {}

    with ExitStack() as databases:

        def in_folder(folder: Path) -> SqlStore:
            if folder not in urls:
                urls[folder] = databases.enter_context(postgres.database())
            return open_store(folder, urls[folder], on_lost=lambda why: pytest.fail(why))

        monkeypatch.setattr(SqlStore, "in_folder", in_folder)
        yield


def outcome(federation: LocalFederation, run: Run) -> dict[str, object]:
    """What must be the same on every database: what was made, and how often each thing happened."""
    assert run.status is RunStatus.COMPLETED
    assert run.model is not None
    assert run.prototypes is not None
    return {
        "model": run.model.sha256,
        "prototypes": run.prototypes.sha256,
        "metrics": federation.metrics_lines(run.run_id),
        "happened": federation.happenings(run.run_id),
    }


@pytest.fixture
def on_sqlite(folder: Path) -> dict[str, object]:
    """The outcome of an undisturbed run on SQLite."""
    with LocalFederation.small(folder / "sqlite") as federation:
        return outcome(federation, federation.whole_run(rounds=1))


def test_a_run_on_postgresql_ends_as_on_sqlite(on_sqlite: dict[str, object], folder: Path, on_postgres: None) -> None:
    with LocalFederation.small(folder / "postgres") as federation:
        run = federation.whole_run(rounds=1)
        assert outcome(federation, run) == on_sqlite
        federation.restart()
        assert federation.coordinator.get_run(run.run_id) == run
    assert not list((folder / "postgres").glob("*.sqlite*"))


def assert_named_blobs_are_whole(federation: LocalFederation) -> None:
    for sha256, size_bytes in federation.store.list_blobs():
        data = (federation.folder / "blobs" / sha256[:2] / sha256).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (sha256, size_bytes)


def test_an_aggregator_that_is_killed_between_steps_ends_as_on_sqlite(
    on_sqlite: dict[str, object], folder: Path, on_postgres: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    with LocalFederation.small(folder / "steps") as federation:
        disk.revive()
        federation.whole_run(rounds=1)
        steps = list(disk.steps)
    tried = [number for number, name in enumerate(steps, start=1) if name in ("begin", "committed")][::EVERY_OTHER]
    assert {steps[step - 1] for step in tried} == {"begin", "committed"}
    for step in tried:
        with LocalFederation.small(folder / str(step)) as federation:
            disk.kill_before(step)
            with pytest.raises(Killed):
                federation.whole_run(rounds=1)
            disk.revive()
            assert_named_blobs_are_whole(federation)
            federation.restart()
            assert outcome(federation, federation.whole_run(rounds=1)) == on_sqlite, (
                f"killed before step {step}, {steps[step - 1]}"
            )


def test_a_server_that_crashes_at_any_moment_of_a_run_changes_nothing_of_its_end(
    on_sqlite: dict[str, object], folder: Path, on_postgres: None, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server crashes just before or just after a COMMIT, or between two; the same aggregator goes on."""
    crashes: list[str] = []
    commits = count(1)
    with LocalFederation.small(folder / "postgres") as federation:
        dialect = federation.store.database.engine.dialect
        commit = dialect.do_commit

        def do_commit(connection: Any) -> None:
            moment = {2: "before", 4: "after"}.get(next(commits) % 5)
            if moment == "before":
                crash(moment)
            commit(connection)
            if moment == "after":
                crash(moment)
                connection.execute("SELECT 1")  # here the driver finds out

        def crash(moment: str) -> None:
            crashes.append(moment)
            postgres.crash()
            postgres.start()

        monkeypatch.setattr(dialect, "do_commit", do_commit)
        refused = 0
        for _ in range(20):
            try:
                run = federation.whole_run(rounds=1)
            except StoreUnavailable:
                refused += 1
            else:
                break
        assert outcome(federation, run) == on_sqlite
    assert min(crashes.count("before"), crashes.count("after")) >= 2, crashes
    assert 0 < refused <= crashes.count("before"), "what was committed was answered, however the answer was lost"


def test_a_text_that_no_database_keeps_is_refused_and_the_run_goes_on(folder: Path) -> None:
    with LocalFederation.small(folder / "sqlite") as federation:
        federation.join()
        run = federation.create("fedplcc")
        refusals: list[Callable[[], object]] = [
            lambda: federation.coordinator.steer(run.run_id, StopRun(reason="a\0b")),
            lambda: federation.coordinator.create_run("a\0b", a_document("fedplcc")),
            lambda: federation.coordinator.get_run("a\0b"),
            lambda: federation.coordinator.list_runs(limit=1, before="a\0b"),
            lambda: federation.coordinator.list_clients(after="a\0b"),
        ]
        for refused in refusals:
            with pytest.raises(MalformedRequest, match=r"has the character U\+0000, which no name or text may have"):
                refused()
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
