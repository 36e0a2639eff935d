"""Any number in any field of an update or a report, through a whole round of every method: taken or refused by name.

A number that is taken stops nothing: the run completes, is never parked, and its results are JSON. A number that is refused
leaves no trace: the client then sends what it should have sent.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedplcc.shared import types
from fedplcc.shared.bounds import MAX_VALUE
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods import METHODS
from fedplcc.shared.tensors import Array, blob_ref, from_bytes, prototypes_from_bytes, prototypes_to_bytes, to_bytes
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient
from tests.support.hosts.memory_folder import memory_folder

LIMITS = (0.0, -0.0, 5e-324, 1e-308, 1.0, -1.0, MAX_VALUE, -MAX_VALUE, 1e39, 1.7e308, -1.7e308, 1.7976931348623157e308)
FLOATS = st.sampled_from(LIMITS) | st.floats(allow_nan=False, allow_infinity=False)
FLOATS_32 = st.sampled_from([MAX_VALUE, -MAX_VALUE, 1e-45, 0.0, 1e30]) | st.floats(
    width=32, allow_nan=False, allow_infinity=False
)
INTEGERS = st.sampled_from([0, 1, -1, 2**31 - 1, 2**53, 2**63 - 1, -(2**63)]) | st.integers(-(2**63), 2**63 - 1)
MAPS = ("losses", "timings", "scalars", "evaluation timings", "readings")
COUNTS = ("num_examples", "num_excluded", "class_counts", "int_lists", "correct", "total")
TENSORS = ("model", "vectors", "weights")


@dataclass(frozen=True)
class Spoilt:
    """One field and the number that bob writes into it."""

    field: str
    value: float


SPOILT = (
    st.builds(Spoilt, st.sampled_from(MAPS), FLOATS)
    | st.builds(Spoilt, st.sampled_from(COUNTS), INTEGERS)
    | st.builds(Spoilt, st.sampled_from(TENSORS), FLOATS_32)
)


def spoil(
    update: types.Update, blobs: dict[types.BlobRef, bytes], spoilt: Spoilt
) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
    field, value = spoilt.field, spoilt.value
    payload = update.payload
    if field == "losses":
        return replace(update, losses={**update.losses, "ce": value}), blobs
    if field == "timings":
        return replace(update, timings={"train_seconds": value}), blobs
    if field == "scalars":
        return replace(update, payload=replace(payload, scalars={"s": value})), blobs
    if field == "int_lists":
        return replace(update, payload=replace(payload, int_lists={"steps": (int(value),)})), blobs
    if field == "num_examples":
        return replace(update, num_examples=int(value)), blobs
    if field == "num_excluded":
        return replace(update, num_excluded=int(value)), blobs
    if field == "class_counts":
        return replace(update, class_counts=(int(value), *update.class_counts[1:])), blobs
    if field in TENSORS:
        return _with_tensors(update, blobs, spoilt)
    return update, blobs


def _with_tensors(
    update: types.Update, blobs: dict[types.BlobRef, bytes], spoilt: Spoilt
) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
    made: dict[types.BlobRef, bytes] = {}
    groups, sets = [], []
    declared = update.payload.tensor_groups
    for blob, data in blobs.items():
        if blob.role == types.MODEL:
            if spoilt.field == "model":
                model = from_bytes(data)
                model["head.weight"] = np.full_like(model["head.weight"], spoilt.value)
                data = to_bytes(model)
            groups.append(blob_ref(types.MODEL, data))
            made[groups[-1]] = data
        elif blob in declared:
            if spoilt.field == "vectors":
                data = to_bytes({name: _filled(array, spoilt.value) for name, array in from_bytes(data).items()})
            groups.append(blob_ref(blob.role, data))
            made[groups[-1]] = data
        else:
            data = prototypes_to_bytes(_spoilt_prototypes(data, spoilt)) if spoilt.field != "model" else data
            sets.append(blob_ref(blob.role, data))
            made[sets[-1]] = data
    payload = replace(update.payload, tensor_groups=tuple(groups), prototype_sets=tuple(sets))
    return replace(update, payload=payload), made


def _filled(array: Array, value: float) -> Array:
    return np.full_like(array, value) if array.dtype == np.float32 else array


def _spoilt_prototypes(data: bytes, spoilt: Spoilt) -> types.PrototypeSet:
    prototypes = prototypes_from_bytes(data)
    vectors, weights = prototypes.vectors.copy(), prototypes.weights.copy()
    if spoilt.field == "vectors":
        vectors[0] = spoilt.value
    else:
        weights[0] = spoilt.value
    return types.PrototypeSet.of(vectors, prototypes.class_ids, weights)


def spoil_report(report: types.Evaluation, spoilt: Spoilt) -> types.Evaluation:
    if spoilt.field == "evaluation timings":
        return replace(report, timings={"evaluate": spoilt.value})
    if spoilt.field not in ("correct", "total"):
        return report
    first, *others = report.counts
    values: dict[str, Any] = {"correct": first.correct, "total": first.total}
    values[spoilt.field] = (int(spoilt.value), *values[spoilt.field][1:])
    return replace(report, counts=(types.EvaluationCounts(first.set_name, first.model, **values), *others))


def as_first(report: types.Evaluation, first: types.Evaluation | None) -> types.Evaluation:
    """The report with as many images as the first one said that there are, which binds."""
    if first is None:
        return report
    counts = [
        replace(now, total=then.total, correct=tuple(map(min, now.correct, then.total)))
        for now, then in zip(report.counts, first.counts, strict=True)
    ]
    return replace(report, counts=tuple(counts))


class Bob:
    """Sends spoilt numbers first, and if they are refused by name what he should have sent."""

    def __init__(self, federation: LocalFederation, spoilt: list[Spoilt]) -> None:
        self.federation, self.spoilt, self.client = federation, spoilt, federation.clients["bob"]
        self.taken: types.Evaluation | None = None

    def perform(self, task: types.Task) -> None:
        federation, client = self.federation, self.client
        if task.run is None:
            federation.idle(client)
            return
        readings = {one.field: one.value for one in self.spoilt if one.field == "readings"}
        run_id = task.run.run_id
        federation.heartbeat(client, activity=types.ClientActivity.TRAINING, run_id=run_id, readings=readings)
        model = federation.fetch(client, task)
        if task.kind is types.TaskKind.EVALUATE:
            assert model is not None
            right = as_first(client.evaluation(task, model), self.taken)
            wrong = right
            for one in self.spoilt:
                wrong = spoil_report(wrong, one)
            for report in (wrong, right):
                try:
                    federation.coordinator.report_evaluation("bob", client.token, run_id, task.round, report)
                    self.taken = self.taken or report
                    return
                except MalformedUpdate:
                    assert report is not right
            return
        update, blobs = client.work(task, model)
        wrong_update, wrong_blobs = update, blobs
        for one in self.spoilt:
            wrong_update, wrong_blobs = spoil(wrong_update, wrong_blobs, one)
        try:
            federation.submit(client, task, wrong_update, wrong_blobs)
        except MalformedUpdate:
            federation.submit(client, task, update, blobs)


@settings(max_examples=30, deadline=None)
@given(method=st.sampled_from(sorted(METHODS)), spoilt=st.lists(SPOILT, min_size=1, max_size=2))
@example(method="fedavg", spoilt=[Spoilt("losses", 1.7e308)])
@example(method="fedavg", spoilt=[Spoilt("total", 0)])
@example(method="fedproto", spoilt=[Spoilt("vectors", MAX_VALUE)])
@example(method="fedplcc", spoilt=[Spoilt("vectors", MAX_VALUE), Spoilt("model", MAX_VALUE)])
@example(method="creff", spoilt=[Spoilt("vectors", MAX_VALUE)])
@example(method="fcclplus", spoilt=[Spoilt("vectors", MAX_VALUE)])
@example(method="fcclplus", spoilt=[Spoilt("vectors", 0.0)])
def test_any_number_in_any_field_is_taken_or_refused_by_name_and_stops_nothing(
    method: str, spoilt: list[Spoilt]
) -> None:
    with memory_folder() as folder, LocalFederation(Path(folder), map(NumpyClient, ("ann", "bob"))) as federation:
        federation.join()
        run_id = federation.create(method, run={"rounds": 2}).run_id
        ann, bob = federation.clients["ann"], Bob(federation, spoilt)
        for _ in range(30):
            if federation.coordinator.has_ended(run_id):
                break
            federation.perform(ann, federation.task(ann))
            bob.perform(federation.task(bob.client))
            while federation.coordinator.work():
                pass
            federation.coordinator.tick()
        assert federation.coordinator.get_run(run_id).status is types.RunStatus.COMPLETED
        assert federation.events(run_id, "run_parked", "aggregation_failed") == []
        for line in federation.metrics_lines(run_id):
            assert all(math.isfinite(value) for value in json.loads(line)["loss"].values())
