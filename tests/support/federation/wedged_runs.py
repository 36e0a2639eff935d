"""Runs with a number that an earlier version let in: finite, and infinite in the weighted mean that commits the round."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy import insert, select, update

from aggregator.store.database import schema
from aggregator.store.database.rows import sealed
from aggregator.store.database.sql_store import SqlStore
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
    """Write into the database what an earlier version let in: a loss that overflows in the weighted mean."""
    table = schema.updates
    is_meant = (table.c.run_id == run.run_id) & (table.c.round == 1) & (table.c.client_id == client_id)
    with closing(SqlStore.in_folder(folder)) as store, store.database.engine.begin() as connection:
        row = dict(connection.execute(select(table).where(is_meant)).one()._mapping)
        row["update"] = {**row["update"], "losses": {"ce": OVERFLOWS}}
        connection.execute(update(table).where(is_meant).values(sealed(table, row)))


def store_the_same_report_of(client_id: str, folder: Path) -> None:
    """Write into the database the only stored report once more, as another client's."""
    table = schema.evaluations
    with closing(SqlStore.in_folder(folder)) as store, store.database.engine.begin() as connection:
        row = dict(connection.execute(select(table)).one()._mapping)
        connection.execute(insert(table).values(sealed(table, {**row, "client_id": client_id})))
