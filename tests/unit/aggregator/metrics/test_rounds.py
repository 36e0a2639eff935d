"""Metrics of rounds and runs through a coordinator: ages, phases, results, and all of them after a restart."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from fedplcc.aggregator.metrics.round_times import Phase
from fedplcc.aggregator.metrics.rounds import RESULTS
from fedplcc.aggregator.metrics.runs import KEEP_ENDED_S, MAX_RUNS
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.steering import PauseRun, ResumeRun, StopRun
from fedplcc.shared.types import ClientActivity, RoundPhase, Run, RunStatus
from tests.support import present
from tests.support.federation.in_process import LocalFederation

ROUNDS = {"rounds": 3}


def results(federation: LocalFederation) -> dict[str, int]:
    """Rounds by result, those that occurred."""
    counted = {result: federation.metric("rounds_total", result=result) for result in RESULTS}
    return {result: int(count) for result, count in counted.items() if count}


def statuses(federation: LocalFederation, run: Run) -> set[tuple[str, str]]:
    """What is shown of a run's status, and of what it waits for."""
    return {
        (sample.labels["status"], sample.labels["waits_for"])
        for family in federation.registry.collect()
        for sample in family.samples
        if sample.name == "fedplcc_run_status" and sample.labels["run"] == run.run_id
    }


def round_of(federation: LocalFederation, run: Run, number: int) -> Run:
    """Step until this round is open."""
    while (now := federation.coordinator.get_run(run.run_id)).round_number < number:
        federation.step()
    return now


def phases(federation: LocalFederation) -> dict[str, float]:
    sums = {
        phase.value: federation.metric("round_phase_duration_seconds_sum", phase=phase.value) or 0.0 for phase in Phase
    }
    assert sum(sums.values()) == pytest.approx(federation.metric("round_duration_seconds_sum"))
    return {phase: round(seconds, 6) for phase, seconds in sums.items() if seconds}


def test_the_phases_of_a_round_are_those_that_its_clients_went_through(federation: LocalFederation) -> None:
    run, clock = federation.create("fedplcc", run=ROUNDS), federation.clock
    ann, bob = federation.clients.values()
    federation.perform(ann, federation.task(ann))
    clock.now += 2
    tasks = [federation.task(client) for client in (ann, bob)]
    for client, task, fetched_s, trained_s in ((ann, tasks[0], 3, 4), (bob, tasks[1], 1, 10)):
        clock.now += fetched_s
        model = federation.fetch(client, task)
        federation.coordinator.transfers.note_received(
            client.client_id, client.token, task.payload.tensor_groups[0], task.payload.tensor_groups[0].size_bytes
        )
        activity: dict[str, Any] = {"run_id": run.run_id, "round": 1, "activity": ClientActivity.TRAINING}
        federation.heartbeat(client, **activity)
        clock.now += trained_s
        update, blobs = client.work(task, model)
        federation.upload(client, task, blobs)
        clock.now += 0.5
        federation.coordinator.commit_update(client.client_id, client.token, run.run_id, 1, update)
    assert federation.metric("round_age_seconds", run=run.run_id) == 2 + 3 + 4 + 0.5 + 1 + 10 + 0.5
    clock.now += 0.25
    federation.coordinator.work()
    for client in (ann, bob):
        clock.now += 5
        federation.perform(client, federation.task(client))
    assert phases(federation) == {
        "select": 2.0,
        "broadcast": 3 + 4 + 0.5 + 1,
        "train": 10.0,
        "collect": 0.5,
        "aggregate": 0.25,
        "evaluate": 10.0,
    }, "the last client decides"
    assert (federation.metric("aggregation_resident_bytes") or 0) > 1 << 20


def test_the_age_of_a_round_and_of_the_last_checkpoint_are_those_of_the_moment(federation: LocalFederation) -> None:
    run = federation.create(run=ROUNDS)
    assert federation.metric("checkpoint_age_seconds", run=run.run_id) is None, "there is none"
    round_of(federation, run, 1)
    federation.clock.now += 7
    assert federation.metric("round_age_seconds", run=run.run_id) == 7
    assert federation.metric("checkpoint_age_seconds", run=run.run_id) == 7, "the first model is one"
    federation.clock.now += 1
    assert federation.metric("round_age_seconds", run=run.run_id) == 8
    federation.run_to_end(run.run_id)
    for name in ("round_age_seconds", "checkpoint_age_seconds"):
        assert federation.metric(name, run=run.run_id) is None, "an ended run grows no older"
    assert federation.metric("round", run=run.run_id) == 3, "scrapers still see its last round"


