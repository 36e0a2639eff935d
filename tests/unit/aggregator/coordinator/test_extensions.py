"""A completed run goes on to more rounds, and ends as the run that was longer from the start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.coordinator.extensions import MOST_STATES, longer, stateful
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import InvalidConfig, InvalidTransition, RequestIdReused, TooManyOpenRuns
from fedplcc.shared.methods import METHODS
from fedplcc.shared.steering import ExtendRun, StopRun
from fedplcc.shared.types import Run, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.records.method_settings import with_a_length
from tests.unit.aggregator.coordinator.test_best_round import Frugal, Validating

DAY_S = 86_400.0


def ended(
    federation: LocalFederation,
    method: str = "fedplcc",
    rounds: int = 2,
    hyper: Mapping[str, Any] | None = None,
    **sections: Any,
) -> Run:
    document = a_document(method, tuple(federation.clients), run={"rounds": rounds}, **sections)
    request_id = f"request {len(federation.coordinator.list_runs(limit=100))}"
    run = federation.coordinator.create_run(request_id, {**document, "method": dict(hyper or {})})
    return federation.run_to_end(run.run_id)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_an_extended_run_is_the_one_that_was_longer_from_the_start(method: str, federation: LocalFederation) -> None:
    hyper = with_a_length(METHODS[method], {})
    whole = ended(federation, method, rounds=5, hyper=hyper)
    run = ended(federation, method, rounds=2, hyper=hyper)
    federation.restart()
    extended = federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))
    assert (extended.status, extended.total_rounds, extended.round_number) == (RunStatus.RUNNING, 5, 3)
    federation.restart()
    extended = federation.run_to_end(run.run_id)
    assert extended.status is RunStatus.COMPLETED
    assert (extended.config_json, extended.config_hash) == (whole.config_json, whole.config_hash)
    assert federation.metrics_lines(run.run_id) == federation.metrics_lines(whole.run_id)
    assert extended.model == whole.model
    assert [event.data["rounds"] for event in federation.events(run.run_id, "run_extended")] == [5]


def test_a_request_that_is_repeated_extends_once(federation: LocalFederation) -> None:
    run = ended(federation)
    federation.coordinator.steer(run.run_id, ExtendRun(rounds=3), request_id="more")
    federation.run_to_end(run.run_id)
    again = federation.coordinator.steer(run.run_id, ExtendRun(rounds=3), request_id="more")
    assert (again.status, again.total_rounds) == (RunStatus.COMPLETED, 3)
    with pytest.raises(RequestIdReused):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=4), request_id="more")


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_more_rounds_are_more(rounds: int, federation: LocalFederation) -> None:
    run = ended(federation)
    with pytest.raises(InvalidConfig, match="the run has 2 rounds already; give the whole number"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=rounds))


def test_only_what_the_configuration_allows(federation: LocalFederation) -> None:
    document = parse_run_config(a_document(run={"rounds": 2, "keep_every": 1})).model_dump(mode="json")
    with pytest.raises(InvalidConfig, match="keep_every = 1 would keep the models of 101 rounds"):
        longer(document, 2, 101)
    with pytest.raises(InvalidConfig, match=r"run\.rounds = 100001"):
        longer(document, 2, 100_001)


def test_a_cosine_over_the_rounds_of_a_run_does_not_stretch(federation: LocalFederation) -> None:
    run = ended(federation, training={"schedule": "cosine"})
    with pytest.raises(InvalidConfig, match="fell over its 2 rounds"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=3))
    fixed = ended(federation, training={"schedule": "cosine", "schedule_rounds": 4, "warmup_rounds": 1})
    assert federation.coordinator.steer(fixed.run_id, ExtendRun(rounds=3)).status is RunStatus.RUNNING


def test_a_loss_that_changed_over_the_rounds_of_a_run_does_not_stretch(federation: LocalFederation) -> None:
    run = ended(federation, "fedproc")
    with pytest.raises(InvalidConfig, match=r"changed over this run's 2 rounds.* sets method\.anneal_rounds"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=3))
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.COMPLETED


def test_noise_that_was_for_the_rounds_of_a_run_does_not_stretch(federation: LocalFederation) -> None:
    """Three more releases beside three of epsilon 3 come to 3.8, and the run would say 3."""
    privacy = {"clip": 1.0, "epsilon": 3.0, "delta": 1e-5, "release_every": 1}
    document = parse_run_config(a_document("fedproto", privacy=privacy)).model_dump(mode="json")
    with pytest.raises(InvalidConfig, match="would come to more than it says"):
        longer(document, 2, 4)


def test_a_run_that_has_not_completed_does_not_go_on(federation: LocalFederation) -> None:
    run = federation.create("fedavg", run={"rounds": 2})
    with pytest.raises(InvalidTransition, match="only a completed run goes on"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))
    federation.coordinator.steer(run.run_id, StopRun())
    federation.step()
    with pytest.raises(InvalidTransition, match="is stopped: only a completed run goes on"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))


def test_a_run_that_stopped_early_names_the_better_way(tmp_path: Path) -> None:
    with Frugal(tmp_path, [Validating("ann"), Validating("bob")]) as federation:
        federation.join()
        run = federation.run_to_end(federation.create("fedavg", run={"rounds": 8, "patience": 2}).run_id)
        with pytest.raises(InvalidTransition, match=rf"run\.initial_model = run:{run.run_id}@4"):
            federation.coordinator.steer(run.run_id, ExtendRun(rounds=9))


def test_there_must_be_room_for_another_open_run(tmp_path: Path) -> None:
    clients = [NumpyClient("ann"), NumpyClient("bob")]
    with LocalFederation(tmp_path, clients, limits=Limits(max_open_runs=1)) as federation:
        federation.join()
        run = ended(federation)
        federation.create("fedavg")
        with pytest.raises(TooManyOpenRuns):
            federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))


def test_clients_keep_the_states_of_completed_runs_for_a_while(federation: LocalFederation) -> None:
    method = stateful()[0]
    run, other = ended(federation, method), ended(federation, "fedavg")
    ann = federation.clients["ann"]

    def named() -> set[str]:
        membership = federation.coordinator.join(ann.record, ann.token)
        return set(membership.open_runs)

    assert run.run_id in named()
    assert other.run_id not in named(), "its clients keep nothing"
    federation.clock.now += 8 * DAY_S
    assert run.run_id not in named()
    with pytest.raises(InvalidTransition, match=f"no longer have the models that {method} keeps with them"):
        federation.coordinator.steer(run.run_id, ExtendRun(rounds=5))
    assert federation.coordinator.steer(other.run_id, ExtendRun(rounds=5)).status is RunStatus.RUNNING


def test_the_number_of_kept_states_is_bounded(federation: LocalFederation) -> None:
    method = stateful()[0]
    first = ended(federation, method, rounds=1)
    for _ in range(MOST_STATES):
        federation.clock.now += 1.0
        ended(federation, method, rounds=1)
    ann = federation.clients["ann"]
    named = federation.coordinator.join(ann.record, ann.token).open_runs
    assert len(named) == MOST_STATES
    assert first.run_id not in named
