"""Client state over restarts: a trainer's last finished update until it is committed, and the client's state in each run.

    FOLDER/manifest.json    names everything that is kept; replaced whole, so that each step has happened or has not
    FOLDER/SHA256           bytes that it names: written before it names them, removed when it no longer does

    finished --stage--> staged --acknowledged--> promoted: the client state is kept, and the update until the run's next one
                          `----- the round has moved on: dropped

An update is staged before it is sent. A trainer that dies after training therefore sends the finished update without
training again. Until the acknowledgement arrives, the trainer does not know whether the staged client state is valid. The
answer to Join tells it: it names the client's last committed update. The pure function `settled` is the whole rule.

Bytes are checked when they are read. Damaged bytes are dropped with a warning: a lost update is trained again, a lost state
begins anew, and the trainer goes on.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from shared.config.run import canonical_json
from shared.errors import DiskFull, FedplccError, StoreUnavailable
from shared.methods.base import ClientState
from shared.process import disk
from shared.process.log import get_logger
from shared.process.resources import remedy_for
from shared.tensors import from_bytes, sha256_hex
from shared.types import BlobRef, CommittedUpdate, Membership, Update

CLIENT_STATE = "client_state"
"""Role of the blob that holds a client's state."""
MANIFEST = "manifest.json"
VERSION = 1
"""Version of the manifest's form; another one is not read."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

log = get_logger("trainer.task.client_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A finished update that may not have been committed yet.

    Attributes:
        identity: Names the work that it is the result of; equal identities mean the same work on the same data.
        run_id: The run.
        round: The round.
        update: The update.
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

    @property
    def sha256s(self) -> set[str]:
        """SHA-256 of every blob that is named."""
        blobs = [entry.state for entry in self.promoted.values()]
        if self.staged is not None:
            blobs += [self.staged.state, *self.staged.update.payload.blobs]
        blobs += [blob for staged in self.sent.values() for blob in staged.update.payload.blobs]
        return {blob.sha256 for blob in blobs if blob is not None}


def promote(manifest: Manifest, *, keeps_sent: bool = False) -> Manifest:
    """Return the manifest after the staged update turned out to be committed; with `keeps_sent` it keeps the update."""
    staged = manifest.staged
    if staged is None:
        return manifest
    promoted = {run_id: entry for run_id, entry in manifest.promoted.items() if run_id != staged.run_id}
    if staged.keeps_state:
        promoted[staged.run_id] = Promoted(update=staged.committed, state=staged.state, kind=staged.kind)
    sent = {**manifest.sent, staged.run_id: staged} if keeps_sent else manifest.sent
    return Manifest(promoted=promoted, sent=sent)


def settled(
    manifest: Manifest, membership: Membership, *, run_id: str, identity: str | None, keeps_sent: bool = False
) -> Manifest:
    """Return the manifest to keep, given the answer to Join and the work that is wanted now.

    The staged update is promoted if it is the client's last committed one. Otherwise it is kept while it is the update that
    is wanted, or while the task is of another run, because its own run may still ask for it. It is dropped when its own run
    wants another update. Everything of a run that has ended, or that the aggregator does not know, is dropped.

    Args:
        manifest: The present manifest.
        membership: The aggregator's newest answer to Join, later than every attempted commit.
        run_id: The run of the present task.
        identity: Names the update that is wanted now; None where the run wants none.
        keeps_sent: Whether a committed update is kept.
    """
    staged = manifest.staged
    if staged is not None and membership.last_committed == staged.committed:
        manifest = promote(manifest, keeps_sent=keeps_sent)
    elif staged is not None and staged.run_id == run_id and staged.identity != identity:
        manifest = replace(manifest, staged=None)
    if membership.open_runs is None:
        return manifest
    known = {*membership.open_runs, run_id}
    return Manifest(
        staged=manifest.staged if manifest.staged is not None and manifest.staged.run_id in known else None,
        promoted={name: entry for name, entry in manifest.promoted.items() if name in known},
        sent={name: entry for name, entry in manifest.sent.items() if name in known},
    )


def is_outdated(promoted: Promoted, last_committed: CommittedUpdate | None, *, round: int) -> bool:
    """Whether a promoted state is not that of the client's last committed update of the run.

    That is so if the client has committed an update that this folder does not know, or if the aggregator was restored from a
    backup and is at an earlier round.

    Args:
        promoted: Entry of the state.
        last_committed: The client's last committed update in any run, if it is known.
        round: The next round to train.
    """
    if promoted.update.round >= round:
        return True
    return (
        last_committed is not None
        and last_committed.run_id == promoted.update.run_id
        and last_committed != promoted.update
    )


class States(Protocol):
    """Interface of one client's kept update and states; see `ClientStates`."""

    @property
    def manifest(self) -> Manifest:
        """The present manifest."""

    def stage(self, staged: Staged, blobs: Mapping[str, bytes]) -> None:
        """Keep a finished update, durably, in place of the one before."""

    def finished(self, identity: str) -> tuple[Staged, dict[str, bytes]] | None:
        """Return the staged update of this work with its bytes by SHA-256; None where there is none."""

    def sent(self, run_id: str, round: int, missing: Collection[str]) -> tuple[Staged, dict[str, bytes]] | None:
        """Return a run's committed update of a round with its bytes by SHA-256; None where it is not kept."""

    def promote(self) -> None:
        """Keep the staged client state for good: its update is committed."""

    def drop(self) -> None:
        """Drop the staged update."""

    def settle(self, membership: Membership, *, run_id: str, identity: str | None) -> None:
        """Promote or drop the staged update, and drop the states of runs that have ended."""

    def forget(self, run_id: str) -> None:
        """Drop a run's promoted state."""

    def state(self, run_id: str) -> ClientState | None:
        """Return the promoted state of a run; None where there is none, or it cannot be read."""


