"""Tasks at a site with several devices, and at one that shares its card."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.shared.errors import FailedPrecondition
from fedplcc.shared.tensors import from_bytes, prototypes_from_bytes, prototypes_to_bytes
from fedplcc.shared.types import GLOBAL_CLUSTER, LOCAL_CLUSTER, MODEL, ClientActivity, Payload, Task, TaskKind, Update
from fedplcc.trainer.cancellation import Cancelled, ShouldStop, never
from fedplcc.trainer.devices.turns import Turns
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.runner import TaskRunner
from fedplcc.trainer.task.site import ClientSite
from tests.support.records.captured_logs import logged
from tests.unit.trainer.builders import a_config, a_spec, eighteen_images, some_prototypes
from tests.unit.trainer.memory_aggregator import MemoryAggregator

FEDPLCC = a_config(
    "fedplcc", run={"clients": ["ann"]}, training={"local_steps": 4, "batch_size": 7, "augment": ["crop", "flip"]}
)


def trained(folder: Path, devices: str) -> tuple[Update, dict[str, bytes]]:
    """Train a round at a site with these devices; returns the update, and its blobs by role."""
    folder.mkdir()
    site = ClientSite.at("ann", "hospital", eighteen_images(folder), device=devices)
    runner, aggregator = TaskRunner(site, ClientStates(folder / "states")), MemoryAggregator()
    run = a_spec(FEDPLCC)
    runner.perform(Task(kind=TaskKind.INIT, run=run, total_rounds=3), aggregator)
    model, _ = aggregator.stored[aggregator.updates[-1][1].payload.tensor_group(MODEL).sha256]
    payload = Payload(
        tensor_groups=(aggregator.offer(MODEL, model),),
        prototype_sets=(aggregator.offer(GLOBAL_CLUSTER, prototypes_to_bytes(some_prototypes())),),
    )
    task = Task(kind=TaskKind.TRAIN, run=run, round=1, total_rounds=3, payload=payload)
    seen: list[float] = []
    runner.perform(task, aggregator, on_activity=lambda activity, done: seen.append(done))
    assert {0.25, 0.5, 0.75, 1.0} <= set(seen)
    update = aggregator.updates[-1][1]
    assert site.client({}).environment.device == ("cpu" if devices == "cpu" else "2 x cpu")
    return update, {blob.role: aggregator.stored[blob.sha256][0] for blob in update.payload.blobs}


@pytest.mark.slow
def test_a_task_on_two_devices_ends_in_the_same_bytes_twice_and_in_one_devices_model_but_for_rounding(
    tmp_path: Path,
) -> None:
    one, of_one = trained(tmp_path / "one", "cpu")
    two, of_two = trained(tmp_path / "two", "cpu,cpu")
    again, of_two_again = trained(tmp_path / "again", "cpu,cpu")
    assert of_two == of_two_again
    assert of_two != of_one
    assert two.losses == again.losses == pytest.approx(one.losses, rel=1e-4)
    assert two.class_counts == one.class_counts
    for name, array in from_bytes(of_one[MODEL]).items():
        np.testing.assert_allclose(from_bytes(of_two[MODEL])[name], array, atol=1e-4)
    assert len(prototypes_from_bytes(of_two[LOCAL_CLUSTER])) > 0


def test_a_method_that_several_devices_cannot_share_is_refused_by_name(tmp_path: Path) -> None:
    config = a_config("fcclplus", public={"data": "npz:unread"})
    site = ClientSite.at("ann", "hospital", eighteen_images(tmp_path), device="cpu,cpu")
    runner = TaskRunner(site, ClientStates(tmp_path / "states"))
    with pytest.raises(FailedPrecondition, match=r"'fcclplus' .*one --device"):
        runner.perform(Task(kind=TaskKind.TRAIN, run=a_spec(config), round=1, total_rounds=3), MemoryAggregator())


def test_a_task_waits_for_the_turn_on_its_card_until_it_is_cancelled(tmp_path: Path) -> None:
    site = ClientSite.at("ann", "hospital", eighteen_images(tmp_path), device="cpu", takes_turns=True)
    activities: list[ClientActivity] = []

    def perform(kind: TaskKind, turns: Turns, payload: Payload, should_stop: ShouldStop = never) -> None:
        runner = TaskRunner(replace(site, turns=turns), ClientStates(tmp_path / "states"))
        task = Task(kind=kind, run=a_spec(a_config(run={"clients": ["ann"]})), round=1, total_rounds=3, payload=payload)
        runner.perform(task, aggregator, should_stop, lambda activity, done: activities.append(activity))

    aggregator = MemoryAggregator()
    perform(TaskKind.INIT, site.turns, Payload())
    model, _ = aggregator.stored[aggregator.updates[-1][1].payload.tensor_group(MODEL).sha256]
    payload = Payload(tensor_groups=(aggregator.offer(MODEL, model),))
    mine, others = (Turns(["card"], tmp_path / "turns") for _ in range(2))
    with logged() as lines, others.taken(never), pytest.raises(Cancelled):
        perform(TaskKind.TRAIN, mine, payload, lambda: bool(lines("waits_for_turn")))
    assert ClientActivity.TRAINING not in activities
    perform(TaskKind.TRAIN, mine, payload)
    assert len(aggregator.updates) == 2
    with others.taken(never):
        pass  # the turn was given back