def test_a_round_stands_still_while_no_client_that_it_waits_for_comes_further(federation: LocalFederation) -> None:
    def still_s() -> float | None:
        federation.coordinator.tick()
        return federation.metric("round_stalled_seconds", run=run.run_id)

    def say(name: str, progress: float) -> None:
        federation.heartbeat(
            federation.clients[name], activity=ClientActivity.TRAINING, run_id=run.run_id, round=1, progress=progress
        )

    run = round_of(federation, federation.create(run=ROUNDS), 1)
    federation.clock.now += 5
    assert still_s() == 5
    federation.task(federation.clients["ann"])
    assert still_s() == 0, "who is given a task comes further"
    federation.clock.now += 2
    say("ann", 0.0)
    federation.clock.now += 2
    say("ann", 0.0)
    say("bob", 0.5)
    federation.clock.now += 2
    assert still_s() == 4, "the same again is nothing new, and nobody waits for bob, who is done"
    say("ann", 0.1)
    federation.clock.now += 2
    assert still_s() == 2
    federation.clock.now += 1
    assert federation.metric("round_stalled_seconds", run=run.run_id) == 3, "it is reckoned when it is scraped"
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.clock.now += 1000
    assert still_s() is None
    federation.coordinator.steer(run.run_id, ResumeRun())
    assert still_s() == 0
    federation.clock.now += 7
    federation.start_again()
    federation.clock.now += 3
    assert still_s() == 3, "what was before the start is not known"


def test_a_round_is_as_patient_as_its_run_says(federation: LocalFederation) -> None:
    plain = federation.create(run=ROUNDS)
    patient = federation.create(run=ROUNDS, quorum={"deadline_s": 900.0, "silence_s": 7200.0, "min_clients": 1})
    federation.coordinator.tick()
    assert federation.metric("round_patience_seconds", run=patient.run_id) == 7200
    assert federation.metric("round_patience_seconds", run=plain.run_id) is None, "it waits for ever"


def test_a_paused_run_looks_not_stuck_and_its_round_takes_no_time(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 1)
    federation.clock.now += 3
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.clock.now += 1000
    assert federation.metric("round_age_seconds", run=run.run_id) is None
    assert federation.metric("checkpoint_age_seconds", run=run.run_id) == 1003
    federation.coordinator.steer(run.run_id, ResumeRun())
    federation.clock.now += 4
    assert federation.metric("round_age_seconds", run=run.run_id) == 7
    round_of(federation, run, 2)
    assert federation.metric("round_duration_seconds_sum") == 7
    assert phases(federation) == {"broadcast": 7.0}, "bob trains at once, and then ann takes her task"


def test_a_round_that_was_open_over_a_restart_has_an_age_and_no_durations(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 1)
    federation.clock.now += 3
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.start_again()
    federation.clock.now += 1000
    assert federation.metric("round_age_seconds", run=run.run_id) is None
    federation.join()
    federation.coordinator.steer(run.run_id, ResumeRun())
    federation.clock.now += 4
    assert federation.metric("round_age_seconds", run=run.run_id) == 7
    round_of(federation, run, 2)
    assert results(federation) == {"committed": 1}
    assert federation.metric("round_duration_seconds_count") == 0
    assert phases(federation) == {}


def test_after_a_restart_the_last_committed_round_is_shown_at_once(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create("fedplcc", run=ROUNDS), 2)
    names: list[tuple[str, dict[str, str]]] = [
        (sample.name.removeprefix("fedplcc_"), sample.labels)
        for family in federation.registry.collect()
        for sample in family.samples
        if "run" in sample.labels and sample.name != "fedplcc_round_stalled_seconds"  # of it a start knows nothing
    ]
    assert {name for name, _ in names} >= {"domain_accuracy_ratio", "prototype_cluster_weight", "class_prototypes"}
    before = {(name, *labels.items()): federation.metric(name, **labels) for name, labels in names}
    federation.start_again()
    assert {(name, *labels.items()): federation.metric(name, **labels) for name, labels in names} == before
    assert federation.metric("recoveries_total") == 1
    assert results(federation) == {}, "what was counted before the restart is not counted again"
    federation.join()
    federation.run_to_end(run.run_id)
    assert results(federation) == {"committed": 2}
    assert federation.metric("round_duration_seconds_count") == 1, "the other was open over the restart"


