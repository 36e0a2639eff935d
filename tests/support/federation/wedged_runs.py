"""Runs with a number that an earlier version let in: finite, and infinite in the weighted mean that commits the round."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from shared.types import RoundPhase, Run
from tests.support.federation.in_process import LocalFederation

OVERFLOWS = 1.7e308
"""A finite number; times a number of samples it is infinite."""


def until(federation: LocalFederation, run: Run, phase: RoundPhase) -> None:
    """Let the clients do the work of this run until its round 1 is in a phase."""
    for _ in range(100):
        current = federation.coordinator.get_run(run.run_id).current_round
        if current is not None and current.number == 1 and current.phase is phase:
            return
        federation.step(["ann", "bob"])
    raise AssertionError(f"round 1 never was {phase}")


def store_a_number_of_an_earlier_version(folder: Path, run: Run, client_id: str = "bob") -> None:
    """Write into the database what the last version let in: a loss that overflows in the weighted mean."""
    with closing(sqlite3.connect(folder / "aggregator.sqlite")) as database, database:
        key = (run.run_id, client_id)
        where = "FROM updates WHERE run_id = ? AND round = 1 AND client_id = ?"
        (stored,) = database.execute(f'SELECT "update" {where}', key).fetchone()
        record = json.loads(stored)
        record["losses"] = {"ce": OVERFLOWS}
        database.execute(
            'UPDATE updates SET "update" = ? WHERE run_id = ? AND round = 1 AND client_id = ?',
            (json.dumps(record), *key),
        )
