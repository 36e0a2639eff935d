"""Answers to Join: which runs are to forget a client."""

from __future__ import annotations

import pytest

from fedplcc.aggregator.coordinator import memberships
from fedplcc.aggregator.coordinator.extensions import stateful
from fedplcc.shared.steering import AdmitClient, ExtendRun, RetireClient
from fedplcc.shared.types import CommittedRelease, Run
from tests.support.federation.in_process import LocalFederation


def begun(federation: LocalFederation) -> Run:
    """A run in its first round of training; ann has made its model."""
    run = federation.create("fedavg")
    ann = federation.clients["ann"]
    assert federation.perform(ann, federation.task(ann))
    return federation.coordinator.get_run(run.run_id)


def forgotten_of(federation: LocalFederation, client_id: str) -> list[tuple[str, int]]:
    client = federation.clients[client_id]
    named = federation.coordinator.join(client.record, client.token).forgotten_runs
    return [(each.run_id, each.round) for each in named]


def test_an_answer_to_join_names_the_runs_that_forget_the_client_and_no_run_that_may_go_on(
    federation: LocalFederation,
) -> None:
    may_go_on = federation.create(stateful()[0])
    federation.run_to_end(may_go_on.run_id)
    stays, forgets = begun(federation), begun(federation)
    federation.coordinator.steer(stays.run_id, RetireClient("ann"))
    assert forgotten_of(federation, "ann") == []
    federation.coordinator.steer(forgets.run_id, RetireClient("ann", forgets=True))
    named = [(forgets.run_id, federation.coordinator.get_run(forgets.run_id).round_number)]
    assert forgotten_of(federation, "ann") == named
    assert forgotten_of(federation, "bob") == []
    federation.restart()
    federation.join()
    assert forgotten_of(federation, "ann") == named
    for run in (stays, forgets):
        federation.run_to_end(run.run_id)
    assert forgotten_of(federation, "ann") == named, "also after the run has ended"
    federation.coordinator.delete_run(forgets.run_id)
    assert forgotten_of(federation, "ann") == named, "and after it was deleted"
    federation.coordinator.steer(may_go_on.run_id, ExtendRun(rounds=5))
    assert forgotten_of(federation, "ann") == named


def test_a_client_that_is_admitted_again_is_to_forget_what_it_kept_before(federation: LocalFederation) -> None:
    run = begun(federation)
    federation.coordinator.steer(run.run_id, RetireClient("ann", forgets=True))
    number = federation.coordinator.get_run(run.run_id).round_number
    federation.coordinator.steer(run.run_id, AdmitClient("ann"))
    assert forgotten_of(federation, "ann") == [(run.run_id, number)]


def test_the_newest_runs_that_forget_a_client_are_named_and_no_more_than_a_trainer_takes(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memberships, "MAX_FORGOTTEN_RUNS", 2)
    names = []
    for _ in range(3):
        federation.clock.now += 1.0
        run = begun(federation)
        federation.coordinator.steer(run.run_id, RetireClient("ann", forgets=True))
        federation.join()
        names.append(run.run_id)
    assert [run_id for run_id, _ in forgotten_of(federation, "ann")] == names[:0:-1]
    for run_id in names:
        federation.run_to_end(run_id)
    assert len(forgotten_of(federation, "ann")) == 2


def test_the_last_release_of_a_client_is_told_also_after_runs_without_noise(federation: LocalFederation) -> None:
    ann = federation.clients["ann"]
    assert federation.coordinator.join(ann.record, ann.token).last_release is None
    privacy = {"clip": 1.0, "epsilon": 3.0, "delta": 1e-5, "release_every": 1}
    run = federation.create("fedproto", privacy=privacy)
    federation.run_to_end(run.run_id)
    federation.run_to_end(federation.create("fedavg").run_id)
    federation.restart()
    told = CommittedRelease(run.run_id, run.config_hash, 2)
    assert federation.coordinator.join(ann.record, ann.token).last_release == told
    federation.coordinator.delete_run(run.run_id)
    assert federation.coordinator.join(ann.record, ann.token).last_release is None
