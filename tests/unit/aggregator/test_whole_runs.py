"""Whole runs of numpy clients on the real coordinator, store and blobs, compared with what they must come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.rounds.selection import select_cohort
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.reasons import sentence_of
from fedplcc.shared.types import RunStatus, Task, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document
from tests.support.oracles.federation_result import expected

METHODS = ["fedavg", "fedplcc"]


def clients() -> list[NumpyClient]:
    return [NumpyClient("ann"), NumpyClient("bob", counts=(2, 0, 7)), NumpyClient("zoe", counts=(1, 9, 1))]


@pytest.fixture
def federation(folder: Path) -> Iterator[LocalFederation]:
    with LocalFederation(folder, clients()) as federation:
        yield federation


@pytest.mark.parametrize("method", METHODS)
def test_every_round_comes_to_what_numpy_says(federation: LocalFederation, method: str) -> None:
    federation.join()
    run = federation.create(method, run={"rounds": 3})
    run = federation.run_to_end(run.run_id)
    assert run.status is RunStatus.COMPLETED
    right = expected(parse_run_config(json.loads(run.config_json)), clients())
    found = federation.coordinator.list_rounds(run.run_id)
    assert [current.model.sha256 for current in found if current.model] == list(right.models)
    assert [current.prototypes.sha256 for current in found if current.prototypes] == list(right.prototypes)
    assert run.model == found[-1].model
    assert run.prototypes == found[-1].prototypes


def test_a_metrics_line_holds_what_was_computed_and_no_seconds(federation: LocalFederation) -> None:
    federation.join()
    run = federation.run_to_end(federation.create("fedplcc").run_id)
    lines = [json.loads(line) for line in federation.metrics_lines(run.run_id)]
    assert [line["round"] for line in lines] == [1, 2]
    assert set(lines[0]) == {
        *("round", "accuracy", "loss", "prototypes", "model_sha256", "prototypes_sha256"),
        *("num_examples", "num_excluded", "cohort"),
    }
    assert set(lines[0]["accuracy"]) == {"ann-domain", "bob-domain", "zoe-domain", "mean", "worst"}
    assert lines[0]["prototypes"]["local"] == sum(
        len(client.prototypes(Task(kind=TaskKind.TRAIN, round=1))) for client in clients()
    )
    assert 3 <= lines[0]["prototypes"]["global"] <= lines[0]["prototypes"]["local"]
    assert lines[0]["num_examples"] == 32
    assert lines[1]["loss"] == {"ce": 0.5}


def test_the_history_of_a_run_says_everything_once_and_in_order(federation: LocalFederation) -> None:
    federation.join()
    run = federation.run_to_end(federation.create("fedavg", run={"rounds": 1}).run_id, ["zoe", "ann", "bob"])
    history = [(event.type, event.round, event.client_id) for event in federation.events(run.run_id)]
    assert history == [
        ("run_created", -1, ""),
        ("run_started", -1, ""),
        ("round_opened", 0, ""),
        ("update_committed", 0, "ann"),
        ("round_committed", 0, ""),
        ("round_opened", 1, ""),
        ("update_committed", 1, "bob"),
        ("update_committed", 1, "zoe"),
        ("update_committed", 1, "ann"),
        ("round_aggregating", 1, ""),
        ("round_evaluating", 1, ""),
        ("evaluation_reported", 1, "zoe"),
        ("evaluation_reported", 1, "ann"),
        ("evaluation_reported", 1, "bob"),
        ("round_committed", 1, ""),
        ("run_completed", 1, ""),
    ]
    (committed,) = [event for event in federation.events(run.run_id, "round_committed") if event.round == 1]
    assert committed.data["metrics"] == json.loads(federation.metrics_lines(run.run_id)[0])


def test_a_run_waits_for_its_roster_and_says_so(federation: LocalFederation) -> None:
    run = federation.create()
    assert (run.status, sentence_of(run.reason)) == (RunStatus.PENDING, "waiting for clients to join")
    first, *others = federation.clients.values()
    federation.coordinator.join(first.record, first.token)
    assert federation.task(first).detail == f"run {run.run_id} is pending"
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.PENDING
    for client in others:
        federation.coordinator.join(client.record, client.token)
    run = federation.coordinator.get_run(run.run_id)
    assert (run.status, sentence_of(run.reason), run.round_number) == (RunStatus.RUNNING, "", 0)
    assert federation.task(first).kind is TaskKind.INIT


def test_a_client_whose_lease_ran_out_does_not_start_a_run(federation: LocalFederation) -> None:
    federation.join()
    federation.clock.now += Limits().lease_s + 1
    run = federation.create()
    assert run.status is RunStatus.PENDING
    federation.join()
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.RUNNING


def a_run_of_at_least(count: int, **run: object) -> dict[str, object]:
    document = a_document(run={"min_clients": count, **run})
    del document["run"]["clients"]
    return document


def test_a_client_that_comes_late_takes_part_from_the_next_round_on_and_is_named(folder: Path) -> None:
    everybody = clients()
    with LocalFederation(folder, everybody[:2]) as federation:
        federation.join()
        run = federation.coordinator.create_run("r", a_run_of_at_least(2, rounds=3))
        assert (run.status, run.roster) == (RunStatus.RUNNING, ("ann", "bob"))
        while federation.coordinator.get_run(run.run_id).round_number < 1:
            federation.step()
        late = everybody[2]
        federation.clients["zoe"] = late
        federation.coordinator.join(late.record, late.token)
        run = federation.coordinator.get_run(run.run_id)
        assert run.roster == ("ann", "bob"), "not before the round's end"
        assert federation.task(late).kind is TaskKind.WAIT
        run = federation.run_to_end(run.run_id)
        cohorts = [current.cohort for current in federation.coordinator.list_rounds(run.run_id)]
        assert cohorts == [("ann",), ("ann", "bob"), ("ann", "bob", "zoe"), ("ann", "bob", "zoe")]
        (admitted,) = federation.events(run.run_id, "clients_admitted")
        assert set(admitted.data["clients"]) == {"zoe"}
        boundary = [
            event.type for event in federation.events(run.run_id) if abs(event.sequence - admitted.sequence) <= 1
        ]
        assert boundary == ["round_committed", "clients_admitted", "round_opened"]
        assert set(federation.coordinator.manifest(run)["clients"]) == {"ann", "bob", "zoe"}
        right = expected(parse_run_config(json.loads(run.config_json)), everybody, cohorts[1:])
        assert run.model is not None
        assert run.model.sha256 == right.models[-1]


def test_a_run_of_at_least_some_clients_starts_with_everybody_who_is_there(federation: LocalFederation) -> None:
    federation.join()
    run = federation.coordinator.create_run("r", a_run_of_at_least(1))
    assert run.roster == ("ann", "bob", "zoe")
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_a_cohort_of_some_is_drawn_from_seed_round_and_roster(federation: LocalFederation) -> None:
    federation.join()
    run = federation.create(run={"rounds": 6, "cohort_size": 2, "seed": 11})
    run = federation.run_to_end(run.run_id)
    found = [current.cohort for current in federation.coordinator.list_rounds(run.run_id, after=0)]
    assert found == [select_cohort(run.roster, seed=11, round_number=number, cohort_size=2) for number in range(1, 7)]
    assert len(set(found)) > 1
    right = expected(parse_run_config(json.loads(run.config_json)), clients(), found)
    assert run.model is not None
    assert run.model.sha256 == right.models[-1]