def test_a_round_that_commits_while_the_aggregator_starts_is_the_one_that_is_shown(federation: LocalFederation) -> None:
    run, (ann, bob) = federation.create("fedplcc", run=ROUNDS), federation.clients.values()
    while (current := federation.coordinator.get_run(run.run_id).current_round) is None or (
        (current.number, current.phase) != (2, RoundPhase.EVALUATING)
    ):
        for client in (ann, bob):
            federation.perform(client, federation.task(client))
        federation.coordinator.work()
    federation.perform(ann, federation.task(ann))
    stored = present(federation.store.find_run(run.run_id))
    with federation.store.transaction() as transaction:
        transaction.save_run(replace(stored, quarantined={"bob": "the last that the round waits for"}))
    federation.start_again()
    last = json.loads(federation.metrics_lines(run.run_id)[1])
    assert federation.metric("mean_domain_accuracy_ratio", run=run.run_id) == last["accuracy"]["mean"]
    assert federation.metric("domain_accuracy_ratio", run=run.run_id, domain="bob-domain") is None
    assert federation.metric("round", run=run.run_id) == 3
    assert results(federation) == {"committed": 1}


def test_a_run_says_what_it_is_and_how_the_prototypes_of_its_last_round_weigh(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create("fedplcc", run={**ROUNDS, "name": "night"}), 2)
    assert federation.metric("run_info", run=run.run_id, method="fedplcc", name="night") == 1
    assert federation.metric("total_rounds", run=run.run_id) == 3
    weights = [
        federation.metric("prototype_cluster_weight", run=run.run_id, summary=s) for s in ("min", "median", "max")
    ]
    assert weights == sorted(weights, key=float)  # type: ignore[arg-type]
    assert 0 < float(weights[0] or 0) <= float(weights[2] or 0) <= 1
    accuracy = json.loads(federation.metrics_lines(run.run_id)[0])["accuracy"]
    domains = [value for name, value in accuracy.items() if name not in ("mean", "worst")]
    assert federation.metric("domain_accuracy_gap_ratio", run=run.run_id) == max(domains) - min(domains)


def test_a_run_with_stages_shows_its_stage_and_what_it_knows_of_each(federation: LocalFederation) -> None:
    stream = {"stages": 3, "rounds_per_stage": 1}
    run = round_of(federation, federation.create("fedavg", run={"rounds": 3}, stream=stream), 3)
    line = json.loads(federation.metrics_lines(run.run_id)[1])
    assert federation.metric("run_stage", run=run.run_id) == 2
    shown = [federation.metric("stage_accuracy_ratio", run=run.run_id, stage=stage) for stage in "123"]
    assert shown == [*line["accuracy_by_stage"], None]
    assert federation.metric("forgetting_ratio", run=run.run_id) == line["forgetting"]
    assert federation.metric("minority_accuracy_ratio", run=run.run_id) == line["accuracy_minority"]


def test_a_round_that_is_paused_at_once_is_interrupted_and_commits_later(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 1)
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    assert results(federation) == {"interrupted": 1}
    federation.coordinator.steer(run.run_id, ResumeRun())
    federation.run_to_end(run.run_id)
    assert results(federation) == {"interrupted": 1, "committed": 3}
    assert federation.metric("runs_ended_total", status="completed") == 1


def test_the_round_of_a_run_that_is_stopped_is_abandoned(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 2)
    federation.coordinator.steer(run.run_id, StopRun())
    federation.run_to_end(run.run_id)
    assert results(federation) == {"committed": 1, "abandoned": 1}
    assert federation.metric("runs_ended_total", status="stopped") == 1
    assert federation.metric("round_age_seconds", run=run.run_id) is None


def test_a_run_that_fails_without_a_quorum_says_so(federation: LocalFederation) -> None:
    run = federation.create(run=ROUNDS, quorum={"deadline_s": 60.0, "on_no_quorum": "fail"})
    round_of(federation, run, 1)
    for _ in range(2):
        federation.clock.now += 61
        federation.coordinator.tick()
    assert federation.coordinator.get_run(run.run_id).status is RunStatus.FAILED
    assert results(federation) == {"no_quorum": 1}
    assert federation.metric("runs_ended_total", status="failed") == 1
    assert statuses(federation, run) == {("failed", "")}


