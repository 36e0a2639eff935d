"""What was checked once is checked where it is used: a bit that flips between gives no other bytes, but a named reason.

Updates, windows, slots and server arrays that a running aggregator folds are in test_damage.py, test_proto_window.py and
test_kept_between_rounds.py.
"""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fedplcc.aggregator.incoming.inline_blobs import SmallBlobs
from fedplcc.aggregator.servicer.blob_pieces import whole_pieces_of
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.reasons import BlobDamaged
from fedplcc.shared.steering import ResumeRun
from fedplcc.shared.types import BlobRef, RunStatus
from tests.support.federation.in_process import LocalFederation
from tests.support.federation.numpy_client import NumpyClient, a_document

ROOT = Path(__file__).parents[4]
READS = frozenset({"read_bytes", "read_regular", "open_regular", "pread", "preadv", "readinto", "file_digest"})
"""Calls that give the bytes of a file."""
OPENS = frozenset({"open", "fdopen", "memmap", "mmap"})

ASKED_AGAIN = "what speaks against its sender is hashed again first (commits.py); what is taken, the fold hashes"
NO_BLOB = "is no blob"
READERS = {
    "aggregator/computation/first_model_checks.py:_check_same_tensors": ASKED_AGAIN,
    "aggregator/computation/first_model_checks.py:_check_mapped_tensors": ASKED_AGAIN,
    "aggregator/computation/model_checks.py:check_model": ASKED_AGAIN,
    "aggregator/computation/update_checks.py:check_update": ASKED_AGAIN,
    "aggregator/computation/model_checks.py:model_norm": ASKED_AGAIN,
    "aggregator/computation/model_checks.py:update_norm": ASKED_AGAIN,
    "aggregator/computation/tensor_group_checks.py:check_uploads": ASKED_AGAIN,
    "aggregator/histories/layouts.py:Layouts.table": "hashed after the header was read",
    "aggregator/servicer/blob_pieces.py:_read_piece": "whole_pieces_of hashes; trainers do, and their second try is hashed",
    "aggregator/store/blobs/files.py:BlobFiles.open": "read_header, in tests and oracles alone",
    "aggregator/store/blobs/files.py:sha256_of": "hashes",
    "aggregator/store/blobs/hashed_reading.py:HashedBlob.block": "hashes what it gives",
    "aggregator/store/blobs/hashed_reading.py:HashedBlob._skip": "hashes what it reads",
    "aggregator/store/blobs/hashed_reading.py:whole_bytes": "hashes what it gives",
    "aggregator/store/blobs/uploads.py:Upload.__init__": "hashes what it received before it is whole",
    "fedplcc/state/backup.py:_copied": "hashes what it copies",
    "fedplcc/state/backup.py:_fsync": "reads nothing",
    "aggregator/app.py:_locked": "reads nothing",
    "aggregator/incoming/decoded_models.py:write_decoded": ASKED_AGAIN,
    "aggregator/identity/authority.py:_read": NO_BLOB,
    "aggregator/identity/sign_on/provider.py:secret_in": NO_BLOB,
    "aggregator/metrics/rounds.py:anonymous_bytes": NO_BLOB,
    "aggregator/store/blobs/blob_store.py:BlobStore.find_initial": "reads the name alone",
    "aggregator/store/database/revisions.py:_keep_copy": NO_BLOB,
    "aggregator/store/database/engines/sqlite.py:committed_count": NO_BLOB,
    "aggregator/store/opening.py:belonging": NO_BLOB,
    "fedplcc/state/audit.py:witnessed": NO_BLOB,
    "fedplcc/state/backup.py:read_manifest": NO_BLOB,
    "fedplcc/state/backup.py:_copy_authority": NO_BLOB,
}
"""Every function that reads bytes of a file, and who sees that they are those that were stored."""


# The search


def readers(source: str) -> Iterator[str]:
    """Names of the functions of a module that read bytes of files."""

    def within(node: ast.AST, scope: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.Call) and _reads(child):
                yield ".".join(scope)
            yield from within(child, (*scope, child.name) if named else scope)  # type: ignore[attr-defined]

    yield from within(ast.parse(source), ())


