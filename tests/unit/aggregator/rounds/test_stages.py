"""Cohorts, stages and what people do to them follow from the configuration and from recorded facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.aggregator.rounds.events import events_between
from fedplcc.aggregator.rounds.machine import opening, round_parts
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.tables.stream import StreamSection
from fedplcc.shared.errors import InvalidTransition, NotInCohort, UpdateConflict
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.types import BlobRef, Payload, Round, RoundPhase, Run, RunStatus, Update

NAMES = tuple(f"c{number}" for number in range(8))
STREAM = StreamSection(stages=3, rounds_per_stage=2, passes=2)
OF_A_PASS = StreamSection(stages=3, rounds_per_stage=2, passes=2, cohort="pass")
MANUAL = StreamSection(stages=3, advance="manual")


def a_run(roster: tuple[str, ...] = NAMES) -> Run:
    return Run(
        run_id="run-1",
        name="run",
        status=RunStatus.RUNNING,
        config_json="{}",
        config_hash="",
        method="fedavg",
        total_rounds=12,
        seed=0,
        roster=roster,
    )


def in_round(run: Run, number: int, stream: StreamSection, cohort_size: int | None = None) -> Run:
    done = Round(number=number - 1, phase=RoundPhase.COMMITTED, cohort=run.roster)
    return opening.open_round(replace(run, current_round=done), number, cohort_size=cohort_size, now=1.0, stream=stream)


def cohort(run: Run) -> tuple[str, ...]:
    assert run.current_round is not None
    return run.current_round.cohort


def an_update(name: str) -> Update:
    model = BlobRef("model", "a" * 64, 1)
    return Update(client_id=name, payload=Payload(tensor_groups=(model,)), num_examples=3)


def left(run: Run, name: str, *, stream: StreamSection = STREAM, cohort_size: int | None = None) -> Run:
    return opening.leave_stage(run, run.round_number, name, cohort_size=cohort_size, stream=stream, now=2.0)


def test_a_client_without_data_is_replaced_and_in_no_later_cohort_of_the_stage() -> None:
    run = in_round(a_run(), 3, STREAM, cohort_size=3)
    gone = cohort(run)[0]
    after = left(run, gone, cohort_size=3)
    others = tuple(name for name in NAMES if name != gone)
    assert cohort(after) == select_cohort(others, seed=0, round_number=3, cohort_size=3)
    assert set(cohort(run)) - {gone} < set(cohort(after)), "whoever has begun goes on"
    assert after.without_data == {gone: (2,)}
    for number in range(1, 13):
        is_of_stage = STREAM.place(number) in (STREAM.place(3), STREAM.place(9))
        assert (gone in cohort(in_round(after, number, STREAM))) != is_of_stage
    (event,) = [each for each in events_between(run, after, now=3.0) if each.type == "client_without_data"]
    assert (event.client_id, event.round, event.data) == (
        gone,
        3,
        {"stage": 2, "drawn": sorted(set(cohort(after)) - set(cohort(run)))},
    )


def test_a_cohort_of_a_pass_is_drawn_once_and_not_refilled() -> None:
    run = a_run()
    of_pass = {number: cohort(in_round(run, number, OF_A_PASS, cohort_size=4)) for number in range(1, 13)}
    assert len({of_pass[number] for number in range(1, 7)}) == 1
    assert of_pass[1] != of_pass[7]
    gone = of_pass[3][0]
    after = left(in_round(run, 3, OF_A_PASS, cohort_size=4), gone, stream=OF_A_PASS, cohort_size=4)
    assert cohort(after) == tuple(name for name in of_pass[3] if name != gone)
    assert cohort(in_round(after, 5, OF_A_PASS, cohort_size=4)) == of_pass[5]


def test_the_phase_closes_when_the_last_one_waited_for_has_no_data() -> None:
    run = in_round(a_run(("ann", "bob")), 1, STREAM)
    run = round_parts.add_update(run, 1, an_update("ann"), now=1.5)
    after = left(run, "bob")
    assert after.current_round is not None
    assert after.current_round.phase is RoundPhase.AGGREGATING


def test_a_run_fails_where_nobody_has_data_of_a_stage() -> None:
    run = left(in_round(a_run(("ann", "bob")), 1, STREAM), "ann")
    run = left(run, "bob")
    assert run.status is RunStatus.FAILED
    assert sentence_of(run.reason).startswith("no client has an image of stage 1 to train on")
    again = replace(run, status=RunStatus.RUNNING)
    assert in_round(again, 7, STREAM).status is RunStatus.FAILED


def test_who_has_committed_or_was_not_asked_does_not_leave() -> None:
    run = in_round(a_run(("ann", "bob")), 1, STREAM)
    run = round_parts.add_update(run, 1, an_update("ann"), now=1.5)
    with pytest.raises(UpdateConflict):
        left(run, "ann")
    with pytest.raises(NotInCohort):
        left(run, "eve")


def test_people_end_stages_one_after_another() -> None:
    run = in_round(a_run(), 4, MANUAL)
    once = opening.advance(run, MANUAL)
    assert once.stage_began == (5,)
    assert opening.advance(once, MANUAL) is once, "before round 5 has opened nothing changes"
    (event,) = events_between(run, once, now=3.0)
    assert (event.type, event.data) == ("stage_ended", {"stage": 1, "first_round": 5})
    last = opening.advance(in_round(once, 6, MANUAL), MANUAL)
    assert last.stage_began == (5, 7)
    with pytest.raises(InvalidTransition, match="in its last stage, 3"):
        opening.advance(in_round(last, 9, MANUAL), MANUAL)
    with pytest.raises(InvalidTransition, match="ends its stages by itself"):
        opening.advance(run, STREAM)
    with pytest.raises(InvalidTransition, match="completed"):
        opening.advance(replace(run, status=RunStatus.COMPLETED), MANUAL)
