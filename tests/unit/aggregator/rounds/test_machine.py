"""The two state machines of aggregator/rounds/machine/: what they allow, what they refuse, that they change nothing
in place.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedplcc.aggregator.rounds.machine import members, opening, round_parts, run_moves
from fedplcc.aggregator.rounds.machine.run_moves import RoundEvent, RunEvent
from fedplcc.shared.errors import FedplccError, InvalidTransition, RoundClosed
from fedplcc.shared.reasons import Parked, Stated, sentence_of
from fedplcc.shared.types import PrototypeCounts, RoundPhase, Run, RunStatus
from tests.support import present
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update

P, E = RunStatus, RunEvent

# The table of moves, written out again: a move that is added to or lost from the code's table must be changed here too.
ALLOWED = {
    (P.PENDING, E.ROSTER_MET): P.RUNNING,
    (P.RUNNING, E.PAUSE): P.PAUSED,
    (P.PAUSED, E.RESUME): P.RUNNING,
    (P.RUNNING, E.FINISH): P.COMPLETED,
    (P.PENDING, E.FAIL): P.FAILED,
    (P.RUNNING, E.FAIL): P.FAILED,
    (P.PAUSED, E.FAIL): P.FAILED,
    (P.PENDING, E.STOP): P.STOPPING,
    (P.RUNNING, E.STOP): P.STOPPING,
    (P.PAUSED, E.STOP): P.STOPPING,
    (P.STOPPING, E.ALL_IDLE): P.STOPPED,
    (P.PENDING, E.PARK): P.PAUSED,
    (P.RUNNING, E.PARK): P.PAUSED,
    (P.PAUSED, E.PARK): P.PAUSED,
    (P.PAUSED, E.WAIT): P.PENDING,
    (P.COMPLETED, E.EXTEND): P.RUNNING,
}
ROUND_ALLOWED = {
    (RoundPhase.INITIALISING, RoundEvent.COLLECTED): RoundPhase.COMMITTED,
    (RoundPhase.COLLECTING, RoundEvent.COLLECTED): RoundPhase.AGGREGATING,
    (RoundPhase.AGGREGATING, RoundEvent.AGGREGATED): RoundPhase.EVALUATING,
    (RoundPhase.AGGREGATING, RoundEvent.REOPENED): RoundPhase.COLLECTING,
    (RoundPhase.EVALUATING, RoundEvent.EVALUATED): RoundPhase.COMMITTED,
}
OPEN_PHASES = [phase for phase in RoundPhase if phase is not RoundPhase.COMMITTED]

COUNTS = PrototypeCounts(by_class=(1, 0, 1))


def a_round_in(phase: RoundPhase) -> Run:
    """A running run whose round 1 (round 0 where it initialises) is in this phase, with what belongs to it."""
    number = 0 if phase is RoundPhase.INITIALISING else 1
    current = a_round(number, phase)
    if phase in (RoundPhase.AGGREGATING, RoundPhase.EVALUATING, RoundPhase.COMMITTED):
        current = replace(current, updates={name: an_update(name) for name in current.cohort})
    if phase in (RoundPhase.EVALUATING, RoundPhase.COMMITTED):
        current = replace(current, model=a_blob("new"), prototypes=a_blob("new prototypes"))
    if phase is RoundPhase.COMMITTED:
        current = replace(current, evaluations={name: an_evaluation(name) for name in current.cohort})
    return a_run(current_round=current)


def committed(run: Run) -> Run:
    return round_parts.commit_round(run, results_json="{}", timings_json="{}", now=9.0)


def test_only_an_extension_leads_out_of_a_final_status() -> None:
    assert {status for status in RunStatus if status.is_final} == {P.COMPLETED, P.FAILED, P.STOPPED}
    assert [pair for pair in run_moves.RUN_TRANSITIONS if pair[0].is_final] == [(P.COMPLETED, E.EXTEND)]


def test_a_move_is_what_the_table_says() -> None:
    for status, event in itertools.product(RunStatus, RunEvent):
        if (status, event) in ALLOWED:
            moved = run_moves.move(a_run(status), event, reason=Stated("because"))
            assert (moved.status, moved.reason) == (ALLOWED[status, event], Stated("because"))
        else:
            with pytest.raises(InvalidTransition) as refused:
                run_moves.move(a_run(status), event)
            assert refused.value.metadata == {"run_id": "test-0000", "status": status.value}


def test_the_tables_are_the_design() -> None:
    assert dict(run_moves.RUN_TRANSITIONS) == ALLOWED
    assert dict(run_moves.ROUND_TRANSITIONS) == ROUND_ALLOWED


@pytest.mark.parametrize("phase", RoundPhase)
def test_a_round_is_committed_from_its_evaluation_only(phase: RoundPhase) -> None:
    run = a_round_in(phase)
    if phase is RoundPhase.EVALUATING:
        after = committed(run)
        assert after.current_round is not None
        assert after.current_round.phase is RoundPhase.COMMITTED
    else:
        with pytest.raises(InvalidTransition):
            committed(run)


@pytest.mark.parametrize("phase", RoundPhase)
def test_a_round_is_aggregated_once_and_only_when_it_waits_for_it(phase: RoundPhase) -> None:
    run = a_round_in(phase)
    if phase is RoundPhase.AGGREGATING:
        after = round_parts.aggregated(
            run, 1, model=a_blob("m"), prototypes=a_blob("p"), prototype_counts=COUNTS, now=5.0
        )
        assert after.current_round is not None
        assert (after.current_round.phase, after.current_round.model) == (RoundPhase.EVALUATING, a_blob("m"))
        assert after.model == run.model, "the run starts from its last committed model until the round commits"
        with pytest.raises(RoundClosed):
            round_parts.aggregated(run, 2, model=a_blob("m"), prototypes=a_blob("p"), prototype_counts=COUNTS, now=5.0)
    else:
        with pytest.raises(RoundClosed):
            round_parts.aggregated(run, 1, model=a_blob("m"), prototypes=a_blob("p"), prototype_counts=COUNTS, now=5.0)


def test_round_0_is_the_lowest_client_id_and_its_model_is_the_runs() -> None:
    run = opening.open_round(a_run(roster=("bob", "ann", "zoe"), model=None), 0, cohort_size=2, now=1.0)
    assert run.current_round is not None
    assert (run.current_round.cohort, run.current_round.phase) == (("ann",), RoundPhase.INITIALISING)
    update = an_update("ann")
    after = round_parts.add_update(run, 0, update, now=2.0)
    assert after.current_round is not None
    assert after.current_round.phase is RoundPhase.COMMITTED
    assert after.model == after.current_round.model == update.payload.tensor_groups[0]
    assert after.prototypes == after.current_round.prototypes == run.prototypes


def test_a_round_collects_until_its_whole_cohort_has_committed() -> None:
    run = a_round_in(RoundPhase.COLLECTING)
    run = round_parts.add_update(run, 1, an_update("bob"), now=3.0)
    assert run.current_round is not None
    assert run.current_round.phase is RoundPhase.COLLECTING
    run = round_parts.add_update(run, 1, an_update("ann"), now=4.0)
    assert run.current_round is not None
    assert run.current_round.phase is RoundPhase.AGGREGATING
    assert run.current_round.phase_started_at == {"collecting": 101.0, "aggregating": 4.0}


def test_a_run_whose_last_round_commits_completes_even_if_a_pause_waits() -> None:
    run = replace(a_round_in(RoundPhase.EVALUATING), total_rounds=1)
    run = committed(run_moves.pause(run, now=False))
    assert opening.next_step(run, cohort_size=None, now=1.0).status is P.COMPLETED


@pytest.mark.parametrize("status", RunStatus)
def test_a_run_can_be_stopped_from_every_status_and_twice(status: RunStatus) -> None:
    run = replace(a_round_in(RoundPhase.COLLECTING), status=status, is_pause_requested=True)
    stopped = run_moves.stop(run, reason="enough")
    if status is P.STOPPING or status.is_final:
        assert stopped is run
    else:
        assert (stopped.status, sentence_of(stopped.reason), stopped.is_pause_requested) == (
            P.STOPPING,
            "enough",
            False,
        )
    assert run_moves.stop(stopped, reason="again") is stopped
    assert (stopped.current_round, stopped.model) == (run.current_round, run.model), (
        "a stopped run keeps its last committed round"
    )


@pytest.mark.parametrize("status", [status for status in RunStatus if status is not P.RUNNING])
def test_a_run_that_does_not_run_goes_no_step(status: RunStatus) -> None:
    run = a_run(status)
    assert opening.next_step(run, cohort_size=None, now=1.0) is run


CHANGES: dict[str, Callable[[Run], object]] = {
    "move": lambda run: run_moves.move(run, RunEvent.STOP),
    "pause": lambda run: run_moves.pause(run, now=False),
    "pause now": lambda run: run_moves.pause(run, now=True),
    "resume": run_moves.resume,
    "stop": lambda run: run_moves.stop(run, reason="x"),
    "extend": lambda run: run_moves.extend(run, rounds=9, config_json="{}", config_hash="9"),
    "next step": lambda run: opening.next_step(run, cohort_size=None, now=1.0),
    "open round": lambda run: opening.open_round(run, 2, cohort_size=1, now=1.0),
    "admit": lambda run: members.admit(run, ["zoe"]),
    "add update": lambda run: round_parts.add_update(run, run.round_number, an_update("ann"), now=1.0),
    "aggregated": lambda run: round_parts.aggregated(
        run, 1, model=a_blob("m"), prototypes=a_blob("p"), prototype_counts=COUNTS, now=1.0
    ),
    "add evaluation": lambda run: round_parts.add_evaluation(run, 1, an_evaluation("ann")),
    "commit": committed,
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_function_changes_what_it_is_given(change: str) -> None:
    for phase in RoundPhase:
        run = a_round_in(phase)
        before = copy.deepcopy(run)
        with contextlib.suppress(FedplccError):  # a refusal must leave it alone too
            CHANGES[change](run)
        assert run == before, phase


class TestParked:
    PARKED = Parked(round_number=1, detail="a bug", clients=("bob",))

    @pytest.mark.parametrize("phase", OPEN_PHASES)
    def test_a_quarantine_removes_what_the_client_sent_in_the_open_phase(self, phase: RoundPhase) -> None:
        run = a_round_in(phase)
        assert run.current_round is not None
        sent = {name: an_update(name) for name in run.current_round.cohort}
        run = run_moves.park(replace(run, current_round=replace(run.current_round, updates=sent)), self.PARKED)
        after = present(members.quarantine(run, "bob", "it sent too large a number").current_round)
        assert "bob" not in after.updates
        assert "ann" in after.updates
        assert after.phase is (RoundPhase.COLLECTING if phase is RoundPhase.AGGREGATING else phase) or "bob" not in sent

    @pytest.mark.parametrize("phase", OPEN_PHASES)
    def test_it_takes_no_step_by_itself_and_a_resume_lets_it_go_on(self, phase: RoundPhase) -> None:
        run = run_moves.park(a_round_in(phase), self.PARKED)
        assert run.status is P.PAUSED
        assert round_parts.close_updates(run, now=5.0) is run
        assert run_moves.park(run, Parked(round_number=1, detail="another")) is run, (
            "the first error is the one to look at"
        )
        assert run_moves.pause(run, now=True) is run
        after = run_moves.resume(run)
        assert (after.status, after.reason) == (P.RUNNING, None)

    def test_a_late_update_is_kept_and_closes_nothing(self) -> None:
        run = run_moves.park(a_round_in(RoundPhase.COLLECTING), self.PARKED)
        for name in ("ann", "bob"):
            run = round_parts.add_update(run, 1, an_update(name), now=5.0)
        assert run.current_round is not None
        assert (run.current_round.phase, run.reason) == (RoundPhase.COLLECTING, self.PARKED)

    @pytest.mark.parametrize("status", [P.STOPPING, P.STOPPED, P.COMPLETED, P.FAILED])
    def test_a_run_that_ends_is_not_parked(self, status: RunStatus) -> None:
        run = a_run(status)
        assert run_moves.park(run, self.PARKED) is run