class ClientStates:
    """One client's kept update and states, in a folder that nothing else uses. For one thread."""

    def __init__(self, folder: Path, *, keeps_sent: bool = False) -> None:
        """Prepare; nothing is read or made before it is needed.

        Args:
            folder: Need not exist.
            keeps_sent: Whether a committed update is kept until the run's next one, for an aggregator whose disk fails.
        """
        self._folder, self._keeps_sent = folder, keeps_sent
        self._known: Manifest | None = None

    @property
    def manifest(self) -> Manifest:
        """The present manifest.

        Raises:
            StoreUnavailable: The folder cannot be read.
        """
        if self._known is None:
            self._known = self._read_manifest()
            self._sweep(self._known)
        return self._known

    def stage(self, staged: Staged, blobs: Mapping[str, bytes]) -> None:
        """Keep a finished update durably, in place of the one before; the same one again changes nothing.

        Args:
            staged: The update.
            blobs: Bytes of its blobs and of its client state by SHA-256.

        Raises:
            DiskFull, StoreUnavailable: It cannot be kept; what was kept before still is.
        """
        if self.manifest.staged is not None and self.manifest.staged.identity == staged.identity:
            return
        sent = {name: entry for name, entry in self.manifest.sent.items() if name != staged.run_id}
        manifest = replace(self.manifest, staged=staged, sent=sent)
        try:
            self._make_folder()
            for sha256 in sorted(manifest.sha256s - self.manifest.sha256s):
                disk.replace_file(self._folder / sha256, blobs[sha256], "trainer.state.blob", mode=0o600)
            self._write(manifest)
        except OSError as error:
            self._sweep(self.manifest)
            raise _unusable(error) from error

    def finished(self, identity: str) -> tuple[Staged, dict[str, bytes]] | None:
        """Return the staged update of this work with its bytes by SHA-256; None where there is none.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read, or a damaged update not be dropped.
        """
        staged = self.manifest.staged
        if staged is None or staged.identity != identity:
            return None
        blobs = self._read_all(staged, [*staged.update.payload.blobs, *([staged.state] if staged.state else [])])
        if blobs is None:
            self.drop()
            return None
        return staged, blobs

    def sent(self, run_id: str, round: int, missing: Collection[str]) -> tuple[Staged, dict[str, bytes]] | None:
        """Return a run's committed update of a round with its bytes by SHA-256; None where it is not kept.

        Args:
            run_id: The run.
            round: The round.
            missing: SHA-256 of blobs that the update has.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read.
        """
        known = self.manifest.sent.get(run_id)
        if known is None or known.round != round or not set(missing) <= set(known.committed.sha256s):
            return None
        blobs = self._read_all(known, known.update.payload.blobs)
        return None if blobs is None else (known, blobs)

    def _read_all(self, kept: Staged, blobs: Iterable[BlobRef]) -> dict[str, bytes] | None:
        found = {}
        for blob in blobs:
            data = self._read(blob)
            if data is None:
                log.warning("finished_update_damaged", run_id=kept.run_id, round=kept.round, sha256=blob.sha256)
                return None
            found[blob.sha256] = data
        return found

    def promote(self) -> None:
        """Keep the staged client state for good: its update is committed.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(promote(self.manifest, keeps_sent=self._keeps_sent))

    def drop(self) -> None:
        """Drop the staged update.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(replace(self.manifest, staged=None))

    def settle(self, membership: Membership, *, run_id: str, identity: str | None) -> None:
        """Promote or drop the staged update, and drop the states of runs that have ended; see `settled`.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(settled(self.manifest, membership, run_id=run_id, identity=identity, keeps_sent=self._keeps_sent))

    def forget(self, run_id: str) -> None:
        """Drop a run's promoted state.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        promoted = {name: entry for name, entry in self.manifest.promoted.items() if name != run_id}
        self._change(replace(self.manifest, promoted=promoted))

    def state(self, run_id: str) -> ClientState | None:
        """Return the promoted state of a run; None where there is none, or it cannot be read.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read, or a damaged state not be dropped.
        """
        promoted = self.manifest.promoted.get(run_id)
        if promoted is None or promoted.state is None:
            return None
        data = self._read(promoted.state)
        if data is None:
            log.warning("client_state_damaged", run_id=run_id, round=promoted.update.round)
            self.forget(run_id)
            return None
        return from_bytes(data)

    def _change(self, manifest: Manifest) -> None:
        if manifest == self.manifest:
            return
        try:
            self._write(manifest)
        except OSError as error:
            raise _unusable(error) from error

    def _write(self, manifest: Manifest) -> None:
        """Replace the manifest, then remove blobs that it no longer names."""
        path = self._folder / MANIFEST
        if manifest == Manifest():
            # Needs no room: on a full disk, unwanted blobs can still be removed.
            disk.remove(path, "trainer.state.manifest")
            disk.fsync_folder(self._folder, "trainer.state.manifest")
        else:
            disk.replace_file(path, _to_bytes(manifest), "trainer.state.manifest", mode=0o600)
        self._known = manifest
        self._sweep(manifest)

    def _sweep(self, manifest: Manifest) -> None:
        """Remove files that the manifest does not name: dropped blobs, and remains of a crash or a full disk."""
        try:
            kept = {MANIFEST, *manifest.sha256s}
            for path in sorted(self._folder.iterdir()):
                if path.name not in kept:
                    disk.remove(path, "trainer.state.blob")
        except OSError as error:
            log.debug("leftovers_stay", detail=str(error))  # until the next change

    def _make_folder(self) -> None:
        missing = [folder for folder in (self._folder, *self._folder.parents) if not folder.exists()]
        for folder in reversed(missing):
            disk.make_folder(folder, "trainer.state.folder")
            disk.fsync_folder(folder.parent, "trainer.state.folder")

    def _read_manifest(self) -> Manifest:
        try:
            data = (self._folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            return Manifest()
        except OSError as error:
            raise _unusable(error) from error
        try:
            return _from_bytes(data)
        except ValueError:
            log.warning("manifest_damaged", hint="finished updates are trained again, client states begin anew")
            return Manifest()

    def _read(self, blob: BlobRef) -> bytes | None:
        """Return the blob's bytes; None where they are missing or damaged."""
        try:
            data = (self._folder / blob.sha256).read_bytes()
        except OSError:
            return None
        return data if sha256_hex(data) == blob.sha256 else None


def manifest_in(folder: Path) -> Manifest:
    """Return the manifest in a trainer's folder, for programs other than the trainer.

    Raises:
        FileNotFoundError: Nothing has been kept yet.
        ValueError: The manifest is damaged.
    """
    return _from_bytes((folder / MANIFEST).read_bytes())


_MANIFEST = TypeAdapter(Manifest)


def _to_bytes(manifest: Manifest) -> bytes:
    content = _MANIFEST.dump_python(manifest, mode="json")
    document = {"version": VERSION, "content": content, "sha256": sha256_hex(canonical_json(content).encode())}
    return canonical_json(document).encode()


def _from_bytes(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        ValueError: It is of another version, or damaged.
    """
    document = json.loads(data)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("another version")
    content = document.get("content")
    if sha256_hex(canonical_json(content).encode()) != document.get("sha256"):
        raise ValueError("not as it was written")
    return _MANIFEST.validate_python(content)


def _unusable(error: OSError) -> FedplccError:
    """Return the error for a folder that cannot be read or written, without its path, which stays on this machine."""
    why = f"the state directory of this client cannot be used: {error.strerror or type(error).__name__}"
    if error.errno in NO_ROOM:
        return DiskFull(f"{why}; make room on its disk")
    return StoreUnavailable(f"{why}{remedy_for(error) or '; see that it can be read and written'}")
