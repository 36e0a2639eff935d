"""Runs that begin with a model of other classes: rows of its head by name, prototypes that stay, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared import errors
from fedplcc.shared.tensors import blob_ref, from_bytes, prototypes_from_bytes, to_bytes
from fedplcc.shared.types import HEAD, MODEL, Client, Payload, PrototypeSet, Run, RunStatus, Task, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document, tensor_lists

CLASSES = ["c", "new", "a"]


class Follows(NumpyClient):
    """A client that has samples of the classes of both runs."""

    @property
    def record(self) -> Client:
        counts = {"a": 5, "b": 3, "c": 5, "new": 3}
        return replace(super().record, num_examples=sum(counts.values()), class_counts=counts)


JOINED = [Follows(name, size=3, has_linear_head=True) for name in ("ann", "bob")]


def finished(federation: LocalFederation, method: str = "fedplcc") -> Run:
    return federation.run_to_end(federation.create(method).run_id)


def follower(federation: LocalFederation, source: str, method: str = "fedplcc", **run: Any) -> Run:
    """A run of classes c, new and a, which has lost b."""
    run = {"initial_model": source, "drop_classes": True, **run}
    return federation.create(method, run=run, data={"classes": CLASSES})


def model_of(federation: LocalFederation, run: Run, number: int) -> dict[str, np.ndarray]:
    return dict(from_bytes(federation.coordinator.artifact(run.run_id, number, "model")[1].read_bytes()))


def prototypes_of(federation: LocalFederation, run: Run, number: int) -> PrototypeSet:
    return prototypes_from_bytes(federation.coordinator.artifact(run.run_id, number, "prototypes")[1].read_bytes())


def test_known_classes_keep_their_rows_and_the_run_ends(federation: LocalFederation) -> None:
    source = finished(federation)
    run = follower(federation, f"run:{source.run_id}@2")
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
    before, after = model_of(federation, source, 2), model_of(federation, run, 0)
    np.testing.assert_array_equal(after["base.weight"], before["base.weight"])
    for name in ("head.weight", "head.bias"):
        np.testing.assert_array_equal(after[name][[0, 2]], before[name][[2, 0]])
    fresh = federation.clients["ann"].first_model()
    np.testing.assert_array_equal(after["head.weight"][1], fresh["head.weight"][1])
    assert len(prototypes_of(federation, run, 0)) == 0


def test_the_configuration_names_the_classes_by_content(federation: LocalFederation) -> None:
    source = finished(federation)
    run = follower(federation, f"run:{source.run_id}")
    values = json.loads(run.config_json)["run"]
    assert values["initial_classes"] == ["a", "b", "c"]
    assert values["initial_model"].startswith("sha256:")
    by_content = federation.create("fedplcc", run={**values, "rounds": 2}, data={"classes": CLASSES})
    assert by_content.config_hash == run.config_hash
    same = federation.create("fedplcc", run={"initial_model": f"run:{source.run_id}"})
    assert json.loads(same.config_json)["run"]["initial_classes"] is None


def test_prototypes_of_the_classes_that_stay_go_on(federation: LocalFederation) -> None:
    source = finished(federation)
    run = follower(federation, f"run:{source.run_id}@2", initial_prototypes=True)
    before, after = prototypes_of(federation, source, 2), federation.coordinator.get_run(run.run_id).prototypes
    assert after is not None
    assert json.loads(run.config_json)["run"]["initial_prototypes"] == f"sha256:{after.sha256}"
    federation.run_to_end(run.run_id)
    first = prototypes_of(federation, run, 0)
    assert {*first.class_ids.tolist()} == {0, 2}
    for mine, theirs in ((0, 2), (2, 0)):
        np.testing.assert_array_equal(
            first.vectors[first.class_ids == mine], before.vectors[before.class_ids == theirs]
        )
        np.testing.assert_array_equal(
            first.weights[first.class_ids == mine], before.weights[before.class_ids == theirs]
        )
    plain = follower(federation, f"run:{source.run_id}@2")
    assert plain.config_hash != run.config_hash


def test_clients_are_given_the_carried_prototypes_in_round_1_also_after_a_crash(federation: LocalFederation) -> None:
    source = finished(federation)
    run = follower(federation, f"run:{source.run_id}@2", initial_prototypes=True)
    held = federation.coordinator.get_run(run.run_id).prototypes
    ann, bob = federation.clients.values()
    federation.perform(ann, federation.task(ann))
    federation.restart()
    federation.join()
    task = federation.task(bob)
    assert (task.round, task.payload.prototype_sets) == (1, (held,))
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def refused(federation: LocalFederation, source: str, *said: str, method: str = "fedplcc", **sections: Any) -> None:
    before = len(federation.coordinator.list_runs(limit=100))
    run = {"initial_model": source, **sections.pop("run", {})}
    with pytest.raises(errors.InvalidConfig) as refusal:
        federation.create(method, run=run, **sections)
    for words in said:
        assert words in refusal.value.detail
    assert len(federation.coordinator.list_runs(limit=100)) == before


def test_what_does_not_go_together_is_refused_and_creates_nothing(federation: LocalFederation) -> None:
    source, other = finished(federation), finished(federation, "fedproto")
    by_run = f"run:{source.run_id}"
    lost = "the initial model knows class 'b', which data.classes does not; add it or set run.drop_classes"
    refused(federation, by_run, lost, data={"classes": CLASSES})
    refused(federation, by_run, "has other classes", run={"initial_classes": ["a", "b"]})
    carried = {"initial_prototypes": True}
    refused(federation, f"run:{other.run_id}", "trains with fedproto, this one with fedplcc", run=carried)
    refused(federation, by_run, "only methods with prototypes carry them", run=carried, method="fedavg")
    by_content = json.loads(follower(federation, by_run).config_json)["run"]["initial_model"]
    says = 'write true, and initial_model = "run:RUN_ID@ROUND"'
    refused(federation, by_content, says, run=carried)
    (update, *_) = federation.store.find_round(source.run_id, 2).updates.values()  # type: ignore[union-attr]
    theirs = f"sha256:{update.payload.prototype_sets[0].sha256}"
    refused(federation, by_run, says, run={"initial_prototypes": theirs})


def first_update(arrays: dict[str, np.ndarray], **lists: tuple[int, ...]) -> tuple[Update, dict[Any, bytes]]:
    data = to_bytes(arrays)
    blob = blob_ref(MODEL, data)
    int_lists = {"feature_dim": (FEATURE_DIM,), **tensor_lists(data), **lists}
    payload = Payload(tensor_groups=(blob,), int_lists=int_lists)
    return Update(client_id="ann", payload=payload, num_examples=0), {blob: data}


def changed(arrays: dict[str, np.ndarray], name: str, row: int) -> dict[str, np.ndarray]:
    copy = {key: array.copy() for key, array in arrays.items()}
    copy[name][row] = np.nextafter(copy[name][row], np.float32(9))
    return copy


@pytest.fixture
def begun(federation: LocalFederation) -> tuple[LocalFederation, Task, dict[str, np.ndarray]]:
    """A run that waits for its first model, and the right one."""
    source = finished(federation)
    follower(federation, f"run:{source.run_id}@2", initial_prototypes=True)
    ann = federation.clients["ann"]
    task, _, blobs = federation.work(ann)
    (data,) = blobs.values()
    return federation, task, dict(from_bytes(data))


@pytest.mark.parametrize(
    ("name", "row"), [("base.weight", 0), ("head.weight", 0), ("head.weight", 2), ("head.bias", 0), ("head.bias", 2)]
)
def test_another_row_of_a_known_class_is_refused(
    begun: tuple[LocalFederation, Task, dict[str, np.ndarray]], name: str, row: int
) -> None:
    federation, task, right = begun
    with pytest.raises(errors.MalformedUpdate, match=f"'{name}' is not the initial model's") as refusal:
        federation.submit(federation.clients["ann"], task, *first_update(changed(right, name, row)))
    assert refusal.value.metadata["check"] == "initial_model"


def test_a_new_class_may_have_any_row(begun: tuple[LocalFederation, Task, dict[str, np.ndarray]]) -> None:
    federation, task, right = begun
    federation.submit(federation.clients["ann"], task, *first_update(changed(right, "head.weight", 1)))
    assert task.run is not None
    assert federation.coordinator.get_run(task.run.run_id).round_number == 1


@pytest.mark.parametrize("head", [(), (0,), (0, 1), (0, 1, 2), (99,)])
def test_other_tensors_than_the_head_cannot_be_called_one(
    begun: tuple[LocalFederation, Task, dict[str, np.ndarray]], head: tuple[int, ...]
) -> None:
    federation, task, right = begun
    with pytest.raises(errors.MalformedUpdate):
        federation.submit(
            federation.clients["ann"], task, *first_update(changed(right, "base.weight", 0), **{HEAD: head})
        )


def test_a_model_of_other_features_than_the_prototypes_is_refused(
    begun: tuple[LocalFederation, Task, dict[str, np.ndarray]],
) -> None:
    federation, task, right = begun
    with pytest.raises(errors.MalformedUpdate, match="7 features, and the prototypes that the run begins with 6"):
        federation.submit(federation.clients["ann"], task, *first_update(right, feature_dim=(7,)))


def test_a_head_of_more_than_a_linear_layer_is_refused_by_name(folder: Path) -> None:
    clients = [NumpyClient("ann", size=3), NumpyClient("bob", size=3)]
    with LocalFederation(folder, clients) as federation:
        federation.join()
        source = federation.run_to_end(federation.create("fedavg").run_id)
        run = {"initial_model": f"run:{source.run_id}", "drop_classes": True}
        federation.coordinator.create_run("next", a_document("fedavg", run=run, data={"classes": CLASSES}))
        ann = federation.clients["ann"]
        task = federation.task(ann)
        arrays = dict(from_bytes(federation.fetch(ann, task) or b""))
        with pytest.raises(errors.MalformedUpdate, match="only the rows of one linear layer") as refusal:
            federation.submit(ann, task, *first_update(arrays))
        assert refusal.value.metadata["check"] == "linear_head"
