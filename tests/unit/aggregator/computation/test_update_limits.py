"""Limits on updates, and what is held against a client whose updates are refused."""

from __future__ import annotations

import math
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.computation import model_checks
from fedplcc.aggregator.computation.model_checks import check_norm, update_norm
from fedplcc.aggregator.computation.prototype_checks import check_prototype_norms, max_prototype_bytes
from fedplcc.aggregator.rounds import refusals as admission
from fedplcc.shared.config.run import parse_run_config
from fedplcc.shared.errors import (
    ClientQuarantined,
    FedplccError,
    LateUpdate,
    MalformedUpdate,
    UpdateConflict,
    UpdateNormExceeded,
)
from fedplcc.shared.tensors import from_bytes, prototypes_to_bytes, read_header, to_bytes
from fedplcc.shared.types import LOCAL_CLUSTER, PrototypeSet, Rejections, Run, RunStatus, Task, TaskKind
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import FEATURE_DIM, NumpyClient, a_document
from tests.support.records.builders import a_run

BOB = NumpyClient("bob", counts=(2, 0, 7))
JOINED = (NumpyClient("ann"), BOB)


def training_task(federation: LocalFederation, **admission: object) -> Task:
    """Bob's task in round 1 of a run with this admission."""
    federation.create("fedavg", run={"rounds": 1}, admission=admission)
    ann = federation.clients["ann"]
    assert federation.perform(ann, federation.task(ann)), "ann makes the first model"
    task = federation.task(BOB)
    assert task.kind is TaskKind.TRAIN
    return task


def start_of(federation: LocalFederation, run: Run) -> bytes:
    """The run's global model, from the disk: a quarantined client gets no task to fetch it with."""
    assert run.model is not None
    sha256 = run.model.sha256
    return (federation.folder / "blobs" / sha256[:2] / sha256).read_bytes()


def norm_of(federation: LocalFederation, task: Task) -> float:
    """The norm of bob's honest update, computed at once in float64."""
    start = federation.fetch(BOB, task)
    assert start is not None
    model = from_bytes(start)
    trained = BOB.trained(task, model)
    floats = [name for name, value in model.items() if value.dtype == np.float32]
    differences = [trained[name].astype(np.float64) - model[name].astype(np.float64) for name in floats]
    return math.sqrt(sum(float((difference**2).sum()) for difference in differences))


def submit(federation: LocalFederation, task: Task, **changes: object) -> None:
    update, blobs = BOB.work(task, federation.fetch(BOB, task))
    federation.submit(BOB, task, replace(update, **changes), blobs)  # type: ignore[arg-type]


def test_an_update_within_the_limit_counts_and_the_history_says_its_norm(federation: LocalFederation) -> None:
    task = training_task(federation, max_update_norm=1e9)
    assert task.run is not None
    norm = norm_of(federation, task)
    run = federation.run_to_end(task.run.run_id)
    assert run.status is RunStatus.COMPLETED
    found = {
        event.client_id: event.data.get("update_norm")
        for event in federation.events(run.run_id, "update_committed")
        if event.round == 1
    }
    assert found["bob"] == pytest.approx(norm, rel=1e-12)
    assert run.rejections == {}


# The norm


def test_an_update_beyond_the_limit_is_refused_under_its_own_reason_with_its_norm(federation: LocalFederation) -> None:
    task = training_task(federation, max_update_norm=0.5)
    assert task.run is not None
    norm = norm_of(federation, task)
    with pytest.raises(UpdateNormExceeded) as refused:
        submit(federation, task)
    assert refused.value.detail == (
        f"the update's norm is {norm:.6g}; the run takes up to 0.5 (admission.max_update_norm)"
    )
    assert float(refused.value.metadata["norm"]) == pytest.approx(norm, rel=1e-8)
    assert federation.metric("client_updates_total", outcome="update_norm_exceeded") == 1
    assert federation.metric("run_updates_refused_total", run=task.run.run_id) == 1
    (event,) = federation.events(task.run.run_id, "update_refused")
    assert (event.client_id, event.data["reason"], event.data["check"]) == ("bob", "UPDATE_NORM_EXCEEDED", "norm")
    run = federation.coordinator.get_run(task.run.run_id)
    assert run.rejections["bob"].reason == "UPDATE_NORM_EXCEEDED"
    assert run.current_round is not None
    assert run.current_round.updates.keys() <= {"ann"}


