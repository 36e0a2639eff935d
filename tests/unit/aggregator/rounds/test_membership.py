"""Clients that come and go in a run: the cohorts follow from the events alone, and no round waits for a retired client."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedplcc.aggregator.rounds import machine, tasks
from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.errors import InvalidTransition, NotInCohort
from fedplcc.shared.reasons import DropReason
from fedplcc.shared.types import PrototypeCounts, RoundPhase, Run, RunStatus
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update

NAMES = ("ann", "bob", "eve", "zoe")


def collecting(*cohort: str) -> Run:
    return a_run(roster=NAMES[:3], current_round=replace(a_round(1, RoundPhase.COLLECTING), cohort=cohort, updates={}))


def test_a_retired_client_leaves_the_open_round_and_the_others_close_it() -> None:
    run = machine.retire(collecting("ann", "bob"), "bob")
    assert run.current_round is not None
    assert run.current_round.dropped["bob"].reason is DropReason.RETIRED
    assert tasks.task_in(run, "bob") is None
    with pytest.raises(NotInCohort, match="client bob was retired from this run"):
        machine.add_update(run, 1, an_update("bob"), now=1.0)
    closed = machine.add_update(run, 1, an_update("ann"), now=1.0).current_round
    assert closed is not None
    assert closed.phase is RoundPhase.AGGREGATING
    assert machine.eligible(run) == ("ann", "eve")
    assert run.roster == NAMES[:3], "it stays visible"


def test_a_client_that_was_admitted_again_does_not_return_to_the_open_round() -> None:
    run = machine.enter(machine.retire(collecting("ann", "bob"), "bob"), "bob")
    assert machine.eligible(run) == ("ann", "bob", "eve")
    assert machine.waited_for(run) == ("ann",)
    assert tasks.task_in(run, "bob") is None
    moving = machine.drop_absent(run, absent={}, moving=("bob",), quorum=WHOLE_COHORT, now=2.0)
    assert machine.waited_for(moving) == ("ann",)
    assert machine.waited_for(machine.release(machine.quarantine(run, "bob", "x"), "bob")) == ("ann",)
    with pytest.raises(NotInCohort):
        machine.add_update(run, 1, an_update("bob"), now=1.0)


def test_what_a_retired_client_has_committed_stays_and_nobody_waits_for_its_report() -> None:
    run = machine.add_update(collecting("ann", "bob"), 1, an_update("bob"), now=1.0)
    run = machine.add_update(machine.retire(run, "bob"), 1, an_update("ann"), now=2.0)
    assert run.current_round is not None
    assert set(run.current_round.updates) == {"ann", "bob"}
    run = evaluating(run)
    assert machine.waited_for(run) == ("ann",)
    assert not machine.is_evaluated(run, Quorum(min_clients=2))
    run = machine.add_evaluation(run, 1, an_evaluation("ann"))
    assert machine.is_evaluated(run, Quorum(min_clients=2))


def test_a_round_whose_every_reporter_was_retired_waits_for_none() -> None:
    run = machine.add_update(collecting("ann", "bob"), 1, an_update("bob"), now=1.0)
    run = machine.retire(machine.retire(run, "bob"), "ann")
    run = machine.close_updates(run, now=2.0)
    assert machine.is_evaluated(evaluating(run))


def evaluating(run: Run) -> Run:
    return machine.aggregated(
        run,
        1,
        model=a_blob("new"),
        prototypes=a_blob("new prototypes"),
        prototype_counts=PrototypeCounts(by_class=(1,)),
        now=3.0,
    )


def test_repeating_changes_nothing_and_makes_no_event() -> None:
    run = collecting("ann", "bob")
    assert machine.enter(run, "ann") is run
    once = machine.retire(run, "bob")
    assert machine.retire(once, "bob") is once
    forgotten = machine.retire(once, "bob", forgets=True)
    assert machine.retire(forgotten, "bob") is forgotten
    assert [(e.type, e.client_id, e.data) for e in events_between(once, forgotten, now=1.0)] == [
        ("client_retired", "bob", {"forgets": True})
    ]
    back = machine.enter(forgotten, "bob")
    assert machine.enter(back, "bob") is back
    assert [(e.type, e.client_id) for e in events_between(forgotten, back, now=1.0)] == [("client_admitted", "bob")]
    assert back.retired["bob"].is_back, "what it sent before stays forgotten"
    assert machine.enter(once, "bob").retired == {}


@pytest.mark.parametrize("status", [RunStatus.STOPPING, RunStatus.STOPPED, RunStatus.COMPLETED, RunStatus.FAILED])
def test_a_run_that_ends_is_refused_by_name(status: RunStatus) -> None:
    run = replace(collecting("ann", "bob"), status=status)
    for change in (machine.enter, machine.retire):
        with pytest.raises(InvalidTransition, match=f"the run is {status}; no client comes or goes any more"):
            change(run, "bob")


def test_a_run_keeps_the_clients_that_its_rounds_need() -> None:
    alone = replace(collecting("ann"), roster=("ann",))
    with pytest.raises(InvalidTransition, match="without client ann the run has 0 of the 1 clients"):
        machine.retire(alone, "ann")
    with pytest.raises(InvalidTransition, match="without client ann round 1 has 0 of the 1 clients"):
        machine.retire(collecting("ann"), "ann")
    with pytest.raises(InvalidTransition, match="without client ann round 1 has 1 of the 2 clients"):
        machine.retire(collecting("ann", "bob"), "ann", min_clients=2)


def test_a_run_takes_a_bounded_number_of_admissions() -> None:
    run = replace(collecting("ann"), num_admissions=machine.MAX_ADMISSIONS)
    with pytest.raises(InvalidTransition, match="has taken 100000 admissions, the most that a run takes"):
        machine.enter(run, "zoe")
    with pytest.raises(InvalidTransition, match="begins with the clients that join first"):
        machine.enter(replace(a_run(status=RunStatus.PENDING), roster=(), current_round=None), "zoe")


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "retire", "forget", "quarantine", "release", "update"]), st.sampled_from(NAMES)
    ),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ACTIONS, min_size=1, max_size=6), st.sampled_from([None, 1, 2]))
def test_every_cohort_follows_from_the_configuration_and_the_events(
    schedule: list[list[tuple[str, str]]], cohort_size: int | None
) -> None:
    run = a_run(roster=NAMES[:2], current_round=a_round(0, RoundPhase.COMMITTED))
    roster, retired, quarantined = set(NAMES[:2]), set[str](), set[str]()
    for number, actions in enumerate(schedule, 1):
        if not machine.eligible(run):
            return
        run = machine.open_round(run, number, cohort_size=cohort_size, now=float(number))
        assert run.current_round is not None
        expected = sorted(roster - retired - quarantined)
        assert run.current_round.cohort == select_cohort(
            expected, seed=run.seed, round_number=number, cohort_size=cohort_size
        )
        cohort = run.current_round.cohort
        for action, name in actions:
            before = run
            try:
                run = applied(run, number, action, name)
            except (InvalidTransition, NotInCohort):
                assert run is before
                continue
            for event in events_between(before, run, now=1.0):
                if event.type == "client_admitted":
                    roster.add(event.client_id)
                    retired.discard(event.client_id)
                elif event.type == "client_retired":
                    retired.add(event.client_id)
                elif event.type == "client_quarantined":
                    quarantined.add(event.client_id)
                elif event.type == "client_released":
                    quarantined.discard(event.client_id)
            assert run.current_round is not None
            assert run.current_round.cohort == cohort, "who is asked is settled when the round opens"
            assert not set(machine.waited_for(run)) & (retired | quarantined)
        assert run.current_round is not None
        run = replace(run, current_round=replace(run.current_round, phase=RoundPhase.COMMITTED))


def applied(run: Run, number: int, action: str, name: str) -> Run:
    if action == "admit":
        return machine.enter(run, name)
    if action in ("retire", "forget"):
        return machine.retire(run, name, forgets=action == "forget") if name in run.roster else run
    if action == "quarantine":
        return machine.quarantine(run, name, "x")
    if action == "release":
        return machine.release(run, name)
    assert run.current_round is not None
    if run.current_round.phase is not RoundPhase.COLLECTING:
        return run
    return machine.add_update(run, number, an_update(name), now=2.0)
