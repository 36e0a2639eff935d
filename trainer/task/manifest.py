"""Names of what a client keeps over restarts, and the pure rule by which it is kept, promoted, or dropped.

The bytes lie beside the manifest, see client_state.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from pydantic import TypeAdapter

from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import BlobRef, CommittedUpdate, ForgottenRun, Membership, Update
from fedplcc.shared.version import VERSION as PROGRAM

CLIENT_STATE = "client_state"
"""Role of the blob that holds a client's state."""
DATA_RECORD = "data_record"
"""Role of the blob that holds the record of a client's data in a run."""
KEPT_RECORDS = 32
"""Most records of runs that have ended."""
MANIFEST = "manifest.json"
VERSION = 1
"""Version of the manifest's form. Earlier ones are read; a later one, or a field that is not known, is refused.
A new field in what a manifest holds needs another version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A finished update that may not have been committed yet.

    Attributes:
        identity: Names the work that it is the result of; equal identities mean the same work on the same data.
        keeps_state: Whether the run's method keeps client state.
        state: The client state that is valid once the update is committed; None where it is empty.
        kind: The client's own kind of model, see `ClientSite.kind`; empty where it trained the run's.
    """

    identity: str
    run_id: str
    round: int
    update: Update
    keeps_state: bool = False
    state: BlobRef | None = None
    kind: str = ""

    @property
    def committed(self) -> CommittedUpdate:
        """The name under which an aggregator knows the update once it is committed."""
        return CommittedUpdate(self.run_id, self.round, tuple(blob.sha256 for blob in self.update.payload.blobs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """A client's state as of its last committed update in a run, and the kind of model that it is of; see `Staged`."""

    update: CommittedUpdate
    state: BlobRef | None
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Names of everything that is kept; `promoted` and `sent` are by run id."""

    staged: Staged | None = None
    promoted: Mapping[str, Promoted] = field(default_factory=dict)
    sent: Mapping[str, Staged] = field(default_factory=dict)
    """Each run's last committed update: the aggregator asks for it again if its own copy gets damaged."""
    data: Mapping[str, BlobRef] = field(default_factory=dict)
    """Each run's record of the client's data, see trainer/data/record.py."""
    ended: tuple[tuple[str, BlobRef], ...] = ()
    """The records of runs that have ended, the latest last: runs that begin from their models are compared with them."""

    @property
    def sha256s(self) -> set[str]:
        """SHA-256 of every blob that is named."""
        blobs = [entry.state for entry in self.promoted.values()]
        if self.staged is not None:
            blobs += [self.staged.state, *self.staged.update.payload.moved]
        blobs += [*self.data.values(), *(blob for _run_id, blob in self.ended)]
        blobs += [blob for staged in self.sent.values() for blob in staged.update.payload.moved]
        return {blob.sha256 for blob in blobs if blob is not None}

    @property
    def run_ids(self) -> set[str]:
        """Ids of the runs of which something is kept."""
        staged = set() if self.staged is None else {self.staged.run_id}
        return (
            staged | self.promoted.keys() | self.sent.keys() | self.data.keys() | {run_id for run_id, _ in self.ended}
        )


def promote(manifest: Manifest, *, keeps_sent: bool = False) -> Manifest:
    """Return the manifest after the staged update turned out to be committed; with `keeps_sent` it keeps the update."""
    staged = manifest.staged
    if staged is None:
        return manifest
    promoted = {run_id: entry for run_id, entry in manifest.promoted.items() if run_id != staged.run_id}
    if staged.keeps_state:
        promoted[staged.run_id] = Promoted(update=staged.committed, state=staged.state, kind=staged.kind)
    sent = {**manifest.sent, staged.run_id: staged} if keeps_sent else manifest.sent
    return Manifest(promoted=promoted, sent=sent, data=manifest.data, ended=manifest.ended)


def settled(
    manifest: Manifest, membership: Membership, *, run_id: str, identity: str | None, keeps_sent: bool = False
) -> Manifest:
    """Return the manifest to keep, given the answer to Join and the work that is wanted now.

    The staged update is promoted if it is the client's last committed one. Otherwise it is kept while it is the update that
    is wanted, or while the task is of another run, because its own run may still ask for it. It is dropped when its own run
    wants another update. Everything of a run that has ended, that is to forget the client, or that the aggregator does not
    know, is dropped, but for the record of the client's data in a run that has ended: of the latest `KEPT_RECORDS`.

    Args:
        membership: The aggregator's newest answer to Join, later than every attempted commit.
        identity: Names the update that is wanted now; None where the run wants none.
        keeps_sent: Whether a committed update is kept.
    """
    staged = manifest.staged
    if staged is not None and membership.last_committed == staged.committed:
        manifest = promote(manifest, keeps_sent=keeps_sent)
    elif staged is not None and staged.run_id == run_id and staged.identity != identity:
        manifest = replace(manifest, staged=None)
    manifest = without(manifest, membership.forgotten_runs)
    known = {*membership.open_runs, run_id}
    return Manifest(
        staged=manifest.staged if manifest.staged is not None and manifest.staged.run_id in known else None,
        promoted={name: entry for name, entry in manifest.promoted.items() if name in known},
        sent={name: entry for name, entry in manifest.sent.items() if name in known},
        data={name: entry for name, entry in manifest.data.items() if name in known},
        ended=with_ended(manifest, [name for name in sorted(manifest.data) if name not in known]),
    )


def with_ended(manifest: Manifest, run_ids: Sequence[str]) -> tuple[tuple[str, BlobRef], ...]:
    """Return the records of ended runs with those of these runs as the latest."""
    kept = [(name, blob) for name, blob in manifest.ended if name not in run_ids]
    return (*kept, *((name, manifest.data[name]) for name in run_ids))[-KEPT_RECORDS:]


def without(manifest: Manifest, forgotten: Collection[ForgottenRun]) -> Manifest:
    """Return the manifest without what it names of runs that are to forget the client, up to the round that each says."""
    latest = {each.run_id: each.round for each in forgotten}

    def stays(run_id: str, number: int) -> bool:
        return run_id not in latest or number > latest[run_id]

    staged = manifest.staged
    return Manifest(
        staged=staged if staged is not None and stays(staged.run_id, staged.round) else None,
        promoted={name: entry for name, entry in manifest.promoted.items() if stays(name, entry.update.round)},
        sent={name: entry for name, entry in manifest.sent.items() if stays(name, entry.round)},
        data={name: entry for name, entry in manifest.data.items() if name not in latest},
        ended=tuple((name, entry) for name, entry in manifest.ended if name not in latest),
    )


def is_outdated(promoted: Promoted, last_committed: CommittedUpdate | None, *, round: int) -> bool:
    """Whether a promoted state is not that of the client's last committed update of the run.

    That is so if the client has committed an update that this folder does not know, or if the aggregator was restored from a
    backup and is at an earlier round.

    Args:
        last_committed: The client's last committed update in any run, if it is known.
    """
    if promoted.update.round >= round:
        return True
    return (
        last_committed is not None
        and last_committed.run_id == promoted.update.run_id
        and last_committed != promoted.update
    )


def manifest_in(folder: Path) -> Manifest:
    """Return the manifest in a trainer's folder, for programs other than the trainer.

    Raises:
        FileNotFoundError: Nothing has been kept yet.
        StoreUnavailable: A newer version wrote it.
        ValueError: The manifest is damaged.
    """
    return manifest_from_bytes(disk.read_regular(folder / MANIFEST))


_MANIFEST = TypeAdapter(Manifest)


def manifest_to_bytes(manifest: Manifest) -> bytes:
    """Return the manifest as it is written, with a SHA-256 of itself."""
    content = _MANIFEST.dump_python(manifest, mode="json")
    document = {"version": VERSION, "content": content, "sha256": sha256_hex(canonical_json(content).encode())}
    return canonical_json(document).encode()


def manifest_from_bytes(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        StoreUnavailable: A newer version of fedplcc wrote it.
        ValueError: It is damaged.
    """
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("no manifest")
    version, content = document.get("version"), document.get("content", {})
    is_whole = isinstance(content, dict) and sha256_hex(canonical_json(content).encode()) == document.get("sha256")
    has_more = is_whole and {*content} - {each.name for each in fields(Manifest)}
    if (isinstance(version, int) and version > VERSION) or has_more:
        raise StoreUnavailable(
            f"a newer version than fedplcc {PROGRAM} wrote what this client keeps; nothing of it is read or changed: use "
            "that version, or put a copy of the state directory back that was made before"
        )
    if not isinstance(version, int) or not is_whole:
        raise ValueError("not as it was written")
    return _MANIFEST.validate_python(content)
