"""Small federations are walked through: no state is impossible or a trap; `make chaos` takes larger ones."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from fedplcc.aggregator.rounds.machine import run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RoundEvent, RunEvent
from fedplcc.shared.types import RoundPhase, Run, RunStatus
from tests.chaos.exploration import explore
from tests.chaos.small_federations import SAMPLE, TINY, Small

NEVER_TAKEN = {(RunStatus.PENDING, RunEvent.FAIL)} | {
    move for move in run_moves.RUN_TRANSITIONS if move[1] in (RunEvent.PARK, RunEvent.WAIT)
}
"""Moves that no step of the walk leads to: an error parks a run, and the walk makes no errors."""


@pytest.mark.parametrize("small", SAMPLE, ids=lambda small: small.name)
def test_every_state_of_a_small_federation_is_possible_and_leads_on(
    small: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explore(small)
    with capsys.disabled():
        print(f"\n{found.line}")
    assert found.violations == []
    assert found.num_states > 1_000
    assert found.num_written > 500
    assert {"stopped", "completed", "failed"} <= set(found.ends)


def test_the_smallest_federation_takes_every_move_of_a_run() -> None:
    found = explore(TINY)
    assert found.violations == []
    moves = run_moves.RUN_TRANSITIONS.items()
    table = {(was, to) for (was, event), to in moves if (was, event) not in NEVER_TAKEN and was is not to}
    assert found.moves == table


@pytest.mark.parametrize("move", [move for move in run_moves.RUN_TRANSITIONS if move not in NEVER_TAKEN], ids=str)
def test_a_move_that_is_missing_from_the_table_of_runs_is_found(
    monkeypatch: pytest.MonkeyPatch, move: tuple[RunStatus, RunEvent]
) -> None:
    """The walk proves something: take one move away, and it says where somebody is stuck."""
    kept = {known: to for known, to in run_moves.RUN_TRANSITIONS.items() if known != move}
    monkeypatch.setattr(run_moves, "RUN_TRANSITIONS", MappingProxyType(kept))
    assert explore(TINY).violations


@pytest.mark.parametrize(
    "move", [move for move in run_moves.ROUND_TRANSITIONS if move[1] is not RoundEvent.REOPENED], ids=str
)
def test_a_move_that_is_missing_from_the_table_of_rounds_is_found(
    monkeypatch: pytest.MonkeyPatch, move: tuple[object, object]
) -> None:
    kept = {known: to for known, to in run_moves.ROUND_TRANSITIONS.items() if known != move}
    monkeypatch.setattr(run_moves, "ROUND_TRANSITIONS", MappingProxyType(kept))
    assert explore(TINY).violations


def test_a_pause_that_forgets_an_update_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations of the steps themselves are found too, not only holes in the tables."""
    real = run_moves.pause

    def forgetful(run: Run, *, now: bool) -> Run:
        after = real(run, now=now)
        if after.current_round is None or after.current_round.phase is not RoundPhase.AGGREGATING:
            return after
        return replace(after, current_round=replace(after.current_round, updates={}))

    monkeypatch.setattr(run_moves, "pause", forgetful)
    assert any("is lost" in violation for violation in explore(TINY).violations)
