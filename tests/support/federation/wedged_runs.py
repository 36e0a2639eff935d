"""Runs with a number that an earlier version let in: finite, and infinite in the weighted mean that commits the round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedplcc.aggregator.store.database.sql_store import SqlStore
from fedplcc.shared.types import RoundPhase, Run
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


def store_a_number_of_an_earlier_version(folder: Path, run_id: str, number: int = 1, client_id: str = "bob") -> None:
    """Write into the database what the last version let in: a loss that overflows in the weighted mean."""
    store = SqlStore.in_folder(folder)
    current = store.find_round(run_id, number)
    assert current is not None
    known = current.updates[client_id]
    with store.transaction() as transaction:
        transaction.remove_update(run_id, number, known)
        transaction.add_update(run_id, number, replace(known, losses={"ce": OVERFLOWS}))
    store.close()
