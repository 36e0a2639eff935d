"""Times of a round's phases: computed from the events that were seen, without a gap where some were not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.aggregator.metrics.round_times import Phase, RoundTimes
from fedplcc.shared.types import ClientActivity, Round, RoundPhase
from tests.support.records.builders import a_round, an_update

RECORD = {"collecting": 100.0, "aggregating": 130.0, "evaluating": 140.0, "committed": 150.0}
END = 151.0


def the_round(*clients: str, record: dict[str, float] = RECORD) -> Round:
    """A committed round with the updates of these clients."""
    updates = {name: an_update(name) for name in clients}
    return a_round(1, RoundPhase.COMMITTED, updates=updates, phase_started_at=record)


def opened() -> RoundTimes:
    return RoundTimes(1, 100.0)


def seconds(times: RoundTimes, current: Round, end: float = END) -> dict[str, float]:
    """The phases that took time."""
    found = times.seconds(current, end)
    assert list(found) == list(Phase)
    assert math.isclose(sum(found.values()), times.age_s(end), abs_tol=1e-6)
    return {phase.value: round(value, 6) for phase, value in found.items() if value}


def test_every_phase_has_its_time() -> None:
    times = opened()
    times.task_taken(101.0)
    times.task_taken(101.5)
    for client, fetched, uploads, done in (("ann", 103.0, 110.0, 112.0), ("bob", 105.0, 117.0, 130.0)):
        times.fetched(client, fetched - 0.5)
        times.fetched(client, fetched)
        times.record_activity(client, ClientActivity.TRAINING, fetched + 1)
        times.record_activity(client, ClientActivity.SUMMARISING, uploads - 1)
        times.uploads(client, uploads)
        times.record_activity(client, ClientActivity.UPLOADING, uploads + 1)
        times.has_updates([client], done)
    times.folded(136.0)
    assert seconds(times, the_round("ann", "bob")) == {
        "select": 1,
        "broadcast": 4,
        "train": 12,
        "collect": 13,
        "aggregate": 6,
        "cluster": 4,
        "evaluate": 10,
        "commit": 1,
    }


def test_a_client_that_fetches_nothing_begins_to_train_when_it_says_so() -> None:
    """It has the model, for it evaluated it."""
    times = opened()
    times.task_taken(100.0)
    times.record_activity("ann", ClientActivity.TRAINING, 104.0)
    times.uploads("ann", 120.0)
    assert seconds(times, the_round("ann")) | {"broadcast": 4, "train": 16, "collect": 10} == seconds(
        times, the_round("ann")
    )


def test_a_client_without_a_heartbeat_in_time_began_when_it_was_first_seen_to_send() -> None:
    times = opened()
    times.task_taken(100.0)
    times.uploads("ann", 120.0)
    found = seconds(times, the_round("ann"))
    assert (found["broadcast"], "train" in found, found["collect"]) == (20, False, 10)


def test_a_client_that_is_dropped_delays_collecting_alone() -> None:
    times = opened()
    times.task_taken(100.0)
    for client, uploads in (("ann", 110.0), ("bob", 125.0)):
        times.fetched(client, uploads - 9)
        times.uploads(client, uploads)
    times.has_updates(["ann"], 112.0)
    found = seconds(times, the_round("ann"))
    assert (found["broadcast"], found["train"], found["collect"]) == (1, 9, 20)


def test_no_time_passes_while_the_run_is_paused() -> None:
    times = opened()
    times.task_taken(100.0)
    times.fetched("ann", 102.0)
    times.paused(105.0)
    times.paused(106.0)
    assert times.age_s(115.0) == 5
    times.uploads("ann", 110.0)
    times.resumed(125.0)
    times.resumed(126.0)
    times.has_updates(["ann"], 128.0)
    assert times.age_s(130.0) == 10
    found = seconds(times, the_round("ann"))
    assert (found["broadcast"], found["train"], found["collect"]) == (2, 3, 5)
    assert sum(found.values()) == 31


def test_clocks_that_go_back_give_no_negative_duration() -> None:
    times = opened()
    times.task_taken(90.0)
    times.uploads("ann", 80.0)
    times.folded(70.0)
    assert seconds(times, the_round("ann", record={"collecting": 100.0, "aggregating": 90.0}), end=95.0) == {}


AT = st.floats(50.0, 200.0)


@given(
    st.lists(st.tuples(st.sampled_from(["taken", "fetched", "heard", "uploads", "updated", "folded"]), AT)),
    st.lists(AT, max_size=6),
    st.sets(st.sampled_from(["aggregating", "evaluating", "committed"])),
)
def test_whatever_was_seen_the_phases_are_never_negative_and_sum_to_the_age(
    facts: list[tuple[str, float]], pauses: list[float], record: set[str]
) -> None:
    times = opened()
    for index, (fact, at) in enumerate(facts):
        client = ("ann", "bob", "eve")[index % 3]
        match fact:
            case "taken":
                times.task_taken(at)
            case "fetched":
                times.fetched(client, at)
            case "heard":
                times.record_activity(client, list(ClientActivity)[index % len(ClientActivity)], at)
            case "uploads":
                times.uploads(client, at)
            case "updated":
                times.has_updates([client], at)
            case "folded":
                times.folded(at)
    for index, at in enumerate(sorted(pauses)):
        if index % 2:
            times.resumed(at)
        else:
            times.paused(at)
    known = {name: at for name, at in RECORD.items() if name == "collecting" or name in record}
    found = times.seconds(the_round("ann", "bob", record=known), END)
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(times.age_s(END), abs=1e-6)
    placed = times.phases(the_round("ann", "bob", record=known), END)
    bounds = [at for span in placed.values() for at in span]
    assert bounds == sorted(bounds)
    assert 100.0 <= bounds[0] <= bounds[-1] <= END
    for phase, (begin, end) in placed.items() if all(at >= 100.0 for at in pauses) else ():
        paused = sum(max(0.0, min(end, until) - max(begin, since)) for since, until in times.pauses)
        assert end - begin - paused == pytest.approx(found[phase], abs=1e-6)
