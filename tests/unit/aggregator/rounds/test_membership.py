"""Clients that come and go in a run: the cohorts follow from the events alone, and no round waits for a retired client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.aggregator.rounds import tasks
from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.machine import absences, members, opening, round_parts, round_waits, run_facts
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.shared.config.tables.stream import NO_STREAM
from fedplcc.shared.errors import InvalidTransition, NotInCohort
from fedplcc.shared.reasons import DropReason
from fedplcc.shared.types import PrototypeCounts, RoundPhase, Run, RunStatus
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update

NAMES = ("ann", "bob", "eve", "zoe")


def collecting(*cohort: str) -> Run:
    return a_run(roster=NAMES[:3], current_round=replace(a_round(1, RoundPhase.COLLECTING), cohort=cohort, updates={}))


def test_a_retired_client_leaves_the_open_round_and_the_others_close_it() -> None:
    run = members.retire(collecting("ann", "bob"), "bob")
    assert run.current_round is not None
    assert run.current_round.dropped["bob"].reason is DropReason.RETIRED
    assert tasks.task_in(run, "bob") is None
    with pytest.raises(NotInCohort, match="client bob was retired from this run"):
        round_parts.add_update(run, 1, an_update("bob"), now=1.0)
    closed = round_parts.add_update(run, 1, an_update("ann"), now=1.0).current_round
    assert closed is not None
    assert closed.phase is RoundPhase.AGGREGATING
    assert run_facts.eligible(run) == ("ann", "eve")
    assert run.roster == NAMES[:3], "it stays visible"


def test_a_client_that_was_admitted_again_does_not_return_to_the_open_round() -> None:
    run = members.enter(members.retire(collecting("ann", "bob"), "bob"), "bob")
    assert run_facts.eligible(run) == ("ann", "bob", "eve")
    assert round_waits.waited_for(run) == ("ann",)
    assert tasks.task_in(run, "bob") is None
    moving = absences.drop_absent(run, absent={}, moving=("bob",), quorum=WHOLE_COHORT, now=2.0)
    assert round_waits.waited_for(moving) == ("ann",)
    assert round_waits.waited_for(members.release(members.quarantine(run, "bob", "x"), "bob")) == ("ann",)
    with pytest.raises(NotInCohort):
        round_parts.add_update(run, 1, an_update("bob"), now=1.0)


@pytest.mark.parametrize("comes", ["released", "approved again", "undrawn"])
def test_a_round_that_is_left_with_too_few_asks_who_comes_and_no_other(comes: str) -> None:
    """Nothing else would end its wait: neither a release nor an owner's new yes brings anybody into an open round."""
    quorum, run = Quorum(min_clients=2), collecting("ann", "bob")
    if comes == "released":
        run = members.quarantine(members.quarantine(collecting("ann"), "bob", "x"), "eve", "x")
        run = members.release(absences.drop_absent(run, absent={}, quorum=quorum, now=1.0), "bob")
    else:
        run = members.retire(run, "bob", by_owner=True)
    if comes == "approved again":
        run = members.come_back(members.quarantine(run, "eve", "x"), "bob")
    asking = opening.asking_others(run, quorum=quorum, stream=NO_STREAM)
    assert round_waits.waited_for(asking) == ("ann", "eve" if comes == "undrawn" else "bob")
    assert opening.asking_others(asking, quorum=quorum, stream=NO_STREAM) is asking
    assert opening.asking_others(run, quorum=Quorum(min_clients=1), stream=NO_STREAM) is run


def test_what_a_retired_client_has_committed_stays_and_nobody_waits_for_its_report() -> None:
    run = round_parts.add_update(collecting("ann", "bob"), 1, an_update("bob"), now=1.0)
    run = round_parts.add_update(members.retire(run, "bob"), 1, an_update("ann"), now=2.0)
    assert run.current_round is not None
    assert set(run.current_round.updates) == {"ann", "bob"}
    run = evaluating(run)
    assert round_waits.waited_for(run) == ("ann",)
    assert not round_waits.is_evaluated(run, Quorum(min_clients=2))
    run = round_parts.add_evaluation(run, 1, an_evaluation("ann"))
    assert round_waits.is_evaluated(run, Quorum(min_clients=2))


def test_a_round_whose_every_reporter_was_retired_waits_for_none() -> None:
    run = round_parts.add_update(collecting("ann", "bob"), 1, an_update("bob"), now=1.0)
    run = members.retire(members.retire(run, "bob"), "ann")
    run = round_parts.close_updates(run, now=2.0)
    assert round_waits.is_evaluated(evaluating(run))


def evaluating(run: Run) -> Run:
    return round_parts.aggregated(
        run,
        1,
        model=a_blob("new"),
        prototypes=a_blob("new prototypes"),
        prototype_counts=PrototypeCounts(by_class=(1,)),
        now=3.0,
    )


def test_repeating_changes_nothing_and_makes_no_event() -> None:
    run = collecting("ann", "bob")
    assert members.enter(run, "ann") is run
    once = members.retire(run, "bob")
    assert members.retire(once, "bob") is once
    forgotten = members.retire(once, "bob", forgets=True)
    assert members.retire(forgotten, "bob") is forgotten
    assert [(e.type, e.client_id, e.data) for e in events_between(once, forgotten, now=1.0)] == [
        ("client_retired", "bob", {"forgets": True})
    ]
    back = members.enter(forgotten, "bob")
    assert members.enter(back, "bob") is back
    assert [(e.type, e.client_id) for e in events_between(forgotten, back, now=1.0)] == [("client_admitted", "bob")]
    assert back.retired["bob"].is_back, "what it sent before stays forgotten"
    assert members.enter(once, "bob").retired == {}


@pytest.mark.parametrize("status", [RunStatus.STOPPING, RunStatus.STOPPED, RunStatus.COMPLETED, RunStatus.FAILED])
def test_a_run_that_ends_is_refused_by_name(status: RunStatus) -> None:
    run = replace(collecting("ann", "bob"), status=status)
    for change in (members.enter, members.retire):
        with pytest.raises(InvalidTransition, match=f"the run is {status}; no client comes or goes any more"):
            change(run, "bob")


def test_a_run_keeps_the_clients_that_its_rounds_need() -> None:
    alone = replace(collecting("ann"), roster=("ann",))
    with pytest.raises(InvalidTransition, match="without client ann the run has 0 of the 1 clients"):
        members.retire(alone, "ann")
    with pytest.raises(InvalidTransition, match="without client ann round 1 has 0 of the 1 clients"):
        members.retire(collecting("ann"), "ann")
    with pytest.raises(InvalidTransition, match="without client ann round 1 has 1 of the 2 clients"):
        members.retire(collecting("ann", "bob"), "ann", min_clients=2)


def test_a_run_takes_a_bounded_number_of_admissions() -> None:
    run = replace(collecting("ann"), num_admissions=members.MAX_ADMISSIONS)
    with pytest.raises(InvalidTransition, match="has taken 100000 admissions, the most that a run takes"):
        members.enter(run, "zoe")
    with pytest.raises(InvalidTransition, match="begins with the clients that join first"):
        members.enter(replace(a_run(status=RunStatus.PENDING), roster=(), current_round=None), "zoe")
