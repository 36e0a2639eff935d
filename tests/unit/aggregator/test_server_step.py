"""Server arrays in whole runs of CReFF: what a round makes is what clients get; test_kept_between_rounds.py disturbs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.errors import BlobNotFound, MalformedUpdate
from fedplcc.shared.methods.arrays import MAX_ARRAY_BYTES
from fedplcc.shared.methods.heads.creff import FEATURES, GRADIENTS, HEAD
from fedplcc.shared.tensors import blob_ref, from_bytes, to_bytes
from fedplcc.shared.types import FEATURE_DIM as FEATURE_DIM_LIST
from fedplcc.shared.types import MODEL, BlobRef, Payload, Round, Run, RunStatus, Task, TaskKind, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import CLASSES, NumpyClient, a_document

SMALL = {"num_features": 4, "match_steps": 3, "retrain_epochs": 2}


class Creff(LocalFederation):
    """Two clients whose heads are linear, and an aggregator that keeps two rounds."""

    keep = Keep(models=2, prototypes=0, updates=1)

    @classmethod
    def small(cls, folder: Path) -> Creff:
        folder.mkdir(exist_ok=True)
        clients = [
            NumpyClient("ann", size=3, has_linear_head=True),
            NumpyClient("bob", size=3, counts=(2, 0, 7), has_linear_head=True),
        ]
        return cls(folder, clients)

    def begin(self, rounds: int = 2, **hyper: Any) -> Run:
        """Join, and begin a run or go on with it."""
        self.join()
        document = {**a_document("creff", run={"rounds": rounds}), "method": {**SMALL, **hyper}}
        return self.coordinator.create_run("the run", document)

    def to_training(self, number: int) -> NumpyClient:
        """Go on until ann is to train in this round."""
        self.begin(rounds=3)
        ann = self.clients["ann"]
        while (task := self.task(ann)).round < number or task.kind is not TaskKind.TRAIN:
            self.step()
        return ann


def rounds_of(federation: LocalFederation, run: Run) -> list[Round]:
    return federation.coordinator.list_rounds(run.run_id)


def arrays_of(federation: LocalFederation, blob: BlobRef | None) -> dict[str, np.ndarray]:
    return from_bytes(federation.path_of(blob).read_bytes())


def test_the_rounds_model_is_the_mean_with_the_new_head_and_the_next_round_starts_from_the_mean(folder: Path) -> None:
    with Creff.small(folder) as federation:
        federation.keep = Keep(models=None, updates=9)
        federation.restart()
        run = federation.run_to_end(federation.begin(3).run_id)
        assert run.status is RunStatus.COMPLETED
        for each in rounds_of(federation, run)[1:]:
            assert each.server_state.keys() == {FEATURES, HEAD}
            result, mean, head = (
                arrays_of(federation, blob) for blob in (each.model, each.start, each.server_state[HEAD])
            )
            assert result["base.weight"].tobytes() == mean["base.weight"].tobytes()
            assert result["head.weight"].tobytes() == head["weight"].tobytes() != mean["head.weight"].tobytes()
            assert result["head.bias"].tobytes() == head["bias"].tobytes()
            whole = federation.whole_round(run.run_id, each.number)
            updates = [whole.updates[name] for name in ("ann", "bob")]
            models = [arrays_of(federation, update.payload.tensor_group(MODEL)) for update in updates]
            counts = [sum(client.counts) for client in federation.clients.values()]
            for name in mean:
                expected = np.average([model[name].astype(np.float64) for model in models], axis=0, weights=counts)
                np.testing.assert_allclose(mean[name], expected, rtol=1e-6, atol=1e-7)


def test_clients_get_the_start_and_the_head_and_nothing_else(folder: Path) -> None:
    with Creff.small(folder) as federation:
        ann = federation.to_training(1)
        assert [blob.role for blob in federation.task(ann).payload.blobs] == [MODEL]
        federation.to_training(2)
        run = federation.coordinator.list_runs(limit=1)[0]
        assert federation.task(ann).payload.blobs == (run.start, run.server_state[HEAD])
        with pytest.raises(BlobNotFound, match="does not name this blob"):
            federation.coordinator.transfers.open_download("ann", ann.token, run.server_state[FEATURES].sha256)


# -- What an update has beside its model --------------------------------------------------------------------------------


def without(name: str) -> Callable[[dict[str, np.ndarray]], None]:
    def change(group: dict[str, np.ndarray]) -> None:
        del group[name]

    return change


def with_value(name: str, value: Any) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda group: group.update({name: value(group[name])})


@pytest.mark.parametrize(
    ("change", "check", "tensor"),
    [
        (without("bias"), "keys", "bias"),
        (lambda group: group.update(more=group["bias"]), "keys", "more"),
        (with_value("classes", lambda array: array.astype(np.float32)), "dtype", "classes"),
        (with_value("weight", lambda array: array[:, :, 1:]), "shape", "weight"),
        (with_value("weight", lambda array: array[1:]), "shape", "weight"),
        (with_value("bias", lambda array: array[0]), "shape", "bias"),
        (with_value("weight", lambda array: array * np.float32("nan")), "finite", "weight"),
        (with_value("bias", lambda array: array + np.float32("inf")), "finite", "bias"),
        (with_value("classes", lambda array: array + 1), "upload", None),
        (with_value("classes", lambda array: array - 1), "upload", None),
        (with_value("classes", lambda array: array[::-1]), "upload", None),
        (with_value("classes", lambda array: array * 0), "upload", None),
    ],
)
def test_gradients_that_are_not_as_declared_are_refused_by_name(
    folder: Path, change: Callable[[dict[str, np.ndarray]], None], check: str, tensor: str | None
) -> None:
    with Creff.small(folder) as federation:
        ann = federation.to_training(1)
        task, update, blobs = federation.work(ann)
        (gradients,) = (blob for blob in blobs if blob.role == GRADIENTS)
        group = dict(from_bytes(blobs[gradients]))
        change(group)
        data = to_bytes(group)
        changed = blob_ref(GRADIENTS, data)
        blobs = {blob: content for blob, content in blobs.items() if blob != gradients} | {changed: data}
        update = replace(update, payload=Payload(tensor_groups=tuple(blobs)))
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(ann, task, update, blobs)
        assert refused.value.metadata["check"] == check
        assert refused.value.metadata.get("tensor") == tensor


@pytest.mark.parametrize("roles", [[MODEL], [GRADIENTS], [GRADIENTS, MODEL], [MODEL, GRADIENTS, "more"]])
def test_missing_and_foreign_groups_are_refused(folder: Path, roles: list[str]) -> None:
    with Creff.small(folder) as federation:
        ann = federation.to_training(1)
        task, update, blobs = federation.work(ann)
        known = {blob.role: data for blob, data in blobs.items()}
        sent = {
            blob_ref(role, data): data
            for role in roles
            for data in [known.get(role, to_bytes({"x": np.zeros(1, np.float32)}))]
        }
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(ann, task, replace(update, payload=Payload(tensor_groups=tuple(sent))), sent)
        assert refused.value.metadata["check"] == "roles"


def test_a_group_larger_than_any_good_one_is_refused_unread(folder: Path) -> None:
    with Creff.small(folder) as federation:
        ann = federation.to_training(1)
        task, update, blobs = federation.work(ann)
        data = to_bytes({"weight": np.zeros(2**19, np.float32)})
        blobs = {blob: content for blob, content in blobs.items() if blob.role == MODEL} | {
            blob_ref(GRADIENTS, data): data
        }
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(ann, task, replace(update, payload=Payload(tensor_groups=tuple(blobs))), blobs)
        assert refused.value.metadata["check"] == "size"


# -- Round 0 ------------------------------------------------------------------------------------------------------------


def test_a_model_whose_head_is_not_one_linear_layer_is_refused_at_round_0(folder: Path) -> None:
    with Creff.small(folder) as federation:
        federation.clients = {name: NumpyClient(name, size=3, has_linear_head=False) for name in ("ann", "bob")}
        federation.begin()
        sentence = (
            r"model 'resnet10' has a head of 2 tensors of other shapes; creff needs one linear layer \(weight and"
        )
        with pytest.raises(MalformedUpdate, match=sentence):
            federation.step()


def test_a_head_of_more_tensors_is_refused_with_their_number(folder: Path) -> None:
    class Deep(NumpyClient):
        """Its head has two layers."""

        def first_model(self, seed: int = 0) -> dict[str, np.ndarray]:
            model = super().first_model(seed)
            return {**model, "head.0.weight": model["head.weight"], "head.0.bias": model["head.bias"]}

    with Creff.small(folder) as federation:
        federation.clients = {name: Deep(name, has_linear_head=True) for name in ("ann", "bob")}
        federation.begin()
        with pytest.raises(MalformedUpdate, match="has a head of 4 tensors; creff needs one linear layer"):
            federation.step()


@pytest.mark.parametrize(
    ("hyper", "said"),
    [
        ({"num_features": 10_000}, f"server arrays of method creff take .* at most {MAX_ARRAY_BYTES}"),
        (
            {"num_features": 2_000, "match_steps": 100_000, "retrain_epochs": 100_000},
            "a server step of creff has 6.5e\\+12 products with 3 classes and 600 features, at most 1.1e\\+12",
        ),
    ],
)
def test_arrays_beyond_the_limit_are_refused_at_round_0(folder: Path, hyper: dict[str, int], said: str) -> None:
    """10,000 features of 3 classes with 6 numbers each are 720 kB; with 600 numbers each they are 72 MB."""

    class Wide(NumpyClient):
        """It says that its features are wider."""

        def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
            update, _ = super().work(task, model)
            arrays = {**self.first_model(), "head.weight": np.zeros((len(CLASSES), 600), np.float32)}
            data = to_bytes(arrays)
            group = blob_ref(MODEL, data)
            lists = {**update.payload.int_lists, FEATURE_DIM_LIST: (600,)}
            return replace(update, payload=Payload(tensor_groups=(group,), int_lists=lists)), {group: data}

    with Creff.small(folder) as federation:
        federation.clients = {name: Wide(name, has_linear_head=True) for name in ("ann", "bob")}
        federation.begin(**hyper)
        with pytest.raises(MalformedUpdate, match=said):
            federation.step()
