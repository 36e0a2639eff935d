"""Every way in which a bad client could hurt a run: each is refused by its own check, counted, and changes nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import safetensors.numpy

from fedplcc.aggregator.computation import prototype_checks
from fedplcc.shared import types
from fedplcc.shared.bounds import MAX_EXAMPLES
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import MalformedUpdate
from fedplcc.shared.methods.parts.prototypes import MAX_ROWS, MAX_ROWS_PER_CLASS, excess_rows
from fedplcc.shared.methods.prototypical import fedplcc
from fedplcc.shared.tensors import blob_ref, prototypes_to_bytes, to_bytes
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.oracles.federation_result import expected

BOB = NumpyClient("bob", counts=(2, 0, 7))
"""Has no sample of class 1, and nine altogether."""


@dataclass
class Sent:
    """What bob is about to send, in parts that a test may spoil."""

    update: types.Update
    model: dict[str, Any]
    prototypes: types.PrototypeSet

    def with_blobs(self, model: bytes, prototypes: bytes) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        blobs = {blob_ref(types.MODEL, model): model, blob_ref(types.LOCAL_CLUSTER, prototypes): prototypes}
        group, protos = blobs
        payload = replace(self.update.payload, tensor_groups=(group,), prototype_sets=(protos,))
        return replace(self.update, payload=payload), blobs


Poison: TypeAlias = Callable[[Sent], tuple[types.Update, dict[types.BlobRef, bytes]]]


def saying(**changes: Any) -> Poison:
    """The right blobs with something else in the message."""

    def poison(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        update, blobs = sent.with_blobs(to_bytes(sent.model), prototypes_to_bytes(sent.prototypes))
        return replace(update, **changes), blobs

    return poison


def in_payload(**changes: Any) -> Poison:
    """The right blobs with something else among the payload's names."""

    def poison(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        update, blobs = sent.with_blobs(to_bytes(sent.model), prototypes_to_bytes(sent.prototypes))
        return replace(update, payload=replace(update.payload, **changes)), blobs

    return poison


def with_model(spoil: Callable[[dict[str, Any]], Mapping[str, Any] | bytes]) -> Poison:
    """Another model: arrays of any dtype, or bytes as they are."""

    def poison(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        spoilt = spoil({name: value.copy() for name, value in sent.model.items()})
        data = spoilt if isinstance(spoilt, bytes) else bytes(safetensors.numpy.save(dict(spoilt)))
        return sent.with_blobs(data, prototypes_to_bytes(sent.prototypes))

    return poison


def with_value(value: float) -> Poison:
    def spoil(model: dict[str, Any]) -> dict[str, Any]:
        model["head.weight"].flat[-1] = value
        return model

    return with_model(spoil)


def with_prototypes(spoil: Callable[[types.PrototypeSet], types.PrototypeSet | bytes]) -> Poison:
    """Another prototype set, or bytes in its place."""

    def poison(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        spoilt = spoil(sent.prototypes)
        data = spoilt if isinstance(spoilt, bytes) else prototypes_to_bytes(spoilt)
        return sent.with_blobs(to_bytes(sent.model), data)

    return poison


def with_entry(field: str, index: int | tuple[int, int], value: float) -> Poison:
    """One number of the prototype set replaced."""

    def spoil(prototypes: types.PrototypeSet) -> types.PrototypeSet:
        array = getattr(prototypes, field).copy()
        array[index] = value
        return replace(prototypes, **{field: array})

    return with_prototypes(spoil)


def more_than_samples(prototypes: types.PrototypeSet) -> types.PrototypeSet:
    return types.PrototypeSet.of(np.ones((10, FEATURE_DIM)), [0] * 10, [1] * 10)


def moved_to_another_class(prototypes: types.PrototypeSet) -> types.PrototypeSet:
    """The same samples altogether, but more of class 0 than bob has."""
    return replace(prototypes, class_ids=np.zeros_like(prototypes.class_ids))


def tensors(prototypes: types.PrototypeSet, **changes: Any) -> bytes:
    arrays = {name: getattr(prototypes, name) for name in ("vectors", "class_ids", "weights", "group_ids")} | changes
    return bytes(safetensors.numpy.save({name: value for name, value in arrays.items() if value is not None}))


def laid_out_otherwise(model: dict[str, Any]) -> bytes:
    """The same tensors in another order in the file, with a header that tells the truth."""
    header, data = {}, b""
    for name in sorted(model, reverse=True):
        value = model[name]
        dtype = "I64" if value.dtype == np.int64 else "F32"
        header[name] = {
            "dtype": dtype,
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + value.nbytes],
        }
        data += value.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda model: {key: value for key, value in model.items() if key != name}


def shaped(shape: tuple[int, ...]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda model: model | {"base.weight": np.zeros(shape, np.float32)}


def typed(name: str, dtype: type) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda model: model | {name: model[name].astype(dtype)}


NAN, INF = float("nan"), float("inf")
MODEL_POISONS: dict[str, tuple[Poison, str]] = {
    "NaN": (with_value(NAN), "finite"),
    "infinity": (with_value(INF), "finite"),
    "another shape": (with_model(shaped((FEATURE_DIM, 10))), "shape"),
    "a shape that broadcasts": (with_model(shaped((1, FEATURE_DIM))), "shape"),
    "integers for floats": (with_model(typed("base.weight", np.int64)), "dtype"),
    "floats for integers": (with_model(typed("head.steps", np.float32)), "dtype"),
    "a dtype that does not travel": (with_model(typed("base.weight", np.float64)), "dtype"),
    "a missing tensor": (with_model(without("head.steps")), "keys"),
    "an extra tensor": (with_model(lambda model: model | {"extra": np.zeros(1, np.float32)}), "keys"),
    "another layout": (with_model(laid_out_otherwise), "layout"),
    "no safetensors at all": (with_model(lambda _model: b"PK\x03\x04 a pickle in a zip" * 10), "header"),
    "metadata": (with_model(lambda model: bytes(safetensors.numpy.save(model, metadata={"exec": "rm"}))), "header"),
    "bytes beyond the tensors": (with_model(lambda model: to_bytes(model) + b"\x00" * 8), "offsets"),
}
COUNT_POISONS: dict[str, tuple[Poison, str]] = {
    "no sample": (saying(num_examples=0, class_counts=(0, 0, 0)), "num_examples"),
    "one sample more than it has": (saying(num_examples=10, class_counts=(3, 0, 7)), "num_examples"),
    "class counts that do not sum": (saying(class_counts=(2, 0, 6)), "class_counts"),
    "negative class counts that sum": (saying(class_counts=(2, -1, 8)), "class_counts"),
    "too few class counts": (saying(class_counts=(2, 7)), "class_counts"),
    "no class counts": (saying(class_counts=()), "class_counts"),
    "a negative number excluded": (saying(num_excluded=-1), "num_excluded"),
    "more excluded than there are": (saying(num_excluded=10), "num_excluded"),
    "excluded samples that are represented": (saying(num_excluded=1), "sum"),
    "a NaN loss": (saying(losses={"ce": NAN}), "entries"),
    "a NaN timing": (saying(timings={"train_seconds": NAN}), "entries"),
    "too many losses": (saying(losses={f"term{index}": 1.0 for index in range(65)}), "entries"),
    "an endless name": (saying(losses={"x" * 65: 1.0}), "entries"),
    "a NaN scalar": (in_payload(scalars={"norm": NAN}), "entries"),
    "too many integer lists": (in_payload(int_lists={f"list{index}": (1,) for index in range(65)}), "entries"),
    "too much metadata": (in_payload(metadata={f"key{index}": "" for index in range(65)}), "entries"),
}
PROTOTYPE_POISONS: dict[str, tuple[Poison, str]] = {
    "another dimension": (with_prototypes(lambda each: replace(each, vectors=each.vectors[:, :-1])), "dim"),
    "a class beyond the last": (with_entry("class_ids", -1, 3), "class_id"),
    "a negative class": (with_entry("class_ids", 0, -1), "class_id"),
    "a class of which it has no sample": (with_entry("class_ids", 0, 1), "class_id"),
    "an impossible group": (with_entry("group_ids", 0, -2), "group_id"),
    "a zero weight": (with_entry("weights", 0, 0), "weight"),
    "a fractional weight": (with_entry("weights", 0, 0.5), "weight"),
    "a NaN weight": (with_entry("weights", 0, NAN), "finite"),
    "a NaN vector": (with_entry("vectors", (0, 0), NAN), "finite"),
    "weights that do not add up": (with_entry("weights", -1, 5), "sum"),
    "more of a class than it has": (with_prototypes(moved_to_another_class), "sum"),
    "none at all": (with_prototypes(lambda _prototypes: types.PrototypeSet.empty(FEATURE_DIM)), "sum"),
    "more than samples": (with_prototypes(more_than_samples), "count"),
    "a missing tensor": (with_prototypes(lambda prototypes: tensors(prototypes, group_ids=None)), "keys"),
    "a model in their place": (with_prototypes(lambda _prototypes: to_bytes(BOB.first_model())), "keys"),
}


def as_role(role: str, kind: str) -> Poison:
    def poison(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
        update, blobs = sent.with_blobs(to_bytes(sent.model), prototypes_to_bytes(sent.prototypes))
        group, protos = blobs
        payload = types.Payload(
            tensor_groups=(replace(group, role=role),), prototype_sets=(replace(protos, role=kind),)
        )
        return replace(update, payload=payload), blobs

    return poison


def twice(sent: Sent) -> tuple[types.Update, dict[types.BlobRef, bytes]]:
    update, blobs = sent.with_blobs(to_bytes(sent.model), prototypes_to_bytes(sent.prototypes))
    groups = (*update.payload.tensor_groups, replace(update.payload.tensor_groups[0], role="second"))
    return replace(update, payload=replace(update.payload, tensor_groups=groups)), blobs


ROLE_POISONS: dict[str, tuple[Poison, str]] = {
    "a model of another role": (as_role("gradient", types.LOCAL_CLUSTER), "roles"),
    "prototypes of another kind": (as_role(types.MODEL, "global_cluster"), "roles"),
    "two models": (twice, "roles"),
    "no model": (in_payload(tensor_groups=()), "roles"),
    "no prototypes": (in_payload(prototype_sets=()), "roles"),
}
POISONS = {
    f"{what}: {name}": poison
    for what, poisons in (
        ("model", MODEL_POISONS),
        ("counts", COUNT_POISONS),
        ("prototypes", PROTOTYPE_POISONS),
        ("roles", ROLE_POISONS),
    )
    for name, poison in poisons.items()
}


JOINED = (NumpyClient("ann"), BOB)


def assert_ends_right(federation: LocalFederation, run_id: str, method: str = "fedplcc", rounds: int = 1) -> None:
    run = federation.run_to_end(run_id)
    config = parse_run_config(a_document(method, run={"rounds": rounds}))
    right = expected(config, list(federation.clients.values()))
    assert run.status is types.RunStatus.COMPLETED
    assert run.model is not None
    assert run.prototypes is not None
    assert (run.model.sha256, run.prototypes.sha256) == (right.models[-1], right.prototypes[-1])


def assert_refused(
    federation: LocalFederation, task: types.Task, update: types.Update, blobs: dict[types.BlobRef, bytes]
) -> str:
    """Send it, twice; returns the check that refused it."""
    client = federation.clients[update.client_id]
    assert task.run is not None
    before = federation.coordinator.get_run(task.run.run_id)
    for _ in range(2):
        with pytest.raises(MalformedUpdate) as refused:
            federation.submit(client, task, update, blobs)
    after = federation.coordinator.get_run(task.run.run_id)
    assert replace(after, rejections={}) == before
    (rejected,) = after.rejections.items()
    assert rejected[0] == client.client_id
    assert (rejected[1].count, rejected[1].check) == (2, refused.value.metadata["check"])
    assert federation.metric("client_updates_total", outcome="malformed_update") == 2
    (event,) = federation.events(task.run.run_id, "update_refused")
    assert (event.client_id, event.round, event.data["reason"]) == (client.client_id, task.round, "MALFORMED_UPDATE")
    assert event.data["detail"] == refused.value.detail
    assert event.data["check"] == refused.value.metadata["check"]
    return str(refused.value.metadata["check"])


def training(federation: LocalFederation) -> tuple[types.Run, types.Task]:
    """A run that has ann's update of round 1, and bob's task in it."""
    run = federation.create("fedplcc", run={"rounds": 1})
    federation.step(["ann"])
    federation.step(["ann"])
    task = federation.task(BOB)
    assert (task.kind, task.round) == (types.TaskKind.TRAIN, 1)
    return run, task


def what_bob_sends(federation: LocalFederation, task: types.Task) -> Sent:
    update, _blobs = BOB.work(task, federation.fetch(BOB, task))
    model = {name: np.asarray(value) for name, value in BOB.trained(task, BOB.first_model()).items()}
    return Sent(update, model, BOB.prototypes(task))


@pytest.mark.parametrize("poison", POISONS)
def test_a_poisoned_update_is_refused_by_its_check_and_the_run_is_unharmed(
    federation: LocalFederation, poison: str
) -> None:
    run, task = training(federation)
    spoil, check = POISONS[poison]
    update, blobs = spoil(what_bob_sends(federation, task))
    assert assert_refused(federation, task, update, blobs) == check
    assert_ends_right(federation, run.run_id)


def test_prototypes_for_a_method_without_them_are_refused(federation: LocalFederation) -> None:
    run = federation.create("fedavg", run={"rounds": 1})
    federation.step(["ann"])
    task = federation.task(BOB)
    update, blobs = saying()(what_bob_sends(federation, task))
    assert assert_refused(federation, task, update, blobs) == "roles"
    assert_ends_right(federation, run.run_id, "fedavg")


def test_a_prototype_set_that_is_too_large_to_be_read_whole_is_refused(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, task = training(federation)
    update, blobs = saying()(what_bob_sends(federation, task))
    with monkeypatch.context() as patch:
        patch.setattr(prototype_checks, "MAX_PROTOTYPE_BYTES", update.payload.prototype_sets[0].size_bytes - 1)
        assert assert_refused(federation, task, update, blobs) == "size"
    assert_ends_right(federation, run.run_id)


def test_an_absurd_sample_count_is_refused_although_the_client_joined_with_it(federation: LocalFederation) -> None:
    run = federation.create("fedplcc", run={"rounds": 1})
    federation.step(["ann"])
    federation.step(["ann"])
    count = MAX_EXAMPLES + 1
    federation.coordinator.join(replace(BOB.record, num_examples=count, class_counts={"a": count}), BOB.token)
    task = federation.task(BOB)
    update, blobs = saying(num_examples=count, class_counts=(count, 0, 0))(what_bob_sends(federation, task))
    assert assert_refused(federation, task, update, blobs) == "num_examples"
    federation.coordinator.join(BOB.record, BOB.token)
    assert_ends_right(federation, run.run_id)


def test_samples_that_no_prototype_stands_for_are_told_and_taken(federation: LocalFederation) -> None:
    run, task = training(federation)

    def fewer(prototypes: types.PrototypeSet) -> types.PrototypeSet:
        kept = prototypes.weights > 1
        return types.PrototypeSet.of(prototypes.vectors[kept], prototypes.class_ids[kept], prototypes.weights[kept])

    sent = what_bob_sends(federation, task)
    excluded = int(sent.prototypes.weights.sum() - fewer(sent.prototypes).weights.sum())
    assert excluded > 0
    update, blobs = with_prototypes(fewer)(sent)
    federation.submit(BOB, task, replace(update, num_excluded=excluded), blobs)
    run = federation.run_to_end(run.run_id)
    assert json.loads(federation.metrics_lines(run.run_id)[0])["num_excluded"] == excluded


def claimed(class_counts: tuple[int, ...]) -> tuple[types.PrototypeSet, types.Update]:
    """One prototype of one sample for everything that a client claims to have."""
    class_ids = np.repeat(np.arange(len(class_counts)), class_counts)
    prototypes = types.PrototypeSet.of(np.ones((len(class_ids), 1)), class_ids, np.ones(len(class_ids)))
    return prototypes, types.Update(
        client_id="bob", payload=types.Payload(), num_examples=len(class_ids), class_counts=class_counts
    )


def check_claimed(class_counts: tuple[int, ...]) -> None:
    prototypes, update = claimed(class_counts)
    prototype_checks.check_prototypes(prototypes, update, method=fedplcc.METHOD, dim=1, class_counts=class_counts)


@pytest.mark.parametrize(
    ("class_counts", "sentence"),
    [
        ((3, MAX_ROWS_PER_CLASS + 1, 2), "4097 prototypes of class 1, at most 4096"),
        ((MAX_ROWS_PER_CLASS,) * 16 + (1,), "65537 prototypes, at most 65536"),
    ],
)
def test_a_set_that_would_cost_the_aggregator_hours_is_refused_though_its_counts_add_up(
    class_counts: tuple[int, ...], sentence: str
) -> None:
    with pytest.raises(MalformedUpdate, match=sentence) as refused:
        check_claimed(class_counts)
    assert refused.value.metadata["check"] == "count"


def test_the_largest_sets_are_taken() -> None:
    check_claimed((MAX_ROWS_PER_CLASS,) * (MAX_ROWS // MAX_ROWS_PER_CLASS))


def test_the_finest_partition_of_8192_samples_of_a_class_is_taken() -> None:
    # Pairs of directions that are each other's first neighbours: as many clusters as FINCH can give.
    angles_N = np.repeat(np.linspace(0, np.pi, 4096), 2) + np.tile([0, 1e-4], 4096)
    rows_ND = np.stack([np.cos(angles_N), np.sin(angles_N)], axis=1).astype(np.float32)
    report = fedplcc.client_report(rows_ND, np.zeros(8192, np.int64), 1, fedplcc.Config(partition="first"))
    assert len(report.prototypes) == MAX_ROWS_PER_CLASS
    assert excess_rows(report.prototypes, 1, MAX_ROWS_PER_CLASS) is None


def with_list(name: str, places: tuple[int, ...]) -> Callable[[types.Update], types.Update]:
    """Round 0's update with another list of its tensors, which are `head.steps`, `base.weight` and `head.weight`."""

    def poison(update: types.Update) -> types.Update:
        lists = {**update.payload.int_lists, name: places}
        return replace(update, payload=replace(update.payload, int_lists=lists))

    return poison


def with_payload(**changes: Any) -> Callable[[types.Update], types.Update]:
    return lambda update: replace(update, payload=replace(update.payload, **changes))


FIRST_POISONS: dict[str, tuple[Callable[[types.Update], types.Update] | bytes, str]] = {
    "NaN": (to_bytes({"w": np.array([NAN], np.float32)}), "finite"),
    "infinity": (to_bytes({"w": np.array([INF], np.float32)}), "finite"),
    "no model at all": (b"a model, honestly", "header"),
    "no elements": (to_bytes({"w": np.zeros((0, 6), np.float32)}), "elements"),
    "no feature size": (with_payload(int_lists={}), "roles"),
    "two feature sizes": (with_payload(int_lists={"feature_dim": (6, 6)}), "roles"),
    "a feature size of zero": (with_payload(int_lists={"feature_dim": (0,)}), "roles"),
    "a list of another name": (with_list("heads", (0,)), "tensor_lists"),
    "a tensor beyond the last": (with_list("head", (1, 3)), "tensor_lists"),
    "a negative place": (with_list("batch_norm", (-1,)), "tensor_lists"),
    "a tensor twice": (with_list("head", (1, 1)), "tensor_lists"),
    "places that descend": (with_list("parameters", (2, 1)), "tensor_lists"),
    "integers that are trained": (with_list("parameters", (0, 1, 2)), "tensor_lists"),
    "samples": (lambda update: replace(update, num_examples=3), "roles"),
    "no tensor group": (with_payload(tensor_groups=()), "roles"),
    "a NaN loss": (lambda update: replace(update, losses={"ce": NAN}), "entries"),
}


@pytest.mark.parametrize("poison", FIRST_POISONS)
def test_a_poisoned_first_model_is_refused_by_its_check_and_the_run_is_unharmed(
    federation: LocalFederation, poison: str
) -> None:
    run = federation.create("fedplcc", run={"rounds": 1})
    ann = federation.clients["ann"]
    task = federation.task(ann)
    assert task.kind is types.TaskKind.INIT
    change, check = FIRST_POISONS[poison]
    update, blobs = ann.work(task, None)
    if isinstance(change, bytes):
        blobs = {blob_ref(types.MODEL, change): change}
        change = with_payload(tensor_groups=tuple(blobs))
    assert assert_refused(federation, task, change(update), blobs) == check
    assert_ends_right(federation, run.run_id)


@pytest.mark.parametrize(
    "change",
    [with_payload(int_lists={"feature_dim": (FEATURE_DIM,)}), with_list("parameters", ())],
    ids=["none", "empty"],
)
def test_a_method_that_folds_what_is_trained_begins_only_with_its_list(
    federation: LocalFederation, change: Callable[[types.Update], types.Update]
) -> None:
    run = federation.create("fedopt", run={"rounds": 1})
    ann = federation.clients["ann"]
    task = federation.task(ann)
    update, blobs = ann.work(task, None)
    assert assert_refused(federation, task, change(update), blobs) == "tensor_lists"
    (event,) = federation.events(run.run_id, "update_refused")
    assert event.data["list"] == "parameters"
    assert "method fedopt needs round 0's list 'parameters'" in event.data["detail"]
    assert federation.run_to_end(run.run_id).status is types.RunStatus.COMPLETED