def _reads(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name not in OPENS:
        return name in READS
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return name != "open" or any("b" in mode and set(mode) & set("ra+") for mode in modes)


def found() -> set[str]:
    return {
        f"{path.relative_to(ROOT)}:{name}"
        for folder in ("aggregator", "fedplcc/state")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in readers(path.read_text(encoding="utf-8"))
    }


def test_every_reader_of_stored_bytes_is_known_and_has_somebody_who_checks_them() -> None:
    assert found() == set(READERS)


@pytest.mark.parametrize(
    "planted",
    [
        "path.read_bytes()",
        'path.open("rb")',
        'open(path, mode="r+b")',
        "os.pread(descriptor, 9, 0)",
        "np.memmap(path)",
        "mmap.mmap(descriptor, 0)",
        "disk.read_regular(path)",
    ],
)
def test_a_planted_reader_is_found(planted: str) -> None:
    assert list(readers(f"class New:\n    def reader(self, path):\n        return {planted}\n")) == ["New.reader"]


# Flipped between write and read


def flip(federation: LocalFederation, blob: BlobRef) -> bytes:
    """Flip the last bit of a stored blob; returns what it was."""
    path = federation.path_of(blob)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return data


JOINED = (NumpyClient("ann", size=3), NumpyClient("bob", size=3, counts=(2, 0, 7)))


async def collected(pieces: AsyncIterator[bytes], into: list[bytes]) -> None:
    async for data in pieces:
        into.append(data)


@pytest.mark.parametrize("which", ["model", "prototypes"])
def test_an_artifact_does_not_end_with_damaged_bytes(federation: LocalFederation, which: str) -> None:
    run = federation.whole_run()
    blob, path = federation.coordinator.artifact(run.run_id, -1, which)
    whole: list[bytes] = []
    asyncio.run(collected(whole_pieces_of(federation.coordinator, blob, 0), whole))
    assert b"".join(whole) == path.read_bytes()
    flip(federation, blob)
    got: list[bytes] = []
    with pytest.raises(PayloadCorrupt):
        asyncio.run(collected(whole_pieces_of(federation.coordinator, blob, 0), got))
    assert sum(map(len, got)) < blob.size_bytes
    with pytest.raises(PayloadCorrupt):
        federation.coordinator.artifact(run.run_id, -1, which)


def test_a_model_that_a_trainer_asks_for_again_is_hashed_and_parks_its_run(federation: LocalFederation) -> None:
    run = federation.create("fedplcc")
    federation.step()
    ann = federation.clients["ann"]
    (blob,) = federation.task(ann).payload.tensor_groups
    transfers = federation.coordinator.transfers
    transfers.open_download("ann", ann.token, blob.sha256)
    data = flip(federation, blob)
    transfers.sent_whole(ann.token, blob.sha256)
    with pytest.raises(PayloadCorrupt):
        transfers.open_download("ann", ann.token, blob.sha256)
    run = federation.coordinator.get_run(run.run_id)
    assert run.reason == BlobDamaged(round_number=1, role=blob.role, sha256=blob.sha256)
    federation.path_of(blob).write_bytes(data)
    federation.coordinator.steer(run.run_id, ResumeRun())
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED


def test_a_damaged_blob_goes_out_with_no_task(federation: LocalFederation) -> None:
    federation.create("fedplcc")
    federation.step()
    ann = federation.clients["ann"]
    (blob,) = federation.task(ann).payload.tensor_groups
    flip(federation, blob)
    blobs = federation.coordinator.small_blobs._blobs
    assert isinstance(blobs, BlobStore)
    assert SmallBlobs(blobs, max_inline_bytes=1 << 20).read([blob]) == ()
    with pytest.raises(PayloadCorrupt):
        federation.coordinator.transfers.open_download("ann", ann.token, blob.sha256)


def test_no_run_begins_with_damaged_prototypes(federation: LocalFederation) -> None:
    run = federation.whole_run()
    assert run.prototypes is not None
    flip(federation, run.prototypes)
    document = a_document(
        "fedplcc", run={"initial_model": f"run:{run.run_id}@{run.round_number}", "initial_prototypes": True}
    )
    with pytest.raises(PayloadCorrupt):
        federation.coordinator.create_run("another", document)


def test_the_layout_of_a_damaged_model_is_not_taken(federation: LocalFederation) -> None:
    run = federation.create("fedplcc")
    federation.step()
    federation.coordinator._layouts.forget(but_of=())
    run = federation.coordinator.get_run(run.run_id)
    assert run.model is not None
    flip(federation, run.model)
    with pytest.raises(PayloadCorrupt):
        federation.coordinator._layouts.table(run)


def test_an_update_that_looks_too_far_from_a_damaged_model_is_blamed_on_nobody(federation: LocalFederation) -> None:
    run = federation.create("fedplcc", admission={"max_update_norm": 1e6})
    federation.step(["ann"])
    run = federation.coordinator.get_run(run.run_id)
    assert run.model is not None
    bob = federation.clients["bob"]
    task, update, blobs = federation.work(bob)
    federation.upload(bob, task, blobs)
    path = federation.path_of(run.model)
    data = path.read_bytes()
    first = next(entry for entry in federation.coordinator._layouts.table(run).entries if entry.dtype == "F32")
    with path.open("r+b") as file:
        file.seek(first.begin)
        file.write(b"\xff\xff\x7f\x7f")  # the largest float32
    with pytest.raises(PayloadCorrupt):
        federation.coordinator.commit_update("bob", bob.token, run.run_id, 1, update)
    run = federation.coordinator.get_run(run.run_id)
    assert isinstance(run.reason, BlobDamaged)
    assert not run.rejections
    path.write_bytes(data)
    federation.coordinator.steer(run.run_id, ResumeRun())
    assert federation.run_to_end(run.run_id).status is RunStatus.COMPLETED
