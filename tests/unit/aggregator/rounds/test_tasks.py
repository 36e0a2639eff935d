"""A client's task follows from the runs' states alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedplcc.aggregator.rounds.tasks import MAX_IDLE_REASONS, has_done_its_part, next_task, spec_of, task_in
from fedplcc.shared.convert.tasks import task_from_proto, task_to_proto
from fedplcc.shared.reasons import IdleReason
from fedplcc.shared.types import RoundPhase, Run, RunStatus, TaskKind
from tests.support import present
from tests.support.records.builders import a_blob, a_round, a_run, an_evaluation, an_update

IN_PHASE = {
    RoundPhase.INITIALISING: TaskKind.INIT,
    RoundPhase.COLLECTING: TaskKind.TRAIN,
    RoundPhase.EVALUATING: TaskKind.EVALUATE,
}


def in_phase(phase: RoundPhase, **changes: object) -> Run:
    number = 0 if phase is RoundPhase.INITIALISING else 1
    return a_run(current_round=a_round(number, phase, model=a_blob("new"), **changes))


@pytest.mark.parametrize("phase", IN_PHASE)
def test_the_phase_of_the_round_decides_what_a_client_does(phase: RoundPhase) -> None:
    task = present(task_in(in_phase(phase), "ann"))
    assert (task.kind, task.round) == (IN_PHASE[phase], 0 if phase is RoundPhase.INITIALISING else 1)


def test_the_oldest_run_with_work_comes_first() -> None:
    older = replace(in_phase(RoundPhase.COLLECTING), run_id="older")
    newer = replace(in_phase(RoundPhase.COLLECTING), run_id="newer")
    assert next_task([older, newer], "ann", None).key == ("older", 1, TaskKind.TRAIN, 0)
    paused = replace(older, status=RunStatus.PAUSED)
    assert next_task([paused, newer], "ann", None).key == ("newer", 1, TaskKind.TRAIN, 0)


def test_a_client_keeps_the_work_it_has_when_an_older_run_comes_back() -> None:
    older = replace(in_phase(RoundPhase.COLLECTING), run_id="older")
    newer = replace(in_phase(RoundPhase.COLLECTING), run_id="newer")
    given = next_task([newer], "ann", None)
    assert next_task([older, newer], "ann", given).key == given.key


def test_the_client_of_a_stopping_run_is_told_to_stop_until_it_has_other_work() -> None:
    run = in_phase(RoundPhase.COLLECTING)
    given = next_task([run], "ann", None)
    stopping = replace(run, status=RunStatus.STOPPING)
    told = next_task([stopping], "ann", given)
    assert (told.kind, told.run) == (TaskKind.STOP, spec_of(run))
    assert next_task([stopping], "ann", told).kind is TaskKind.STOP
    assert next_task([stopping], "ann", None).kind is TaskKind.WAIT, "who had no work of it needs no telling"
    other = replace(run, run_id="other")
    assert next_task([stopping, other], "ann", given).key == ("other", 1, TaskKind.TRAIN, 0)


@pytest.mark.parametrize("phase", [*IN_PHASE, RoundPhase.AGGREGATING])
def test_a_client_waits_for_the_others_alone_where_every_open_round_has_its_part(phase: RoundPhase) -> None:
    done = in_phase(phase, updates={"ann": an_update("ann")}, evaluations={"ann": an_evaluation("ann")})
    dropped = in_phase(phase, cohort=("bob",), updates={"bob": an_update("bob")})
    assert has_done_its_part([done], "ann")
    assert not has_done_its_part([dropped], "ann"), "it may still train"
    assert not has_done_its_part([done, replace(dropped, run_id="other")], "ann")
    assert not has_done_its_part([replace(done, status=RunStatus.PAUSED)], "ann")
    assert not has_done_its_part([], "ann")


def test_a_client_that_waits_is_told_why() -> None:
    assert next_task([], "ann", None).detail == "no run names this client"
    assert next_task([in_phase(RoundPhase.COLLECTING)], "eve", None).detail == "no run names this client"
    assert next_task([a_run(RunStatus.PENDING)], "ann", None).detail == "run test-0000 is pending"
    assert next_task([in_phase(RoundPhase.AGGREGATING)], "ann", None).detail == "run test-0000: round 1 is aggregating"


def test_a_client_that_waits_is_told_the_reason_of_each_run_by_name() -> None:
    runs = [
        replace(in_phase(RoundPhase.AGGREGATING), run_id="goes-on"),
        a_run(RunStatus.PAUSED, run_id="paused"),
        a_run(run_id="about-to-begin"),
        a_run(run_id="without-ann", quarantined={"ann": "broken scanner"}),
    ]
    task = next_task(runs, "ann", None)
    assert task.kind is TaskKind.WAIT
    assert task.idle_reasons == {
        "goes-on": IdleReason.IN_ROUND,
        "paused": IdleReason.PAUSED,
        "about-to-begin": IdleReason.RUNNING,
        "without-ann": IdleReason.QUARANTINED,
    }
    assert next_task([in_phase(RoundPhase.COLLECTING)], "ann", None).idle_reasons == {}


def test_the_reasons_of_any_number_of_runs_pass_the_wire() -> None:
    runs = [a_run(RunStatus.PENDING, run_id=f"run-{number}") for number in range(300)]
    task = next_task(runs, "ann", None)
    assert list(task.idle_reasons) == [run.run_id for run in runs[:MAX_IDLE_REASONS]]
    assert task_from_proto(task_to_proto(task)) == task
