"""An update whose blobs come with its commit counts as an uploaded one; a refused one leaves nothing behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.shared.errors import BlobCorrupt, BlobNotFound, BlobTooLarge, MalformedUpdate, StaleRound, UpdateConflict
from fedplcc.shared.tensors import blob_ref, from_bytes, to_bytes
from fedplcc.shared.types import CommittedUpdate, Run, RunStatus, Task, Update
from tests.support.failpoints import hooked
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient

LIMIT = 4000
JOINED = (NumpyClient("ann", size=3), NumpyClient("bob", size=3))
LIMITS = Limits(max_inline_bytes=LIMIT)


def commit(
    federation: LocalFederation, client: NumpyClient, task: Task, update: Update, *inline: bytes
) -> CommittedUpdate:
    assert task.run is not None
    return federation.coordinator.commit_update(
        client.client_id, client.token, task.run.run_id, task.round, update, inline
    )


def files(federation: LocalFederation) -> set[str]:
    """Every file that holds bytes of blobs."""
    folders = ("blobs", "incoming", "staging")
    return {str(path) for name in folders for path in (federation.folder / name).rglob("*") if path.is_file()}


def test_inline_and_uploaded_updates_end_in_the_same_bytes(tmp_path: Path) -> None:
    ends = []
    for name, limit in (("uploaded", 0), ("inline", LIMIT)):
        (tmp_path / name).mkdir()
        clients = (NumpyClient("ann", size=3), NumpyClient("bob", size=3))
        with LocalFederation(tmp_path / name, clients, Limits(max_inline_bytes=limit)) as federation:
            federation.is_inline = limit > 0
            run = federation.whole_run()
            assert run.status is RunStatus.COMPLETED
            assert (federation.folder / "incoming" / "ann").exists() is False
            ends.append((run.model, run.prototypes, federation.metrics_lines(run.run_id)))
    assert ends[0] == ends[1]


def test_one_blob_may_be_uploaded_and_the_other_come_with_the_commit(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    (model, data), (_prototypes, vectors) = blobs.items()
    federation.upload(ann, task, {model: data})
    with pytest.raises(BlobNotFound):
        commit(federation, ann, task, update)
    commit(federation, ann, task, update, vectors)
    assert not (federation.folder / "incoming" / "ann").exists()


def test_a_repeated_inline_commit_gets_the_first_answer(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    first = commit(federation, ann, task, update, *blobs.values())
    before, kept = federation.coordinator.get_run(run.run_id), files(federation)
    assert commit(federation, ann, task, replace(update, timings={"train_seconds": 9.0}), *blobs.values()) == first
    assert commit(federation, ann, task, update) == first
    federation.restart()
    assert commit(federation, ann, task, update, *blobs.values()) == first
    assert federation.coordinator.get_run(run.run_id).current_round == before.current_round
    assert files(federation) == kept
    assert len(federation.events(run.run_id, "update_committed")) == 2  # of rounds 0 and 1


def test_another_inline_update_is_a_conflict_and_leaves_nothing(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    commit(federation, ann, task, update, *blobs.values())
    kept = files(federation)
    with pytest.raises(UpdateConflict):
        commit(federation, ann, task, replace(update, losses={"ce": 7.0}), *blobs.values())
    assert files(federation) == kept


def test_refused_inline_updates_leave_nothing_on_the_disk(
    federation: LocalFederation, run: Run, ann: NumpyClient
) -> None:
    task, update, blobs = federation.work(ann)
    (model, data), (_prototypes, vectors) = blobs.items()
    kept = files(federation)
    tensors = from_bytes(data).items()
    poison = to_bytes(
        {name: np.full_like(array, np.nan) if array.dtype == np.float32 else array for name, array in tensors}
    )
    spoilt = blob_ref(model.role, poison)
    poisoned = replace(update, payload=replace(update.payload, tensor_groups=(spoilt,)))
    with pytest.raises(MalformedUpdate) as refusal:
        commit(federation, ann, task, poisoned, poison, vectors)
    assert refusal.value.metadata["check"] == "finite"
    with pytest.raises(BlobCorrupt):
        commit(federation, ann, task, update, data[:-1] + b"!", vectors)
    with pytest.raises(BlobCorrupt):
        commit(federation, ann, task, update, data, vectors, b"more")
    lying = replace(model, size_bytes=model.size_bytes + 1)
    with pytest.raises(BlobCorrupt):
        commit(
            federation,
            ann,
            task,
            replace(update, payload=replace(update.payload, tensor_groups=(lying,))),
            data,
            vectors,
        )
    with pytest.raises(BlobTooLarge):
        commit(federation, ann, task, update, bytes(LIMIT + 1))
    with pytest.raises(BlobNotFound):
        commit(federation, ann, task, update, data)
    with pytest.raises(StaleRound):
        commit(federation, ann, replace(task, round=0), update, data, vectors)
    assert files(federation) == kept
    reasons = [event.data["reason"] for event in federation.events(run.run_id, "update_refused")]
    assert reasons == ["MALFORMED_UPDATE", "BLOB_CORRUPT", "BLOB_TOO_LARGE", "BLOB_NOT_FOUND", "STALE_ROUND"]
    commit(federation, ann, task, update, data, vectors)
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_an_aggregator_without_a_limit_takes_no_inline_blob(folder: Path) -> None:
    with LocalFederation(folder, [NumpyClient("ann", size=3)], Limits(max_inline_bytes=0)) as federation:
        federation.join()
        federation.create("fedavg")
        task = federation.task(federation.clients["ann"])
        update, blobs = federation.clients["ann"].work(task, None)
        with pytest.raises(BlobTooLarge):
            commit(federation, federation.clients["ann"], task, update, *blobs.values())


def test_a_blob_is_durable_before_its_row_is_written(federation: LocalFederation, run: Run, ann: NumpyClient) -> None:
    task, update, blobs = federation.work(ann)
    passed: list[str] = []
    with hooked(passed.append):
        commit(federation, ann, task, update, *blobs.values())
    row = passed.index("transition.update_committed.after")
    for step in ("blob.put.fsync.after", "blob.link.after", "blob.fsync_folder.after"):
        assert passed.count(step) == len(blobs), step
        assert max(index for index, name in enumerate(passed) if name == step) < row
