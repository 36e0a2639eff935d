"""Warnings about runs at chance: found at commits, kept over restarts and ends, shown as a metric."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedplcc.shared.chance import ROUNDS
from tests.support.federation.guessing_client import GuessingClient
from tests.support.federation.in_process import LocalFederation


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], LocalFederation]]:
    made: list[LocalFederation] = []

    def federation(learns_from: int) -> LocalFederation:
        clients = [GuessingClient(name, learns_from=learns_from) for name in ("ann", "bob")]
        made.append(LocalFederation(tmp_path, clients).__enter__())
        made[-1].join()
        return made[-1]

    yield federation
    for each in made:
        each.__exit__()


def until(federation: LocalFederation, run_id: str, number: int) -> None:
    """Go on until a round has opened, so that the one before it has committed."""
    while federation.coordinator.get_run(run_id).round_number < number:
        assert federation.step()


def warned(federation: LocalFederation, run_id: str) -> list[int]:
    return [each.round for each in federation.coordinator.warnings(federation.coordinator.get_run(run_id))]


@pytest.mark.parametrize("every", [1, 2])
def test_a_run_at_chance_is_warned_of_from_the_tenth_evaluated_round_on_and_after_a_restart(
    make: Callable[[int], LocalFederation], every: int
) -> None:
    federation = make(1_000_000)
    evaluation = {"every": every, "last": 1}
    run_id = federation.create("fedplcc", run={"rounds": 2 * ROUNDS * every}, evaluation=evaluation).run_id
    until(federation, run_id, ROUNDS * every)
    assert warned(federation, run_id) == []
    assert federation.metric("run_at_chance", run=run_id) == 0.0
    until(federation, run_id, ROUNDS * every + 1)
    assert warned(federation, run_id) == [every]
    assert federation.metric("run_at_chance", run=run_id) == 1.0
    federation.restart()
    assert warned(federation, run_id) == [every]
    assert federation.metric("run_at_chance", run=run_id) == 1.0
    federation.run_to_end(run_id)
    assert warned(federation, run_id) == [(ROUNDS + 1) * every]
