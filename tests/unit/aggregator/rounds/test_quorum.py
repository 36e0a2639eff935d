"""Quorum, absence and quarantine as pure steps of rounds.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.machine import absences, members, opening, round_parts, round_waits, run_facts, run_moves
from fedplcc.aggregator.rounds.quorum import WHOLE_COHORT, Quorum
from fedplcc.aggregator.rounds.tasks import next_task, task_in
from fedplcc.shared.errors import NotInCohort
from fedplcc.shared.reasons import Dropped, DropReason, Lack, Parked, TooFewClients, sentence_of
from fedplcc.shared.types import Round, RoundPhase, Run, RunStatus, TaskKind
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update

COHORT = ("ann", "bob", "cat", "zoe")
TWO = Quorum(min_clients=2)
LOST = Dropped(DropReason.LOST, "not connected")


def collecting(*committed: str, **changes: Any) -> Run:
    """Round 1 of ann, bob, cat and zoe, with these updates."""
    updates = {name: an_update(name) for name in committed}
    return a_run(roster=COHORT, current_round=a_round(1, cohort=COHORT, updates=updates, **changes))


def evaluating(*committed: str, reported: tuple[str, ...] = (), **changes: Any) -> Run:
    """The same, past aggregation, with these reports."""
    fields: dict[str, Any] = {
        "updates": {name: an_update(name) for name in committed},
        "evaluations": {name: an_evaluation(name) for name in reported},
        "model": a_blob("new"),
        "prototypes": a_blob("new prototypes"),
    }
    return a_run(roster=COHORT, current_round=a_round(1, RoundPhase.EVALUATING, cohort=COHORT, **{**fields, **changes}))


def absent(*names: str) -> dict[str, Dropped]:
    return dict.fromkeys(names, LOST)


def the_round(run: Run) -> Round:
    assert run.current_round is not None
    return run.current_round


# What a quorum lacks


@pytest.mark.parametrize(
    ("quorum", "here", "lack"),
    [
        (WHOLE_COHORT, COHORT, None),
        (WHOLE_COHORT, COHORT[1:], Lack(clients=TooFewClients(3, 4))),
        (TWO, ("ann", "zoe"), None),
        (TWO, ("zoe",), Lack(clients=TooFewClients(1, 2))),
        (Quorum(domains={"ann": "x", "bob": "x", "cat": "y", "zoe": "z"}), ("bob", "cat", "zoe"), None),
        (Quorum(domains={"ann": "x", "bob": "x", "cat": "y", "zoe": "z"}), ("ann",), Lack(domains=("y", "z"))),
        (
            Quorum(min_clients=3, domains={"ann": "x", "bob": "x", "cat": "y", "zoe": "y"}),
            ("ann", "bob"),
            Lack(clients=TooFewClients(2, 3), domains=("y",)),
        ),
    ],
)
def test_a_quorum_names_the_clients_and_domains_that_it_lacks(
    quorum: Quorum, here: tuple[str, ...], lack: Lack | None
) -> None:
    assert quorum.lack(COHORT, here) == lack


@pytest.mark.parametrize("quorum", [WHOLE_COHORT, TWO, Quorum(domains={})])
def test_nobody_is_never_a_quorum(quorum: Quorum) -> None:
    assert quorum.lack((), ())


def test_nobody_is_dropped_if_the_others_cannot_make_it() -> None:
    run = collecting("ann")
    after = absences.drop_absent(run, absent=absent("bob", "cat", "zoe"), quorum=TWO, now=5.0)
    assert the_round(after) == the_round(run)
    assert sentence_of(after.reason) == (
        "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (lost: not connected), "
        "cat (lost: not connected), zoe (lost: not connected)"
    )
    assert run_facts.waits_for_quorum(after)
    assert absences.drop_absent(after, absent=absent("bob", "cat", "zoe"), quorum=TWO, now=6.0) is after
    failed = absences.drop_absent(run, absent=absent("bob", "cat", "zoe"), quorum=TWO, fails=True, now=5.0)
    assert (failed.status, failed.reason) == (RunStatus.FAILED, after.reason)


# Dropping


def test_a_long_list_of_the_missing_is_cut() -> None:
    names = tuple(f"client-{number:03}" for number in range(200))
    run = a_run(roster=names, current_round=a_round(1, cohort=names))
    reason = absences.drop_absent(run, absent=absent(*names), quorum=TWO, now=5.0).reason
    sentence = sentence_of(reason)
    assert "client-009 (lost" in sentence
    assert sentence.endswith(" and 190 more")
    assert "client-010" not in sentence


def test_the_whole_cohort_is_dropped_in_no_case() -> None:
    run = collecting("ann", "bob", "cat")
    after = absences.drop_absent(run, absent=absent("zoe"), now=5.0)
    assert (the_round(after).dropped, run_facts.waits_for_quorum(after)) == ({}, True)
    done = round_parts.add_update(after, 1, an_update("zoe"), now=6.0)
    assert (the_round(done).phase, sentence_of(done.reason)) == (RoundPhase.AGGREGATING, "")


def test_those_who_are_done_may_go() -> None:
    run = collecting("ann", "bob")
    after = absences.drop_absent(run, absent=absent(*COHORT), quorum=TWO, now=5.0)
    assert set(the_round(after).dropped) == {"cat", "zoe"}


def test_a_reason_is_kept_from_the_first_time() -> None:
    run = absences.drop_absent(
        collecting("ann"), absent={"zoe": Dropped(DropReason.SILENT, "since then")}, quorum=TWO, now=5.0
    )
    after = absences.drop_absent(run, absent={"zoe": LOST}, quorum=TWO, now=6.0)
    assert after is run


def test_dropped_clients_do_not_count_towards_the_quorum_until_they_move() -> None:
    run = absences.drop_absent(collecting("ann"), absent=absent("cat", "zoe"), quorum=TWO, now=5.0)
    waiting = absences.drop_absent(run, absent=absent("bob", "cat", "zoe"), quorum=TWO, now=6.0)
    assert waiting.reason is not None
    assert set(the_round(waiting).dropped) == {"cat", "zoe"}, "bob is still waited for"
    after = absences.drop_absent(waiting, absent=absent("bob", "cat"), moving=["zoe"], quorum=TWO, now=7.0)
    assert (after.reason, set(the_round(after).dropped)) == (None, {"bob", "cat"})


def test_who_gave_no_update_is_not_waited_for_to_report_but_may() -> None:
    run = evaluating("ann", "bob", dropped=absent("cat", "zoe"))
    assert round_waits.waited_for(run) == ("ann", "bob")
    run = round_parts.add_evaluation(run, 1, an_evaluation("zoe"))
    assert the_round(run).dropped == absent("cat", "zoe"), "its update is still missing"
    run = round_parts.add_evaluation(round_parts.add_evaluation(run, 1, an_evaluation("ann")), 1, an_evaluation("bob"))
    assert round_waits.is_evaluated(run, TWO)


def test_reports_need_the_quorum_too() -> None:
    run = evaluating("ann", "bob", reported=("ann",), dropped=absent("cat", "zoe"))
    waiting = absences.drop_absent(run, absent=absent("bob", "cat", "zoe"), quorum=TWO, now=5.0)
    assert sentence_of(waiting.reason).startswith(
        "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (lost"
    )
    run = round_parts.add_evaluation(waiting, 1, an_evaluation("cat"))
    assert not round_waits.is_evaluated(run, TWO), "bob is still waited for"
    run = absences.drop_absent(run, absent=absent("bob", "zoe"), quorum=TWO, now=6.0)
    assert round_waits.is_evaluated(run, TWO)
    assert (run.reason, set(the_round(run).dropped)) == (None, {"bob", "cat", "zoe"})


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not RunStatus.RUNNING])
def test_only_a_running_run_is_looked_at(status: RunStatus) -> None:
    run = replace(collecting("ann", "bob"), status=status)
    assert absences.drop_absent(run, absent=absent("cat", "zoe"), quorum=TWO, now=5.0) is run


def test_a_paused_run_closes_with_its_last_update_and_one_that_ends_does_not() -> None:
    run = collecting(*COHORT)
    assert the_round(round_parts.close_updates(replace(run, status=RunStatus.PAUSED), now=5.0)).phase == "aggregating"
    stopping = replace(run, status=RunStatus.STOPPING)
    assert round_parts.close_updates(stopping, now=5.0) is stopping


# Quarantine


def test_a_quarantined_client_is_out_of_the_open_round_and_of_every_later_one() -> None:
    run = collecting("ann", "bob", "cat")
    after = members.quarantine(run, "zoe", "three updates were refused")
    assert after.quarantined == {"zoe": "three updates were refused"}
    assert the_round(after).dropped == {"zoe": Dropped(DropReason.QUARANTINED, "three updates were refused")}
    assert [event.type for event in events_between(run, after, now=1.0)] == ["client_quarantined", "client_dropped"]
    closed = round_parts.close_updates(after, now=5.0)
    assert the_round(closed).phase is RoundPhase.AGGREGATING, "the whole cohort is without it now"
    with pytest.raises(NotInCohort, match="client zoe is quarantined in this run: three updates were refused"):
        round_parts.add_update(after, 1, an_update("zoe"), now=5.0)
    later = opening.open_round(after, 2, cohort_size=None, now=9.0)
    assert the_round(later).cohort == ("ann", "bob", "cat")
    assert later.roster == COHORT, "its operator still sees it there"
    assert task_in(after, "zoe") is None
    assert next_task([after], "zoe", None).detail.endswith("has quarantined this client: three updates were refused")


def test_what_a_quarantined_client_committed_stays_and_its_retry_is_answered_as_before() -> None:
    run = members.quarantine(collecting("ann", "zoe"), "zoe", "poison")
    assert the_round(run).dropped == {}
    assert round_parts.add_update(run, 1, an_update("zoe"), now=5.0) is run
    assert round_waits.waited_for(run) == ("bob", "cat")


def test_a_quarantined_client_is_not_waited_for_to_report() -> None:
    run = members.quarantine(evaluating(*COHORT, reported=("ann", "bob", "cat")), "zoe", "poison")
    assert round_waits.is_evaluated(run)


@pytest.mark.parametrize("quorum", [WHOLE_COHORT, Quorum(domains=dict(zip(COHORT, "xxyz", strict=True)))])
def test_a_client_that_is_released_after_its_round_went_on_without_it_need_not_report(quorum: Quorum) -> None:
    run = evaluating("ann", "bob", "cat", reported=("ann", "bob"))
    run = members.release(members.quarantine(run, "zoe", "poison"), "zoe")
    assert absences.drop_absent(run, absent={}, quorum=quorum, fails=True, now=5.0) is run
    assert round_waits.is_evaluated(round_parts.add_evaluation(run, 1, an_evaluation("cat")), quorum)
    reported = round_parts.add_evaluation(run, 1, an_evaluation("zoe"))
    assert not round_waits.is_evaluated(reported, quorum), "it may, and stands in for nobody"


def test_a_client_that_is_released_after_its_round_went_on_without_it_stays_dropped_from_it() -> None:
    run = round_parts.close_updates(members.quarantine(collecting("ann", "bob", "cat"), "zoe", "poison"), now=5.0)
    dropped = {"zoe": Dropped(DropReason.QUARANTINED, "poison")}
    released = members.release(run, "zoe")
    assert (released.quarantined, the_round(released).dropped) == ({}, dropped)
    run = members.quarantine(evaluating("ann", "bob", "cat"), "zoe", "poison")
    assert the_round(members.release(run, "zoe")).dropped == dropped
    run = members.quarantine(evaluating(*COHORT), "zoe", "poison")
    assert the_round(members.release(run, "zoe")).dropped == {}, "it counts, and its report is wanted again"
    run = members.quarantine(collecting("ann"), "zoe", "poison")
    assert the_round(members.release(run, "zoe")).dropped == {}, "its update is wanted again"


def test_a_quarantined_client_whose_update_leaves_the_round_is_dropped_from_it() -> None:
    run = members.quarantine(round_parts.close_updates(collecting(*COHORT), now=5.0), "zoe", "poison")
    assert the_round(run).dropped == {}, "its update counts"
    dropped = {"zoe": Dropped(DropReason.QUARANTINED, "poison")}
    assert the_round(round_parts.ask_again(run, 1, {"zoe": ("0" * 64,)}, now=6.0)).dropped == dropped
    parked = run_moves.park(run, Parked(round_number=1, detail="an error"))
    assert the_round(members.quarantine(parked, "zoe", "again")).dropped == dropped


def test_who_gave_no_update_is_named_where_only_its_report_can_make_the_quorum() -> None:
    run = evaluating("ann", "bob", reported=("ann",))
    run = replace(run, current_round=replace(the_round(run), dropped=absent("cat", "zoe")))
    after = absences.drop_absent(members.quarantine(run, "bob", "poison"), absent={}, quorum=TWO, now=5.0)
    assert sentence_of(after.reason) == (
        "round 1 has no quorum, 1 of the 2 clients that it needs; missing: cat (lost: not connected), "
        "zoe (lost: not connected); quarantined: bob"
    )
    assert absences.drop_absent(after, absent={}, quorum=TWO, now=6.0) is after
    assert round_waits.is_evaluated(round_parts.add_evaluation(after, 1, an_evaluation("cat")), TWO)


def test_quarantine_again_or_of_a_run_that_has_ended_changes_nothing() -> None:
    run = members.quarantine(collecting(), "zoe", "poison")
    assert members.quarantine(run, "zoe", "other") is run
    ended = replace(collecting(), status=RunStatus.COMPLETED)
    assert members.quarantine(ended, "zoe", "poison") is ended


def test_a_client_may_be_quarantined_before_it_ever_comes_and_between_rounds() -> None:
    run = members.quarantine(a_run(RunStatus.PENDING, roster=COHORT), "bob", "configured")
    assert run_facts.eligible(run) == ("ann", "cat", "zoe")
    assert the_round(opening.open_round(run, 1, cohort_size=None, now=1.0)).cohort == ("ann", "cat", "zoe")


def test_a_quorum_that_quarantine_makes_impossible_is_said_without_any_deadline() -> None:
    run = collecting("ann")
    for name in ("bob", "cat", "zoe"):
        run = members.quarantine(run, name, "poison")
    after = absences.drop_absent(run, absent={}, quorum=TWO, now=5.0)
    assert (
        sentence_of(after.reason)
        == "round 1 has no quorum, 1 of the 2 clients that it needs; quarantined: bob, cat, zoe"
    )


def test_a_run_without_any_client_says_so_and_goes_on_when_one_joins() -> None:
    committed = replace(the_round(evaluating(*COHORT)), phase=RoundPhase.COMMITTED)
    run = a_run(roster=("ann",), total_rounds=3, current_round=committed)
    run = members.quarantine(run, "ann", "poison")
    waiting = opening.next_step(run, cohort_size=None, now=1.0)
    assert (waiting.status, waiting.round_number) == (RunStatus.RUNNING, 1)
    assert sentence_of(waiting.reason) == "no client is left: every one of the roster is quarantined or has left"
    assert run_facts.waits_for_quorum(waiting)
    assert opening.next_step(waiting, cohort_size=None, now=2.0) is waiting
    assert opening.next_step(run, cohort_size=None, now=1.0, fails=True).status is RunStatus.FAILED
    opened = opening.next_step(members.admit(waiting, ["zoe"]), cohort_size=None, now=3.0)
    assert (the_round(opened).cohort, sentence_of(opened.reason)) == (("zoe",), "")


def test_the_first_model_is_not_asked_of_a_quarantined_client() -> None:
    run = members.quarantine(a_run(RunStatus.RUNNING, roster=COHORT), "ann", "poison")
    opened = opening.open_round(run, 0, cohort_size=None, now=1.0)
    assert the_round(opened).cohort == ("bob",)
    asked = absences.drop_absent(members.quarantine(opened, "bob", "poison"), absent=absent("cat"), now=7.0)
    assert (the_round(asked).cohort, set(the_round(asked).dropped)) == (("bob", "zoe"), {"bob"})
    assert the_round(asked).phase_started_at == {"initialising": 7.0}
    task = task_in(asked, "zoe")
    assert task is not None
    assert task.kind is TaskKind.INIT
    assert task_in(asked, "bob") is None
