"""Stages that a run has forgotten: found at commits, kept over restarts, shown as a metric until the run is gone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from fedplcc.aggregator.histories import stage_memories
from fedplcc.aggregator.metrics.runs import KEEP_ENDED_S
from tests.support.federation.forgetting_client import ForgettingClient
from tests.support.federation.in_process import LocalFederation

THREE_STAGES = {"stages": 3, "rounds_per_stage": 3}
"""Rounds 4 to 9 are those after the first stage."""

Make = Callable[[Collection[int]], LocalFederation]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[LocalFederation] = []

    def federation(forgets_in: Collection[int]) -> LocalFederation:
        clients = [ForgettingClient(name, forgets_in=forgets_in) for name in ("ann", "bob")]
        made.append(LocalFederation(tmp_path, clients).__enter__())
        made[-1].join()
        return made[-1]

    yield federation
    for each in made:
        each.__exit__()


def until(federation: LocalFederation, run_id: str, number: int) -> None:
    """Go on until a round has committed."""
    while federation.coordinator.get_run(run_id).round_number <= number:
        assert federation.step()


def forgot(federation: LocalFederation, run_id: str) -> float | None:
    return federation.metric("forgot_stages", run=run_id)


def after_rounds(federation: LocalFederation, run_id: str, *numbers: int) -> list[float | None]:
    """The metric after each of these rounds."""
    found = []
    for number in numbers:
        until(federation, run_id, number)
        found.append(forgot(federation, run_id))
    return found


def test_a_run_shows_what_it_has_forgotten_for_three_rounds_until_it_knows_it_again(make: Make) -> None:
    federation = make(range(5, 8))
    run_id = federation.create(run={"rounds": 9}, stream=THREE_STAGES).run_id
    assert forgot(federation, run_id) is None, "before its first round"
    assert after_rounds(federation, run_id, 1, 4, 5, 6) == [0, 0, 0, 0]
    named = []
    for number, value in ((7, 1), (8, 0)):
        assert after_rounds(federation, run_id, number) == [value]
        named.append([federation.metric("stage_forgotten", run=run_id, stage=str(stage)) for stage in (1, 2)])
    assert named == [[1, None], [None, None]], "stage 1, and then none"


def test_rounds_count_that_were_evaluated(make: Make) -> None:
    federation = make(range(3, 19))
    stream = {"stages": 3, "rounds_per_stage": 6}
    run_id = federation.create(run={"rounds": 18}, stream=stream, evaluation={"every": 2, "last": 1}).run_id
    until(federation, run_id, 11)
    assert forgot(federation, run_id) == 0, "rounds 8 and 10 were evaluated"
    assert after_rounds(federation, run_id, 12, 13) == [1, 1]


def test_in_a_second_pass_the_first_one_s_best_counts(make: Make) -> None:
    federation = make(range(13, 19))
    run_id = federation.create(run={"rounds": 18}, stream=THREE_STAGES | {"passes": 2}).run_id
    assert after_rounds(federation, run_id, 12, 14, 15) == [0, 0, 1]


def test_a_new_start_shows_the_same_and_goes_on_from_there(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_memories, "PAGE", 2)  # the history is longer than a page
    federation = make(range(4, 9))
    run_id = federation.create(run={"rounds": 9}, stream=THREE_STAGES).run_id
    found = []
    for number in range(1, 8):
        until(federation, run_id, number)
        before = forgot(federation, run_id)
        federation.restart()
        assert forgot(federation, run_id) == before
        found.append(before)
    assert found == [0, 0, 0, 0, 0, 1, 1]


def test_a_run_without_stages_and_one_that_is_gone_show_nothing(make: Make) -> None:
    federation = make(range(4, 10))
    run_id = federation.create(run={"rounds": 9}, stream=THREE_STAGES).run_id
    federation.run_to_end(run_id)
    assert forgot(federation, run_id) == 1, "for the last scrape"
    federation.clock.now += KEEP_ENDED_S
    federation.coordinator.tick()
    assert forgot(federation, run_id) is None
    other = LocalFederation.small(federation.folder / "other")
    with other:
        other.join()
        run = other.create(run={"rounds": 2})
        until(other, run.run_id, 1)
        assert other.metric("round", run=run.run_id) == 2
        assert forgot(other, run.run_id) is None
