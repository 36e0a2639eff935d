"""Clients that come and go by plan, in whole runs of numpy clients."""

from __future__ import annotations

from pathlib import Path

from fedplcc.aggregator.rounds.machine import members
from fedplcc.shared.config.tables.membership import MembershipSection
from fedplcc.shared.steering import AdmitClient, RetireClient
from fedplcc.shared.types import Retired, RoundPhase, Run, RunStatus
from fedplcc.state.replay import replay
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.records.builders import a_round, a_run

PLAN = {"ann": "-3", "cat": "3-", "bob": "1-4"}


def three(folder: Path) -> LocalFederation:
    folder.mkdir(exist_ok=True)
    return LocalFederation(folder, [NumpyClient("ann"), NumpyClient("bob", counts=(2, 0, 1)), NumpyClient("cat")])


def cohorts(federation: LocalFederation, run_id: str) -> list[tuple[str, ...]]:
    return [current.cohort for current in federation.coordinator.list_rounds(run_id)]


def test_a_roster_follows_its_plan_and_history_says_so(tmp_path: Path) -> None:
    with three(tmp_path) as federation:
        federation.join()
        run = federation.create("fedplcc", run={"rounds": 5, "clients": ["ann", "bob", "cat"]}, membership=PLAN)
        assert run.roster == ("ann", "bob")
        ended = federation.run_to_end(run.run_id)
        assert ended.status is RunStatus.COMPLETED
        assert cohorts(federation, run.run_id) == [
            ("ann",), ("ann", "bob"), ("ann", "bob"), ("ann", "bob", "cat"), ("bob", "cat"), ("cat",),
        ]  # fmt: skip
        told = [(event.type, event.client_id, event.round) for event in federation.events(run.run_id)]
        assert [each for each in told if each[0] in ("client_admitted", "client_retired")] == [
            ("client_admitted", "cat", 2),
            ("client_retired", "ann", 3),
            ("client_retired", "bob", 4),
        ]
        assert all(replay(tmp_path, run.run_id, number).is_equal for number in range(1, 6))


def test_a_run_that_begins_with_whoever_joins_keeps_those_out_whose_time_has_not_come(tmp_path: Path) -> None:
    with three(tmp_path) as federation:
        federation.join()
        run = federation.create("fedavg", run={"rounds": 5, "clients": None, "min_clients": 2}, membership=PLAN)
        federation.run_to_end(run.run_id)
        assert cohorts(federation, run.run_id)[1:] == [
            ("ann", "bob"), ("ann", "bob"), ("ann", "bob", "cat"), ("bob", "cat"), ("cat",),
        ]  # fmt: skip


def test_a_person_has_the_last_word_between_the_borders_of_a_plan(tmp_path: Path) -> None:
    with three(tmp_path) as federation:
        federation.join()
        run = federation.create("fedavg", run={"rounds": 5, "clients": ["ann", "bob", "cat"]}, membership={"cat": "3-"})
        while federation.coordinator.get_run(run.run_id).round_number < 1:
            federation.step()
        federation.coordinator.steer(run.run_id, AdmitClient("cat"))
        while federation.coordinator.get_run(run.run_id).round_number < 4:
            federation.step()
        federation.coordinator.steer(run.run_id, RetireClient("cat"))
        federation.run_to_end(run.run_id)
        assert [("cat" in cohort) for cohort in cohorts(federation, run.run_id)] == [
            False,
            False,
            True,
            True,
            True,
            False,
        ]


def test_a_client_whose_time_is_over_does_not_come_back_by_its_owners_yes() -> None:
    plan = MembershipSection.model_validate({"cat": "-3"})

    def left_at(number: int) -> Run:
        run = a_run(roster=("ann", "cat"), current_round=a_round(number, RoundPhase.COMMITTED))
        return members.follow_plan(members.retire(run, "cat", by_owner=True), plan, has_roster=True)

    assert members.come_back(left_at(2), "cat").retired == {}
    over = left_at(3)
    assert members.come_back(over, "cat") is over


def test_a_plan_takes_no_forgetting_back(tmp_path: Path) -> None:
    with three(tmp_path) as federation:
        federation.join()
        document = {"run": {"rounds": 5, "clients": ["ann", "bob", "cat"]}, "membership": {"cat": "-4"}}
        run_id = federation.create("fedavg", **document).run_id
        while federation.coordinator.get_run(run_id).round_number < 1:
            federation.step()
        federation.coordinator.steer(run_id, RetireClient("cat", forgets=True))
        federation.coordinator.steer(run_id, AdmitClient("cat"))
        federation.join()
        ended = federation.run_to_end(run_id)
        assert ended.retired["cat"] == Retired(round=4, is_forgotten=True)


def test_an_aggregator_that_starts_again_at_every_step_follows_the_same_plan(tmp_path: Path) -> None:
    found = []
    for name in ("undisturbed", "killed"):
        with three(tmp_path / name) as federation:
            federation.join()
            document = {"run": {"rounds": 5, "clients": ["ann", "bob", "cat"]}, "membership": PLAN}
            run_id = federation.create("fedplcc", **document).run_id
            while not federation.coordinator.get_run(run_id).status.is_final:
                federation.step()
                if name == "killed":
                    federation.start_again()
                    federation.join()
            found.append(federation.metrics_lines(run_id))
    assert found[0] == found[1]