def test_a_limit_that_the_norm_just_reaches_lets_it_in() -> None:
    check_norm(2.0, 2.0)
    with pytest.raises(UpdateNormExceeded):
        check_norm(math.nextafter(2.0, 3.0), 2.0)


def test_prototypes_within_the_limit_let_an_update_in_and_one_beyond_it_refuses_it(federation: LocalFederation) -> None:
    for limit in (1e9, 1e-9):
        run = federation.create("fedproto", run={"rounds": 1}, admission={"max_prototype_norm": limit})
        assert federation.perform(federation.clients["ann"], federation.task(federation.clients["ann"]))
        task = federation.task(BOB)
        if limit == 1e9:
            federation.run_to_end(run.run_id)
            continue
        with pytest.raises(UpdateNormExceeded, match=r"the run takes up to 1e-09 \(admission.max_prototype_norm\)"):
            submit(federation, task)
        refused = federation.coordinator.get_run(run.run_id).rejections["bob"]
        assert (refused.reason, refused.check) == ("UPDATE_NORM_EXCEEDED", "prototype_norm")
    assert federation.metric("client_updates_total", outcome="update_norm_exceeded") == 1


def test_more_prototypes_of_a_class_than_the_run_allows_refuse_an_update(federation: LocalFederation) -> None:
    run = federation.create("fedplcc", run={"rounds": 1}, admission={"max_prototypes_per_class": 1})
    assert federation.perform(federation.clients["ann"], federation.task(federation.clients["ann"]))
    with pytest.raises(
        MalformedUpdate, match=r"2 prototypes of class 0, at most 1 \(admission.max_prototypes_per_class\)"
    ):
        submit(federation, federation.task(BOB))
    refused = federation.coordinator.get_run(run.run_id).rejections["bob"]
    assert (refused.reason, refused.check) == ("MALFORMED_UPDATE", "count")


class ManyPrototypes(NumpyClient):
    """A client that sends the same prototype two hundred times."""

    def prototypes(self, task: Task, kind: str | None = LOCAL_CLUSTER) -> PrototypeSet:
        return PrototypeSet.of(np.ones((200, FEATURE_DIM)), np.zeros(200, np.int64), np.ones(200))


def test_a_prototype_set_larger_than_the_run_allows_is_not_even_read(federation: LocalFederation) -> None:
    federation.create("fedplcc", run={"rounds": 1}, admission={"max_prototypes_per_class": 5})
    assert federation.perform(federation.clients["ann"], federation.task(federation.clients["ann"]))
    task = federation.task(BOB)
    many = ManyPrototypes("bob", counts=BOB.counts)
    with pytest.raises(MalformedUpdate, match="a prototype set has at most 4756 bytes in this run") as refused:
        federation.submit(BOB, task, *many.work(task, federation.fetch(BOB, task)))
    assert refused.value.metadata["check"] == "size"


def test_the_largest_prototype_set_that_a_run_allows_has_room_for_all_its_rows() -> None:
    for dim in (1, 512):
        config = parse_run_config(a_document("fedplcc", admission={"max_prototypes_per_class": 5}))
        rows = 5 * len(config.data.classes)
        largest = PrototypeSet.of(np.ones((rows, dim)), np.zeros(rows, np.int64), np.ones(rows))
        assert len(prototypes_to_bytes(largest)) <= max_prototype_bytes(config, dim)


def test_prototype_norms_overflow_at_no_finite_value_and_none_are_no_longer_than_any() -> None:
    largest = float(np.finfo(np.float32).max)
    vectors = np.array([[0.0, 1.0], [largest, largest]], np.float32)
    ones = np.ones(2, np.int64)
    huge = PrototypeSet(vectors=vectors, class_ids=np.array([0, 2]), weights=ones.astype(np.float32), group_ids=-ones)
    check_prototype_norms(huge, math.sqrt(2.0) * largest * (1 + 1e-15))
    with pytest.raises(UpdateNormExceeded, match=r"a prototype of class 2 has norm 4\.81\d+e\+38"):
        check_prototype_norms(huge, largest)
    none = PrototypeSet(vectors=vectors[:0], class_ids=ones[:0], weights=np.zeros(0, np.float32), group_ids=ones[:0])
    check_prototype_norms(none, 1e-9)


