"""A damaged row of the database: its run waits and says so, every other run ends as if nothing had happened."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedplcc.shared.errors import InvalidTransition, RowCorrupt
from fedplcc.shared.reasons import RowDamaged, sentence_of
from fedplcc.shared.steering import ResumeRun, StopRun
from fedplcc.shared.types import RunStatus
from tests.support.federation.in_process import LocalFederation

ROWS = {
    "configuration": ("UPDATE runs SET config_json = replace(config_json, '\"rounds\":2', '\"rounds\":9')", "runs"),
    "no configuration": ("UPDATE runs SET config_json = 'x'", "runs"),
    "seed": ("UPDATE runs SET seed = seed + 1", "runs"),
    "rounds": ("UPDATE runs SET total_rounds = 1", "runs"),
    "roster": ("UPDATE runs SET roster = '[\"ann\"]'", "runs"),
    "no roster": ("UPDATE runs SET roster = '[\"ann'", "runs"),
    "model": ("UPDATE runs SET model = replace(model, 'a', 'b')", "runs"),
    "status": ("UPDATE runs SET status = 'pending'", "runs"),
    "no status": ("UPDATE runs SET status = 'ruined'", "runs"),
    "digest": ("UPDATE runs SET digest = NULL", "runs"),
    "number": ("UPDATE runs SET round = 0", "runs"),
    "phase": ("UPDATE rounds SET phase = 'committed' WHERE number = 1", "rounds"),
    "cohort": ("UPDATE rounds SET cohort = '[\"ann\"]' WHERE number = 1", "rounds"),
    "no cohort": ("UPDATE rounds SET cohort = '{' WHERE number = 1", "rounds"),
    "no round": ("DELETE FROM rounds WHERE number = 1", "rounds"),
    "update": (
        "UPDATE updates SET \"update\" = replace(\"update\", '5', '6') WHERE round = 1 AND client_id = 'ann'",
        "updates",
    ),
    "no update": ("UPDATE updates SET \"update\" = '!' WHERE round = 1 AND client_id = 'ann'", "updates"),
    "sender": ("UPDATE updates SET client_id = 'zoe' WHERE round = 1 AND client_id = 'ann'", "updates"),
}


def change(folder: Path, statement: str, run_id: str) -> None:
    where = " AND" if "WHERE" in statement else " WHERE"
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection, connection:
        assert connection.execute(f"{statement}{where} run_id = ?", [run_id]).rowcount == 1


def in_round_1(federation: LocalFederation) -> tuple[str, str]:
    """Two runs: of the first, ann's update of round 1 is committed; of the second, nothing yet."""
    federation.join()
    damaged, honest = federation.create("fedplcc"), federation.create("fedplcc")
    federation.step()
    ann = federation.clients["ann"]
    while not (current := federation.coordinator.get_run(damaged.run_id).current_round) or "ann" not in current.updates:
        assert federation.perform(ann, federation.task(ann))
    return damaged.run_id, honest.run_id


def undisturbed(folder: Path) -> list[str]:
    with LocalFederation.small(folder / "undisturbed") as federation:
        _first, second = in_round_1(federation)
        federation.run_to_end(second)
        return federation.metrics_lines(second)


@pytest.mark.parametrize("what", ROWS)
def test_a_run_with_a_damaged_row_waits_and_says_so_and_the_others_end_in_their_bytes(folder: Path, what: str) -> None:
    statement, table = ROWS[what]
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        damaged, honest = in_round_1(federation)
        federation.store.close()
        change(federation.folder, statement, damaged)
        federation.start_again()
        federation.join()
        federation.run_to_end(honest)
        assert federation.metrics_lines(honest) == lines
        run = federation.coordinator.get_run(damaged)
        assert run.status is RunStatus.PAUSED
        assert isinstance(run.reason, RowDamaged)
        assert (run.reason.table, run.reason.key.split("/")[0]) == (table, damaged)
        assert f"of the table {table} is damaged" in sentence_of(run.reason)
        listed = {each.run_id: each.reason for each in federation.coordinator.list_runs(limit=10)}
        assert listed == {damaged: run.reason, honest: None}
        with pytest.raises(InvalidTransition, match="damaged"):
            federation.coordinator.steer(damaged, ResumeRun())
        stopped = federation.coordinator.steer(damaged, StopRun(reason="enough"))
        assert stopped.status is RunStatus.STOPPED
        federation.restart()
        assert federation.coordinator.get_run(damaged).status is RunStatus.STOPPED


