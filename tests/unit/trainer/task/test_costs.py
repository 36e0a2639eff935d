"""What a task costs: models fetched, read, hashed and held once, and no byte sent that nobody needs."""

from __future__ import annotations

import hashlib
import io
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedplcc.shared.errors import InvalidModel
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import blob_ref, read_header
from fedplcc.shared.types import (
    FEATURE_DIM,
    MODEL,
    CommittedUpdate,
    Payload,
    PrototypeSet,
    TaskKind,
    Update,
)
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.models.latest_model import LatestModel
from tests.support import present
from tests.unit.trainer.builders import (
    some_prototypes,
)
from tests.unit.trainer.memory_aggregator import MemoryAggregator
from tests.unit.trainer.tasks import a_run, a_runner, a_task, a_train_task, first_model

DIM = 128


OWN = {"share_model": False}


@pytest.mark.parametrize(("method", "hyper"), [("fedccl", {}), ("fedproto", OWN), ("moon", {})])
def test_what_a_client_keeps_is_read_once_a_task_and_hashed_once_when_it_is_made_and_when_it_is_read(
    data: str, tmp_path: Path, method: str, hyper: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator, run = MemoryAggregator(), a_run(method, method=hyper)
    runner, folder = a_runner(data, tmp_path / "state"), tmp_path / "state"
    read: list[str] = []
    hashed: list[str] = []
    read_regular, sha256 = disk.read_regular, hashlib.sha256

    def reading(path: Path, *most: int) -> bytes:
        read.append(path.name)
        return read_regular(path, *most)

    def hashing(content: bytes = b"") -> Any:
        found = sha256(content)
        hashed.append(found.hexdigest())
        return found

    def counts(kind: TaskKind, number: int, kept: str) -> tuple[int, int]:
        """How often the bytes were read and hashed in a task."""
        read.clear()
        hashed.clear()
        task = a_task(aggregator, run, kind, number, prototypes=some_prototypes(DIM))
        with monkeypatch.context() as patched:
            patched.setattr(disk, "read_regular", reading)
            patched.setattr(hashlib, "sha256", hashing)
            runner.perform(task, aggregator)
        return read.count(kept), hashed.count(kept)

    def kept() -> str:
        state = present(ClientStates(folder).manifest.promoted["run-1"].state)
        return state.sha256

    runner.perform(a_task(aggregator, run, TaskKind.TRAIN, 1), aggregator)
    first = kept()
    assert counts(TaskKind.TRAIN, 2, first) == (1, 1)
    second = kept()
    assert second != first
    is_sent = second in {blob.sha256 for _, update in aggregator.updates for blob in update.payload.blobs}
    assert is_sent is (hyper != OWN)
    assert hashed.count(second) == 1 + is_sent, (
        "once here, though it is sent and kept; where it is sent, once over there"
    )
    evaluates_it = method != "moon"
    assert counts(TaskKind.EVALUATE, 2, second) == (int(evaluates_it), int(evaluates_it))


@pytest.mark.parametrize(("method", "hyper"), [("fedccl", {}), ("fedproto", OWN), ("moon", {})])
def test_what_a_client_kept_is_let_go_before_its_next_update_is_sent(
    data: str, tmp_path: Path, method: str, hyper: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is sent for minutes does not lie in memory beside the one before it."""
    held: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    state = ClientStates.state

    def watched(states: ClientStates, run_id: str) -> ClientState | None:
        found = state(states, run_id)
        held.extend(map(weakref.ref, (found or {}).values()))
        return found

    class Sending(MemoryAggregator):
        def commit_update(
            self, run_id: str, number: int, update: Update, inline: Sequence[bytes] = ()
        ) -> CommittedUpdate:
            alive.extend(array() is not None for array in held)
            return super().commit_update(run_id, number, update, inline)

    monkeypatch.setattr(ClientStates, "state", watched)
    aggregator, run = Sending(), a_run(method, method=hyper)
    runner = a_runner(data, tmp_path)
    for number in (1, 2):
        task = a_task(aggregator, run, TaskKind.TRAIN, number, prototypes=some_prototypes(DIM))
        runner.perform(task, aggregator)
    assert alive == [False] * len(held) != []


def test_clients_of_one_process_fetch_a_model_once_and_report_what_each_receives(data: str) -> None:
    def fetched(latest_models: list[LatestModel] | list[None]) -> tuple[int, list[Update], list[float]]:
        aggregator = MemoryAggregator()
        train = a_train_task(aggregator, data, a_run("fedavg"))
        for latest_model in latest_models:
            a_runner(data, latest_model=latest_model).perform(train, aggregator)
        contents = [replace(update, timings={}) for _, update in aggregator.updates]
        return (
            aggregator.fetched.count(MODEL),
            contents,
            [update.timings["received_bytes"] for _, update in aggregator.updates],
        )

    shared = LatestModel()
    (once, updates, received), (twice, same, expected) = fetched([shared] * 2), fetched([None] * 2)
    assert (once, twice) == (1, 2)
    assert updates == same
    assert received == expected


def test_another_model_takes_the_place_of_the_latest() -> None:
    latest = LatestModel()
    first, second = blob_ref(MODEL, b"first"), blob_ref(MODEL, b"second")
    latest.put(first, b"first")
    assert latest.get(first) == b"first"
    latest.put(second, b"second")
    assert latest.get(first) is None
    assert latest.get(second) == b"second"


def test_a_small_update_comes_with_its_commit_and_a_larger_one_is_stored_before(data: str, tmp_path: Path) -> None:
    for is_inline in (True, False):
        aggregator = MemoryAggregator()
        task = a_train_task(aggregator, data, a_run("fedplcc"))
        whole = MemoryAggregator()
        a_runner(data, tmp_path / "whole").perform(a_train_task(whole, data, a_run("fedplcc")), whole)
        blobs = {sha256: content for sha256, (content, _) in whole.stored.items()}
        aggregator.max_inline_bytes = sum(map(len, blobs.values())) - (not is_inline)
        a_runner(data, tmp_path / str(is_inline)).perform(task, aggregator)
        ((_, update),) = aggregator.updates
        assert update.same_content(whole.updates[0][1])
        sent = tuple(blobs[blob.sha256] for blob in update.payload.blobs)
        assert aggregator.inline == [sent if is_inline else ()]
        assert {name: content for name, (content, _) in aggregator.stored.items()} == ({} if is_inline else blobs)
        assert update.timings["sent_bytes"] == sum(map(len, sent))


def test_a_method_without_prototypes_sends_and_asks_for_none(data: str) -> None:
    aggregator = MemoryAggregator()
    a_runner(data).perform(a_train_task(aggregator, data, a_run("fedavg")), aggregator)
    ((_, update),) = aggregator.updates
    assert update.payload.prototype_sets == ()
    assert list(aggregator.stored) == [update.payload.tensor_group(MODEL).sha256]


def test_the_first_update_lists_tensors_by_their_place_in_the_file(data: str) -> None:
    update, model = first_model(data, a_run())
    names = [entry.name for entry in read_header(io.BytesIO(model)).entries]
    lists = {
        name: [names[place] for place in places]
        for name, places in update.payload.int_lists.items()
        if name != FEATURE_DIM
    }
    assert lists.keys() == {"parameters", "head", "batch_norm"}
    assert lists["head"] == [name for name in names if name.startswith("classifier.")]
    assert set(lists["parameters"]) | set(lists["batch_norm"]) == set(names)


def test_evaluation_counts_the_test_set_per_class_of_the_run(data: str) -> None:
    aggregator = MemoryAggregator()
    train = a_train_task(aggregator, data, a_run())
    payload = Payload(tensor_groups=train.payload.tensor_groups)
    a_runner(data).perform(replace(train, kind=TaskKind.EVALUATE, payload=payload), aggregator)
    ((number, evaluation),) = aggregator.evaluations
    (counts,) = evaluation.counts
    assert (number, evaluation.client_id, evaluation.domain) == (1, "ann", "hospital")
    assert (counts.set_name, counts.model, counts.total) == ("test", "global", (3, 0, 2))
    assert all(0 <= hits <= total for hits, total in zip(counts.correct, counts.total, strict=True))


def test_prototypes_of_another_feature_size_are_refused(data: str) -> None:
    aggregator = MemoryAggregator()
    task = a_train_task(aggregator, data, a_run(), prototypes=PrototypeSet.of(np.ones((2, 5)), [0, 1], [1, 1]))
    with pytest.raises(InvalidModel, match="5 features"):
        a_runner(data).perform(task, aggregator)