def test_the_norm_leaves_integers_out_and_overflows_at_no_finite_value(tmp_path: Path) -> None:
    largest = float(np.finfo(np.float32).max)
    start = {"steps": np.array([0, 0]), "w": np.full(3, -largest, np.float32)}
    model = {"steps": np.array([2**62, -(2**62)]), "w": np.full(3, largest, np.float32)}
    for name, arrays in (("start", start), ("model", model)):
        (tmp_path / name).write_bytes(to_bytes(arrays))
    with (tmp_path / "start").open("rb") as file:
        table = read_header(file)
    assert update_norm(tmp_path / "start", tmp_path / "start", table) == 0
    assert update_norm(tmp_path / "model", tmp_path / "start", table) == pytest.approx(2 * largest * math.sqrt(3))


def test_measuring_the_norm_of_a_large_model_takes_no_more_memory_than_its_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    size = 12 << 20  # 48 MiB a model
    for name in ("start", "model"):
        (tmp_path / name).write_bytes(to_bytes({"w": rng.random(size, np.float32)}))
    with (tmp_path / "start").open("rb") as file:
        table = read_header(file)
    data_bytes = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes + (32 << 20), hard))
    try:
        norm = update_norm(tmp_path / "model", tmp_path / "start", table)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, hard))
    assert norm == pytest.approx(math.sqrt(size / 6), rel=1e-2)


def test_a_client_that_claims_more_samples_than_the_run_takes_is_refused(federation: LocalFederation) -> None:
    task = training_task(federation, max_num_examples=8)
    with pytest.raises(MalformedUpdate) as refused:
        submit(federation, task)
    assert refused.value.metadata["check"] == "num_examples"
    assert refused.value.detail == "num_examples = 9: the run takes up to 8 (admission.max_num_examples)"


def test_refusals_for_what_an_update_is_are_counted_through_a_restart(federation: LocalFederation) -> None:
    task = training_task(federation)
    assert task.run is not None
    for count in (1, 2):
        federation.clock.now += 10
        with pytest.raises(MalformedUpdate):
            submit(federation, task, num_excluded=-1)
        rejected = federation.coordinator.get_run(task.run.run_id).rejections["bob"]
        assert (rejected.count, rejected.check, rejected.round) == (count, "num_excluded", 1)
        assert rejected.last_at == federation.clock.now
        federation.restart()
        assert federation.task(BOB).key == task.key
        assert federation.coordinator.get_run(task.run.run_id).rejections["bob"] == rejected
    assert len(federation.events(task.run.run_id, "update_refused")) == 2, "one for each life of the aggregator"


def test_what_comes_late_or_twice_is_not_held_against_a_client(federation: LocalFederation) -> None:
    task = training_task(federation)
    assert task.run is not None
    submit(federation, task)
    with pytest.raises(UpdateConflict):
        submit(federation, task, losses={"ce": 7.0})
    federation.run_to_end(task.run.run_id)
    assert federation.coordinator.get_run(task.run.run_id).rejections == {}


@pytest.mark.parametrize(
    ("error", "speaks"),
    [
        (MalformedUpdate("x"), True),
        (UpdateNormExceeded("x"), True),
        (LateUpdate("x"), False),
        (UpdateConflict("x"), False),
    ],
)
def test_only_an_update_that_is_wrong_in_itself_speaks_against_its_sender(error: FedplccError, speaks: bool) -> None:
    assert admission.speaks_against_sender(error) is speaks


