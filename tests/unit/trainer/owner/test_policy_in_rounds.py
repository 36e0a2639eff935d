"""A policy over the rounds of runs: restarts, waiting updates, stages, and prototypes of every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedplcc.aggregator.computation.prototype_checks import check_prototypes
from fedplcc.shared.errors import InvalidData, StoreUnavailable
from fedplcc.shared.methods import METHODS
from fedplcc.shared.tensors import prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, MODEL, Payload, PrototypeSet, Task, TaskKind
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.failures import sentence_for_others
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.owner.test_policy_keys import a_policy
from tests.unit.trainer.tasks import CLASSES, a_run, a_train_task


def test_a_run_that_goes_on_in_a_new_process_finds_its_data_unchanged(data: str, tmp_path: Path) -> None:
    """Images of small classes are left out of training, not of the record of what the run began with."""
    run, problems = a_run("fedavg"), list[Any]()
    for number in (1, 2):
        aggregator = MemoryAggregator()
        site = ClientSite.at("ann", "hospital", data, device="cpu", policy=a_policy("thresholds.class_images = 6"))
        runner = TaskRunner(site, ClientStates(tmp_path))
        runner.announce()
        task = a_train_task(aggregator, data, run, round_number=number)
        runner.perform(task, aggregator, on_problem=problems.append)
        assert aggregator.updates[-1][1].class_counts == (9, 0, 0)
    assert not problems


def test_an_update_that_waits_is_made_anew_under_a_stricter_policy(data: str, tmp_path: Path) -> None:
    run, aggregator = a_run("fedplcc"), MemoryAggregator()
    task = a_train_task(aggregator, data, run)

    def perform(policy: str) -> None:
        site = ClientSite.at("ann", "hospital", data, device="cpu", policy=a_policy(policy))
        TaskRunner(site, ClientStates(tmp_path)).perform(task, aggregator)

    aggregator.failures["commit"] = [StoreUnavailable("the aggregator's disk")]
    with pytest.raises(StoreUnavailable):
        perform("")
    perform("thresholds.prototype_images = 5")
    ((_, update),) = aggregator.updates
    (blob,) = update.payload.prototype_sets
    assert min(prototypes_from_bytes(aggregator.stored[blob.sha256][0]).weights) >= 5


def test_a_site_without_a_large_class_says_so_before_it_joins_and_not_to_others(data: str, tmp_path: Path) -> None:
    site = ClientSite.at("ann", "hospital", data, device="cpu", policy=a_policy("thresholds.class_images = 10"))
    runner = TaskRunner(site, ClientStates(tmp_path))
    with pytest.raises(InvalidData, match="its largest class has 9 training images, and the policy") as caught:
        runner.announce()
    assert "9" not in sentence_for_others(caught.value)
    with pytest.raises(InvalidData, match="no class has 10 training images in the run"):
        runner.perform(Task(kind=TaskKind.INIT, run=a_run("fedavg"), total_rounds=3), MemoryAggregator())


def test_stages_leave_small_classes_out_too(data: str, tmp_path: Path) -> None:
    run, aggregator = (
        a_run("fedavg", run={"rounds": 4}, stream={"stages": 2, "rounds_per_stage": 2}),
        MemoryAggregator(),
    )
    site = ClientSite.at("ann", "hospital", data, device="cpu", policy=a_policy("thresholds.class_images = 6"))
    runner = TaskRunner(site, ClientStates(tmp_path))
    assert dict(runner.client_for(run).class_counts) == dict(zip(CLASSES, (9, 0, 0), strict=True))
    runner.perform(Task(kind=TaskKind.INIT, run=run, total_rounds=4), aggregator)
    ((_, first),) = aggregator.updates
    blob = first.payload.tensor_group(MODEL)
    group = aggregator.offer(MODEL, aggregator.stored[blob.sha256][0])
    payload = Payload(tensor_groups=(group,), scalars={"pass": 1.0, "stage": 1.0})
    runner.perform(Task(kind=TaskKind.TRAIN, run=run, round=1, total_rounds=4, payload=payload), aggregator)
    assert aggregator.updates[-1][1].class_counts == (9, 0, 0)


@pytest.mark.parametrize(
    ("method", "hyper", "policy", "least", "classes"),
    [
        ("fedplcc", {"small_clusters": "merge"}, 5, 5, {0, 1}),
        ("fedplcc", {"min_cluster_size": 6}, 3, 6, {0}),
        ("fedplcc", {"min_cluster_size": 2}, 10, 10, set()),
        ("fedproto", {}, 6, 6, {0}),
    ],
)
def test_a_policy_can_only_raise_the_least_size_of_a_prototype(
    method: str, hyper: dict[str, Any], policy: int, least: int, classes: set[int], data: str, tmp_path: Path
) -> None:
    """Merged clusters are merged until they are as large as the policy says; a class mean stands for its class."""
    run, aggregator = a_run(method, method=hyper), MemoryAggregator()
    site = ClientSite.at(
        "ann", "hospital", data, device="cpu", policy=a_policy(f"thresholds.prototype_images = {policy}")
    )
    task = a_train_task(aggregator, data, run)
    if method == "fedproto":
        none = aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(PrototypeSet.empty()))
        task = replace(task, payload=replace(task.payload, prototype_sets=(none,)))
    TaskRunner(site, ClientStates(tmp_path)).perform(task, aggregator)
    ((_, update),) = aggregator.updates
    (blob,) = update.payload.prototype_sets
    made = prototypes_from_bytes(aggregator.stored[blob.sha256][0])
    assert all(weight >= least for weight in made.weights)
    assert set(made.class_ids.tolist()) <= classes
    assert made.weights.sum() == update.num_examples - update.num_excluded
    if hyper.get("small_clusters") == "merge" or method == "fedproto":
        assert set(made.class_ids.tolist()) == classes
    check_prototypes(made, update, method=METHODS[method], dim=made.vectors.shape[1], class_counts=update.class_counts)
