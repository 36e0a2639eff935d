"""Client state over restarts: a trainer's last finished update until it is committed, and the client's state in each run.

    FOLDER/manifest.json    names everything that is kept; replaced whole, so that each step has happened or has not
    FOLDER/SHA256           bytes that it names: written before it names them, removed when it no longer does

    finished --stage--> staged --acknowledged--> promoted: the client state is kept, and the update until the run's next one
                          `----- the round has moved on: dropped

An update is staged before it is sent. A trainer that dies after training therefore sends the finished update without
training again. Until the acknowledgement arrives, the trainer does not know whether the staged client state is valid. The
answer to Join tells it: it names the client's last committed update. The pure function `settled` (manifest.py) is the
whole rule.

Bytes are checked when they are read. Damaged bytes are dropped with a warning: a lost update is trained again, a lost state
begins anew, and the trainer goes on.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar, cast

from fedplcc.shared.errors import DiskFull, FedplccError, StoreUnavailable
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.process.resources import remedy_for
from fedplcc.shared.tensors import from_bytes, sha256_hex
from fedplcc.shared.types import BlobRef, ForgottenRun, Membership
from fedplcc.trainer.data.record import RunRecord
from fedplcc.trainer.task.manifest import (
    DATA_RECORD,
    KEPT_RECORDS,
    MANIFEST,
    Manifest,
    Staged,
    manifest_from_bytes,
    manifest_to_bytes,
    promote,
    settled,
    without,
)

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_Method = TypeVar("_Method", bound=Callable[..., Any])

log = get_logger("fedplcc.trainer.task.client_state")


def _one_at_a_time(method: _Method) -> _Method:
    """Return the method such that no other one of the same states runs meanwhile."""

    @wraps(method)
    def alone(self: ClientStates, *given: Any, **named: Any) -> Any:
        with self._lock:
            return method(self, *given, **named)

    return cast(_Method, alone)


class ClientStates:
    """One client's kept update and states, in a folder that nothing else uses.

    One thread does the client's tasks; `forget_runs` may be called by another one meanwhile.
    """

    def __init__(self, folder: Path, *, keeps_sent: bool = False) -> None:
        """Prepare; nothing is read or made before it is needed.

        Args:
            folder: Need not exist.
            keeps_sent: Whether a committed update is kept until the run's next one, for an aggregator whose disk fails.
        """
        self._folder, self._keeps_sent = folder, keeps_sent
        self._known: Manifest | None = None
        self._forgotten: tuple[ForgottenRun, ...] = ()
        self._lock = RLock()

    @property
    @_one_at_a_time
    def manifest(self) -> Manifest:
        """The present manifest.

        Raises:
            StoreUnavailable: The folder cannot be read.
        """
        if self._known is None:
            self._known = self._read_manifest()
            self._sweep(self._known)
        return self._known

    @_one_at_a_time
    def stage(self, staged: Staged, blobs: Mapping[str, bytes]) -> None:
        """Keep a finished update durably, in place of the one before; the same one again changes nothing.

        Args:
            blobs: Bytes of its blobs and of its client state by SHA-256.

        Raises:
            DiskFull, StoreUnavailable: It cannot be kept; what was kept before still is.
        """
        if self.manifest.staged is not None and self.manifest.staged.identity == staged.identity:
            return
        sent = {name: entry for name, entry in self.manifest.sent.items() if name != staged.run_id}
        manifest = without(replace(self.manifest, staged=staged, sent=sent), self._forgotten)
        try:
            self._make_folder()
            for sha256 in sorted(manifest.sha256s - self.manifest.sha256s):
                disk.replace_file(self._folder / sha256, blobs[sha256], "trainer.state.blob", mode=0o600)
            self._write(manifest)
        except OSError as error:
            self._sweep(self.manifest)
            raise _unusable(error) from error

    @_one_at_a_time
    def finished(self, identity: str) -> tuple[Staged, dict[str, bytes]] | None:
        """Return the staged update of this work with its bytes by SHA-256; None where there is none.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read, or a damaged update not be dropped.
        """
        staged = self.manifest.staged
        if staged is None or staged.identity != identity:
            return None
        blobs = self._read_all(staged, [*staged.update.payload.moved, *([staged.state] if staged.state else [])])
        if blobs is None:
            self.drop()
            return None
        return staged, blobs

    @_one_at_a_time
    def sent(self, run_id: str, round: int, missing: Collection[str]) -> tuple[Staged, dict[str, bytes]] | None:
        """Return a run's committed update of a round with its bytes by SHA-256; None where it is not kept.

        Args:
            missing: SHA-256 of blobs that the update has.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read.
        """
        known = self.manifest.sent.get(run_id)
        if known is None or known.round != round or not set(missing) <= set(known.committed.sha256s):
            return None
        blobs = self._read_all(known, known.update.payload.moved)
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

    @_one_at_a_time
    def promote(self) -> None:
        """Keep the staged client state for good: its update is committed.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(promote(self.manifest, keeps_sent=self._keeps_sent))

    @_one_at_a_time
    def drop(self) -> None:
        """Drop the staged update.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(replace(self.manifest, staged=None))

    @_one_at_a_time
    def settle(self, membership: Membership, *, run_id: str, identity: str | None) -> None:
        """Promote or drop the staged update, and drop the states of runs that have ended; see `settled`.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        self._change(settled(self.manifest, membership, run_id=run_id, identity=identity, keeps_sent=self._keeps_sent))

    @_one_at_a_time
    def forget(self, run_id: str) -> None:
        """Drop a run's promoted state.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed.
        """
        promoted = {name: entry for name, entry in self.manifest.promoted.items() if name != run_id}
        self._change(replace(self.manifest, promoted=promoted))

    @_one_at_a_time
    def forget_runs(self, forgotten: Collection[ForgottenRun]) -> None:
        """Drop everything of runs that are to forget the client, and keep nothing of them from now on.

        Args:
            forgotten: All such runs, in place of those of the call before.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed; the next change of what is kept drops it too.
        """
        self._forgotten = tuple(forgotten)
        if not forgotten:
            return
        before = self.manifest
        self._change(before)
        if self.manifest != before:
            named = sorted({each.run_id for each in forgotten if each.run_id in before.run_ids})
            log.info("runs_forgotten", run_ids=named)

    @_one_at_a_time
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

    @_one_at_a_time
    def data_record(self, run_id: str) -> RunRecord | None:
        """Return the record of the client's data in a run; None where there is none, or it cannot be read.

        Raises:
            StoreUnavailable: The folder cannot be read.
        """
        blob = self.manifest.data.get(run_id) or dict(self.manifest.ended).get(run_id)
        data = None if blob is None else self._read(blob)
        try:
            return None if data is None else RunRecord.from_bytes(data)
        except ValueError:
            log.warning("data_record_damaged", run_id=run_id)
            return None

    @_one_at_a_time
    def keep_data_record(self, run_id: str, record: RunRecord) -> None:
        """Keep the record of the client's data in a run, durably, in place of the one before.

        Raises:
            DiskFull, StoreUnavailable: It cannot be kept.
        """
        data, blob = _record_blob(record)
        ended = tuple((name, entry) for name, entry in self.manifest.ended if name != run_id)
        self._keep_record(replace(self.manifest, data={**self.manifest.data, run_id: blob}, ended=ended), blob, data)

    @_one_at_a_time
    def keep_ended_record(self, run_id: str, record: RunRecord) -> None:
        """Keep the record of the client's data in a run that has ended elsewhere, durably, as the latest of such.

        Raises:
            DiskFull, StoreUnavailable: It cannot be kept.
        """
        data, blob = _record_blob(record)
        ended = [(name, entry) for name, entry in self.manifest.ended if name != run_id]
        self._keep_record(replace(self.manifest, ended=(*ended, (run_id, blob))[-KEPT_RECORDS:]), blob, data)

    def _keep_record(self, manifest: Manifest, blob: BlobRef, data: bytes) -> None:
        manifest = without(manifest, self._forgotten)
        if manifest == self.manifest:
            return
        try:
            self._make_folder()
            if blob.sha256 in manifest.sha256s:
                disk.replace_file(self._folder / blob.sha256, data, "trainer.state.blob", mode=0o600)
            self._write(manifest)
        except OSError as error:
            self._sweep(self.manifest)
            raise _unusable(error) from error

    def _change(self, manifest: Manifest) -> None:
        manifest = without(manifest, self._forgotten)
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
            disk.replace_file(path, manifest_to_bytes(manifest), "trainer.state.manifest", mode=0o600)
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
            data = disk.read_regular(self._folder / MANIFEST)
        except FileNotFoundError:
            return Manifest()
        except OSError as error:
            raise _unusable(error) from error
        try:
            return manifest_from_bytes(data)
        except ValueError:
            log.warning("manifest_damaged", hint="finished updates are trained again, client states begin anew")
            return Manifest()

    def _read(self, blob: BlobRef) -> bytes | None:
        """Return the blob's bytes; None where they are missing or damaged."""
        try:
            data = disk.read_regular(self._folder / blob.sha256)
        except OSError:
            return None
        return data if sha256_hex(data) == blob.sha256 else None


def _record_blob(record: RunRecord) -> tuple[bytes, BlobRef]:
    data = record.to_bytes()
    return data, BlobRef(role=DATA_RECORD, sha256=sha256_hex(data), size_bytes=len(data))


def _unusable(error: OSError) -> FedplccError:
    """Return the error for a folder that cannot be read or written, without its path, which stays on this machine."""
    why = f"the state directory of this client cannot be used: {error.strerror or type(error).__name__}"
    if error.errno in NO_ROOM:
        return DiskFull(f"{why}; make room on its disk")
    return StoreUnavailable(f"{why}{remedy_for(error) or '; see that it can be read and written'}")
