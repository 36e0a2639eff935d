"""Updates without the tensors that clients keep for themselves: folded, and refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.errors import MalformedUpdate, UpdateNormExceeded
from fedplcc.shared.tensors import blob_ref, from_bytes, to_bytes
from fedplcc.shared.types import MODEL, BlobRef, Payload, Run, RunStatus, Task, TaskKind
from fedplcc.state.replay import replay
from tests.support import present
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document, tensor_lists

OWN = {"upload_head": False}


class FedRep(LocalFederation):
    """Two clients whose heads stay with them, and an aggregator that keeps everything."""

    keep = Keep(models=None, prototypes=None, updates=9)

    def begin(self, rounds: int = 3, **sections: Any) -> Run:
        return self.begin_with(OWN, run={"rounds": rounds}, **sections)

    def begin_with(self, hyper: dict[str, Any], **sections: Any) -> Run:
        self.join()
        document = {**a_document("fedrep", **sections), "method": hyper}
        return self.coordinator.create_run("the run", document)

    def to_training(self, **sections: Any) -> tuple[NumpyClient, Task]:
        """Go on until ann is to train in round 1; bob has done nothing."""
        self.begin(**sections)
        ann = self.clients["ann"]
        while (task := self.task(ann)).kind is not TaskKind.TRAIN:
            self.perform(ann, task)
            self.coordinator.work()
        return ann, task

    def arrays(self, blob: BlobRef | None) -> dict[str, np.ndarray]:
        return from_bytes(self.path_of(blob).read_bytes())


def test_the_base_is_averaged_and_the_head_stays_that_of_round_0(folder: Path) -> None:
    with FedRep.small(folder) as federation:
        run = federation.run_to_end(federation.begin().run_id)
        assert run.status is RunStatus.COMPLETED
        rounds = federation.coordinator.list_rounds(run.run_id)
        first = federation.arrays(rounds[0].model)
        for each in rounds[1:]:
            whole = federation.whole_round(run.run_id, each.number)
            model = federation.arrays(each.model)
            assert list(model) == list(first)
            sent = [federation.arrays(whole.updates[name].payload.tensor_group(MODEL)) for name in ("ann", "bob")]
            assert [list(update) for update in sent] == [["base.weight"], ["base.weight"]]
            counts = [sum(client.counts) for client in federation.clients.values()]
            mean = np.average([update["base.weight"].astype(np.float64) for update in sent], axis=0, weights=counts)
            np.testing.assert_allclose(model["base.weight"], mean, rtol=1e-6, atol=1e-7)
            for name in ("head.weight", "head.steps"):
                assert model[name].tobytes() == first[name].tobytes()
        line = json.loads(federation.metrics_lines(run.run_id)[-1])
        assert line["accuracy_of"] == "local"
        assert line["accuracy"] == line["accuracy_local"]
        assert replay(folder, run.run_id, 2).is_equal


@pytest.mark.parametrize(
    ("change", "check", "tensor"),
    [
        (lambda model, head: {**model, "head.weight": head}, "keys", "head.weight"),
        (lambda model, head: {"head.weight": head}, "keys", "base.weight"),
        (lambda model, head: {**model, "other": head}, "keys", "other"),
        (lambda model, head: {"base.weight": model["base.weight"][:-1]}, "shape", "base.weight"),
        (lambda model, head: {"base.weight": model["base.weight"].astype(np.int64)}, "dtype", "base.weight"),
        (lambda model, head: {"base.weight": model["base.weight"] * np.float32("nan")}, "finite", None),
    ],
    ids=["a head", "no base", "a foreign tensor", "another shape", "another dtype", "not finite"],
)
def test_what_is_not_the_base_is_refused_by_name(folder: Path, change: Any, check: str, tensor: str | None) -> None:
    with FedRep.small(folder) as federation:
        ann, task = federation.to_training()
        received = present(federation.fetch(ann, task))
        update, blobs = ann.work(task, received)
        (data,) = blobs.values()
        changed = to_bytes(change(from_bytes(data), from_bytes(received)["head.weight"]))
        blob = blob_ref(MODEL, changed)
        with pytest.raises(MalformedUpdate) as refusal:
            federation.submit(ann, task, replace(update, payload=Payload(tensor_groups=(blob,))), {blob: changed})
        assert refusal.value.metadata["check"] == check
        assert refusal.value.metadata.get("tensor") == tensor
        federation.submit(ann, task, update, blobs)


def test_the_norm_of_an_update_is_of_what_it_has(folder: Path) -> None:
    with FedRep.small(folder) as federation:
        ann, task = federation.to_training(admission={"max_update_norm": 1.0})
        received = present(federation.fetch(ann, task))
        update, blobs = ann.work(task, received)
        (data,) = blobs.values()
        difference = from_bytes(data)["base.weight"].astype(np.float64) - from_bytes(received)["base.weight"]
        with pytest.raises(UpdateNormExceeded) as refusal:
            federation.submit(ann, task, update, blobs)
        assert float(refusal.value.metadata["norm"]) == pytest.approx(np.linalg.norm(difference), rel=1e-6)


@pytest.mark.parametrize("hyper", [{}, OWN], ids=["heads uploaded", "heads kept"])
@pytest.mark.parametrize("part", ["missing", "nothing", "all"])
def test_a_first_model_whose_head_is_not_said_or_no_part_is_refused(
    folder: Path, hyper: dict[str, Any], part: str
) -> None:
    with FedRep.small(folder) as federation:
        federation.begin_with(hyper)
        ann = federation.clients["ann"]
        task = federation.task(ann)
        update, blobs = ann.work(task, None)
        (data,) = blobs.values()
        lists = {**update.payload.int_lists, "head": {"missing": (), "nothing": (), "all": (0, 1, 2)}[part]}
        if part == "missing":
            del lists["head"]
        assert tensor_lists(data)["parameters"]
        with pytest.raises(MalformedUpdate, match="head") as refusal:
            federation.submit(ann, task, replace(update, payload=replace(update.payload, int_lists=lists)), blobs)
        assert (refusal.value.metadata["check"], refusal.value.metadata["list"]) == ("tensor_lists", "head")