def test_a_run_goes_on_without_a_first_report_whose_row_is_damaged(folder: Path) -> None:
    """Later reports are compared with it, no result is made of it again."""
    with LocalFederation.small(folder / "whole") as federation:
        lines = federation.metrics_lines(federation.whole_run().run_id)
    with LocalFederation.small(folder / "damaged") as federation:
        federation.join()
        run = federation.create("fedplcc")
        while federation.coordinator.get_run(run.run_id).round_number < 2:
            federation.step()
        federation.store.close()
        change(
            federation.folder, "UPDATE evaluations SET digest = '' WHERE round = 1 AND client_id = 'ann'", run.run_id
        )
        federation.start_again()
        federation.join()
        assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
        assert federation.metrics_lines(run.run_id) == lines


def test_a_run_goes_on_when_a_backup_is_back(folder: Path) -> None:
    lines = undisturbed(folder)
    with LocalFederation.small(folder / "damaged") as federation:
        damaged, honest = in_round_1(federation)
        federation.store.close()
        file = federation.folder / "aggregator.sqlite"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (seed,) = connection.execute("SELECT seed FROM runs WHERE run_id = ?", [damaged]).fetchone()
        change(federation.folder, "UPDATE runs SET seed = 77", damaged)
        federation.start_again()
        federation.join()
        for client in federation.clients.values():
            membership = federation.coordinator.join(client.record, client.token)
            assert damaged in membership.open_runs, "its trainers keep what they have of it"
        federation.store.close()
        change(federation.folder, f"UPDATE runs SET seed = {seed}", damaged)
        federation.restart()
        assert federation.run_to_end(damaged).status is RunStatus.COMPLETED
        federation.run_to_end(honest)
        assert federation.metrics_lines(honest) == lines


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE rounds SET metrics_json = replace(metrics_json, '1', '2') WHERE number = 1",
        "UPDATE rounds SET phase_started_at = 'x' WHERE number = 1",
    ],
)
def test_results_of_a_damaged_row_are_not_given_out(folder: Path, statement: str) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run()
        federation.store.close()
        change(folder, statement, run.run_id)
        federation.start_again()
        with pytest.raises(RowCorrupt):
            federation.coordinator.list_rounds(run.run_id)
        assert federation.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED


@pytest.mark.parametrize("value", ["'x'", "json_set(\"update\", '$.num_examples', 7)"])
def test_a_client_joins_though_the_row_of_its_last_update_is_damaged(folder: Path, value: str) -> None:
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run()
        federation.store.close()
        with closing(sqlite3.connect(folder / "aggregator.sqlite")) as connection, connection:
            connection.execute(f'UPDATE updates SET "update" = {value}')
        federation.restart()
        other = federation.create("fedavg")
        assert federation.run_to_end(other.run_id).status is RunStatus.COMPLETED
        assert run.run_id != other.run_id


def test_every_value_is_read_as_it_was_written(folder: Path) -> None:
    """A digest that is computed of what is written must be that of what is read, on whatever the row holds."""
    with LocalFederation.small(folder) as federation:
        run = federation.whole_run()
        federation.restart()
        found: Any = federation.coordinator.get_run(run.run_id)
        assert found.reason is None
        assert json.loads(found.config_json)["run"]["rounds"] == 2