def test_a_client_is_quarantined_at_its_limit_and_never_without_one() -> None:
    run = a_run()
    assert admission.why_quarantined(run, "bob", 1) is None
    run = admission.reject(run, "bob", 1, MalformedUpdate("it is NaN", check="finite"), now=5.0)
    assert admission.why_quarantined(run, "bob", None) is None
    assert admission.why_quarantined(run, "bob", 2) is None
    assert admission.why_quarantined(run, "ann", 1) is None
    assert admission.why_quarantined(run, "bob", 1) == "1 update was refused, the last one because it is NaN"
    run = admission.reject(run, "bob", 2, UpdateNormExceeded("it is far", check="norm"), now=6.0)
    assert admission.why_quarantined(run, "bob", 2) == "2 updates were refused, the last one because it is far"
    assert run.rejections == {
        "bob": Rejections(
            count=2, reason="UPDATE_NORM_EXCEEDED", check="norm", detail="it is far", round=2, last_at=6.0
        )
    }


# What is held against a client


def test_a_client_whose_updates_keep_being_refused_is_quarantined_and_told_why(federation: LocalFederation) -> None:
    task = training_task(federation, quarantine_after=2)
    assert task.run is not None
    why = "2 updates were refused, the last one because num_excluded = -1: out of range"
    for _ in range(2):
        assert federation.task(BOB).kind is TaskKind.TRAIN
        with pytest.raises(MalformedUpdate):
            submit(federation, task, num_excluded=-1)
    run = federation.coordinator.get_run(task.run.run_id)
    assert run.quarantined == {"bob": why}
    waiting = federation.task(BOB)
    assert waiting.kind is TaskKind.WAIT
    assert waiting.detail == f"run {run.run_id} has quarantined this client: {why}"
    good, blobs = BOB.work(task, start_of(federation, run))
    with pytest.raises(ClientQuarantined) as refused:
        federation.submit(BOB, task, good, blobs)
    assert refused.value.detail == f"client bob is quarantined in this run: {why}"
    assert federation.metric("client_updates_total", outcome="client_quarantined") == 1
    (event,) = federation.events(run.run_id, "client_quarantined")
    assert (event.client_id, event.data["reason"]) == ("bob", why)
    federation.restart()
    assert federation.task(BOB).kind is TaskKind.WAIT


def test_a_client_that_the_configuration_quarantines_is_never_asked(federation: LocalFederation) -> None:
    run = federation.create("fedavg", run={"rounds": 1}, admission={"quarantined": ["ann"]})
    assert federation.task(NumpyClient("ann")).detail.endswith(
        "quarantined this client: the run's configuration says so"
    )
    run = federation.run_to_end(run.run_id)
    assert run.status is RunStatus.COMPLETED
    cohorts = [event.data["cohort"] for event in federation.events(run.run_id, "round_opened")]
    assert cohorts == [["bob"], ["bob"]], "bob makes the first model, too"


def test_only_so_many_clients_are_remembered_those_of_the_latest_refusals() -> None:
    run = a_run()
    names = [f"client-{number}" for number in range(admission.MAX_CLIENTS + 2)]
    for at, name in enumerate(names):
        run = admission.reject(run, name, 1, MalformedUpdate("x"), now=float(at))
    assert set(run.rejections) == set(names[2:])
    run = admission.reject(run, names[2], 1, MalformedUpdate("x"), now=1e6)
    run = admission.reject(run, "another", 1, MalformedUpdate("x"), now=2e6)
    assert run.rejections[names[2]].count == 2
    assert names[3] not in run.rejections


def test_a_long_sentence_is_kept_cut() -> None:
    run = admission.reject(a_run(), "bob", 1, MalformedUpdate("x" * 10_000), now=5.0)
    assert len(run.rejections["bob"].detail) == admission.MAX_DETAIL


def test_a_small_model_has_the_norm_that_its_blocks_give_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    shapes = ((7, 300), (1,), (0, 3), (64, 129), ())
    files = []
    for name in ("model", "start"):
        tensors = {f"t{index}": rng.normal(size=shape).astype(np.float32) for index, shape in enumerate(shapes)}
        files.append(tmp_path / name)
        files[-1].write_bytes(to_bytes({**tensors, "t2.count": np.array([1, 2], np.int64)}))
    with files[0].open("rb") as file:
        table = read_header(file)
    small = update_norm(files[0], files[1], table)
    monkeypatch.setattr(model_checks, "SMALL_BYTES", 0)
    assert update_norm(files[0], files[1], table) == small > 0