def test_a_run_that_has_failed_is_shown_though_others_wait_for_its_place(federation: LocalFederation) -> None:
    run = federation.create(run=ROUNDS, quorum={"deadline_s": 60.0, "on_no_quorum": "fail"})
    others = [federation.create(run=ROUNDS) for _ in range(MAX_RUNS)]
    assert statuses(federation, others[-1]) == set(), "all places are taken"
    round_of(federation, run, 1)
    for _ in range(2):
        federation.clock.now += 61
        federation.coordinator.tick()
    assert statuses(federation, run) == {("failed", "")}
    assert statuses(federation, others[-1]) == set()
    federation.clock.now += KEEP_ENDED_S
    federation.coordinator.tick()
    assert statuses(federation, run) == set()
    assert len(statuses(federation, others[-1])) == 1, "it has the place"


def test_a_run_says_what_it_waits_for_and_how_it_has_ended(federation: LocalFederation) -> None:
    run = federation.create(run=ROUNDS, quorum={"deadline_s": 60.0, "min_clients": 2})
    round_of(federation, run, 1)
    assert statuses(federation, run) == {("running", "")}
    for _ in range(2):
        federation.clock.now += 61
        federation.coordinator.tick()
    assert statuses(federation, run) == {("running", "quorum")}
    federation.join()
    federation.coordinator.steer(run.run_id, PauseRun(now=True))
    assert statuses(federation, run) == {("paused", "")}
    federation.coordinator.steer(run.run_id, StopRun(reason="enough"))
    federation.run_to_end(run.run_id)
    assert statuses(federation, run) == {("stopped", "")}
    federation.clock.now += KEEP_ENDED_S - 1
    federation.coordinator.tick()
    assert statuses(federation, run) == {("stopped", "")}
    federation.clock.now += 1
    federation.coordinator.tick()
    assert statuses(federation, run) == set()


def test_a_round_that_damage_parks_is_interrupted(federation: LocalFederation, monkeypatch: pytest.MonkeyPatch) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 1)

    def corrupt(*_arguments: object) -> None:
        federation.path_of(run.model).unlink()
        raise PayloadCorrupt("the disk has changed a model")

    with monkeypatch.context() as patched:
        patched.setattr("fedplcc.aggregator.aggregating.round_work.aggregate", corrupt)
        federation.step()
    assert federation.metric("runs_parked") == 1
    assert results(federation) == {"interrupted": 1}


def test_a_run_of_another_version_is_shown_as_parked_when_it_is_found(federation: LocalFederation) -> None:
    run = round_of(federation, federation.create(run=ROUNDS), 1)
    current = present(federation.store.find_run(run.run_id))
    with federation.store.transaction() as transaction:
        transaction.save_run(replace(current, config_json='{"run": {"method": "of tomorrow"}}'))
    federation.start_again()
    found = present(federation.store.find_run(run.run_id))
    assert found.status is RunStatus.PAUSED
    assert federation.metric("runs_parked") == 1
    assert statuses(federation, run) == {("paused", "operator")}, "though it never was a run of this process"


def test_the_room_on_the_disk_is_that_of_the_state_directory(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs(federation.folder)
    assert federation.metric("data_size_bytes") == found.f_blocks * found.f_frsize
    assert 0 < float(federation.metric("data_free_bytes") or 0) <= found.f_blocks * found.f_frsize

    def gone(_folder: object) -> None:
        raise OSError("the network is away")

    monkeypatch.setattr("os.statvfs", gone)
    assert federation.metric("data_free_bytes") is None, "and the scrape goes on"


def test_bytes_are_sent_again_within_a_task_and_not_for_another(federation: LocalFederation) -> None:
    run, transfers = round_of(federation, federation.create(run=ROUNDS), 1), federation.coordinator.transfers
    ann, bob = federation.clients.values()
    federation.perform(bob, federation.task(bob))
    task = federation.task(ann)
    model = present(task.payload.tensor_group("model"))
    for offset in (0, 50, 30):
        transfers.count_transfer(
            60, direction="sent", kind="model", client_id="ann", sha256=model.sha256, offset_bytes=offset
        )
    assert federation.metric("transfer_resent_bytes_total", direction="sent") == 10 + 60
    federation.perform(ann, task)
    federation.coordinator.work()
    assert federation.task(ann).key != task.key
    transfers.count_transfer(60, direction="sent", kind="model", client_id="ann", sha256=model.sha256, offset_bytes=0)
    assert federation.metric("transfer_resent_bytes_total", direction="sent") == 10 + 60
    assert run.round_number == 1
