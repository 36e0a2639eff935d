"""Runs with public images at an aggregator: targets travel, foreign images and bad groups are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.garbage.rules import Keep
from fedplcc.shared.errors import MalformedUpdate, PublicDataDiffers
from fedplcc.shared.methods.parts.public import PUBLIC
from fedplcc.shared.tensors import blob_ref, from_bytes, to_bytes
from fedplcc.shared.types import MODEL, PUBLIC_DATA, BlobRef, Payload, RunStatus, Task, TaskKind, Update
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

OTHER = (9,) * 32
Change = Callable[[Update, dict[BlobRef, bytes]], tuple[Update, dict[BlobRef, bytes]]]


class Other(NumpyClient):
    """A client whose updates are changed before they are sent."""

    change: Change | None = None

    def work(self, task: Task, model: bytes | None) -> tuple[Update, dict[BlobRef, bytes]]:
        update, blobs = super().work(task, model)
        if task.kind is TaskKind.INIT or self.change is None:
            return update, blobs
        return self.change(update, blobs)


def stored(folder: Path, blob: BlobRef | None) -> bytes:
    assert blob is not None
    return (folder / "blobs" / blob.sha256[:2] / blob.sha256).read_bytes()


def federation(folder: Path, bob: NumpyClient) -> LocalFederation:
    folder.mkdir(exist_ok=True)
    made = LocalFederation(folder, (NumpyClient("ann"), bob))
    made.join()
    return made


def begin(made: LocalFederation) -> None:
    """Begin a run, and let ann make the first model."""
    made.create("fcclplus", run={"rounds": 2})
    ann = made.clients["ann"]
    assert made.perform(ann, made.task(ann))


def refused(folder: Path, bob: NumpyClient) -> MalformedUpdate:
    """What bob is told of his first update; then ann's alone is not enough, and the run goes on waiting."""
    with federation(folder, bob) as made:
        begin(made)
        with pytest.raises(MalformedUpdate) as told:
            made.perform(bob, made.task(bob))
        ann = made.clients["ann"]
        assert made.perform(ann, made.task(ann))
        (run,) = made.coordinator.list_runs(limit=1)
        assert run.status is RunStatus.RUNNING
        return told.value


def test_the_means_of_a_round_come_with_the_next_rounds_tasks(folder: Path) -> None:
    with federation(folder, NumpyClient("bob")) as made:
        made.keep = Keep(models=None, updates=9)
        made.restart()
        made.join()
        run = made.create("fcclplus", run={"rounds": 3})
        ended = made.run_to_end(run.run_id)
        assert ended.status is RunStatus.COMPLETED
        rounds = [made.store.find_round(run.run_id, number) for number in (1, 2, 3)]
        for each in rounds:
            assert each is not None
            groups = [
                from_bytes(stored(folder, update.payload.tensor_group(PUBLIC)))
                for _, update in sorted(each.updates.items())
            ]
            kept = from_bytes(stored(folder, each.server_state[PUBLIC]))
            for name, array in kept.items():
                mean = np.mean([group[name].astype(np.float64) for group in groups], axis=0)
                np.testing.assert_array_equal(array, mean.astype(np.float32))


def test_a_client_with_other_public_images_is_refused_with_both_digests_and_the_run_goes_on(folder: Path) -> None:
    told = refused(folder, NumpyClient("bob", public_digest=OTHER))
    assert isinstance(told, PublicDataDiffers)
    assert bytes(OTHER).hex() in told.detail
    assert bytes(range(32)).hex() in told.detail
    assert told.metadata["check"] == "public_data"


def without_digest(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    return replace(update, payload=replace(update.payload, int_lists={})), blobs


def with_numbers(numbers: tuple[int, ...]) -> Change:
    def change(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
        return replace(update, payload=replace(update.payload, int_lists={PUBLIC_DATA: numbers})), blobs

    return change


def without_group(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
    (model,) = (blob for blob in blobs if blob.role == MODEL)
    return replace(update, payload=replace(update.payload, tensor_groups=(model,))), {model: blobs[model]}


def with_group(**arrays: np.ndarray | None) -> Change:
    def change(update: Update, blobs: dict[BlobRef, bytes]) -> tuple[Update, dict[BlobRef, bytes]]:
        (model,) = (blob for blob in blobs if blob.role == MODEL)
        (group,) = (blob for blob in blobs if blob.role == PUBLIC)
        changed = {**from_bytes(blobs[group]), **arrays}
        data = to_bytes({name: array for name, array in changed.items() if array is not None})
        blob = blob_ref(PUBLIC, data)
        payload = Payload(tensor_groups=(model, blob), int_lists=update.payload.int_lists)
        return replace(update, payload=payload), {model: blobs[model], blob: data}

    return change


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (without_digest, "public_data"),
        (with_numbers((1,) * 31), "public_data"),
        (with_numbers((256,) * 32), "public_data"),
        (with_numbers((-1,) * 32), "public_data"),
        (without_group, "roles"),
        (with_group(logits=None), "keys"),
        (with_group(more=np.zeros(1, np.float32)), "keys"),
        (with_group(logits=np.zeros((127, 3), np.float32)), "shape"),
        (with_group(logits=np.zeros((128, 3), np.int64)), "dtype"),
        (with_group(logits=np.full((128, 3), np.nan, np.float32)), "finite"),
        (with_group(logits=np.full((128, 3), 2e6, np.float32)), "upload"),
        (with_group(similarities=np.full((128, 63), 51.0, np.float32)), "upload"),
    ],
)
def test_what_is_wrong_with_an_update_is_named(folder: Path, change: Change, check: str) -> None:
    bob = Other("bob")
    bob.change = change
    assert refused(folder, bob).metadata["check"] == check


def test_round_0_says_which_images_the_run_has(folder: Path) -> None:
    for digest in ((), (1,) * 31, (300,) * 32):
        with federation(folder / str(len(digest)), NumpyClient("bob")) as made:
            made.clients["ann"].public_digest = digest
            made.create("fcclplus", run={"rounds": 2})
            ann = made.clients["ann"]
            with pytest.raises(MalformedUpdate, match="the 32 bytes of the SHA-256"):
                made.perform(ann, made.task(ann))


def test_a_run_without_public_images_takes_no_digest_in_round_0(folder: Path) -> None:
    with federation(folder, NumpyClient("bob")) as made:
        made.create("fedavg", run={"rounds": 2})
        ann = made.clients["ann"]
        update, blobs = ann.work(made.task(ann), None)
        lists = {**update.payload.int_lists, PUBLIC_DATA: tuple(range(32))}
        with pytest.raises(MalformedUpdate, match="round 0 has no list 'public_data'"):
            made.submit(ann, made.task(ann), replace(update, payload=replace(update.payload, int_lists=lists)), blobs)
