"""Leases and instance tokens: who acts for a client, and for how long."""

from __future__ import annotations

import pytest

from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.shared.errors import ClientIdTaken, NotAMember
from fedplcc.shared.types import MODEL, BlobRef, ClientActivity, ClientProblem, Heartbeat, RunSpec, Task, TaskKind
from tests.support.clock import Clock
from tests.support.records.builders import a_client


def a_task(run_id: str = "run") -> Task:
    return Task(kind=TaskKind.TRAIN, run=RunSpec(run_id=run_id, config_json="{}", config_hash=""), round=1)


LEASE_S = 10.0
BLOB = BlobRef(MODEL, "ab" * 32, 10)


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    sessions = Sessions(LEASE_S, clock)
    sessions.join(a_client("ann"), "first")
    return sessions


def test_what_a_call_records_while_the_same_instance_joins_again_is_kept(sessions: Sessions) -> None:
    problem = ClientProblem(reason="UNREADABLE_FILES", detail="1 of the files", hint="mend it", is_fatal=False)
    in_hand = sessions.check("ann", "first")
    sessions.join(a_client("ann", num_examples=3), "first")
    sessions.record_problem(in_hand, problem)
    after = sessions.check("ann", "first")
    assert (after.problem, after.client.num_examples) == (problem, 3)


def test_another_token_takes_over_when_the_lease_has_run_out_and_starts_without_a_task(
    sessions: Sessions, clock: Clock
) -> None:
    sessions.check("ann", "first").task = a_task()
    clock.now = 110.1
    after = sessions.join(a_client("ann"), "second")
    assert (after.token, after.task) == ("second", None)
    with pytest.raises(ClientIdTaken):
        sessions.check("ann", "first")


def test_who_has_finished_a_runs_task_is_idle_until_it_says_otherwise(sessions: Sessions) -> None:
    session = sessions.check("ann", "first")
    training = Heartbeat(client_id="ann", activity=ClientActivity.TRAINING, run_id="run", readings={"loss": 1.0})
    sessions.record_heartbeat(session, training)
    session.has_worked("another")
    assert session.heartbeat == training
    session.has_worked("run")
    assert session.heartbeat == Heartbeat(client_id="ann", readings={"loss": 1.0})


def test_every_call_extends_the_lease(sessions: Sessions, clock: Clock) -> None:
    for now in range(100, 150, 9):
        clock.now = float(now)
        sessions.check("ann", "first")
        assert not sessions.end_expired()
    clock.now = 155.0  # the last call was at 145
    assert sessions.connected() == ["ann"]
    assert sessions.is_connected("ann")
    clock.now = 155.1
    assert sessions.connected() == []
    assert not sessions.is_connected("ann")
    (gone,) = sessions.end_expired()
    assert gone.client.client_id == "ann"
    with pytest.raises(NotAMember):
        sessions.check("ann", "first")


def test_a_refused_call_extends_no_lease(sessions: Sessions, clock: Clock) -> None:
    clock.now = 109.0
    with pytest.raises(ClientIdTaken):
        sessions.check("ann", "second")
    clock.now = 111.0
    assert not sessions.is_connected("ann")


def test_a_client_works_for_the_run_it_was_given_or_says_it_computes_for(sessions: Sessions) -> None:
    session = sessions.check("ann", "first")
    assert not session.works_for("run")
    session.task = a_task("run")
    assert session.works_for("run")
    assert not session.works_for("other")
    session.task = None
    session.heartbeat = Heartbeat(client_id="ann", activity=ClientActivity.TRAINING, run_id="run", round=1)
    assert session.works_for("run")


def test_a_client_that_says_it_is_idle_works_for_no_run_that_it_still_names(sessions: Sessions) -> None:
    session = sessions.check("ann", "first")
    session.heartbeat = Heartbeat(client_id="ann", activity=ClientActivity.IDLE, run_id="run", round=1)
    assert not session.works_for("run")


def test_a_download_that_moves_keeps_the_lease_of_its_own_instance_alone(sessions: Sessions, clock: Clock) -> None:
    clock.now += LEASE_S
    sessions.record_download("ann", "first", BLOB, 1)
    clock.now += LEASE_S
    sessions.record_download("ann", "another", BLOB, 1)
    sessions.record_download("bob", "unknown", BLOB, 1)
    assert sessions.connected() == ["ann"]
    clock.now += 0.1
    assert sessions.connected() == []
