"""Blobs on disk, named by SHA-256.

    blobs/ab/ab12...            complete, durable; a database row names it
    initial/ab12...         complete, durable; an initial model that runs may name
    initial/ab12....name    its name for people
    incoming/               uploads of clients, see uploads.py

A file is fsynced before it is renamed, and its folder afterwards; only then may a row name the blob. A crash leaves either a
whole blob or a part that the next upload continues. Removal goes in the other order, the row first (see
garbage/collection.py). A file that no row names is garbage, unless it is held (see holds.py).
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedplcc.aggregator.store.blobs.disk_errors import disk_errors
from fedplcc.aggregator.store.blobs.files import BlobFiles, sha256_of
from fedplcc.aggregator.store.blobs.holds import Holds
from fedplcc.aggregator.store.blobs.reserve import Reserve
from fedplcc.aggregator.store.blobs.seals import Sealing
from fedplcc.aggregator.store.blobs.uploads import Upload, Uploads
from fedplcc.shared.errors import BlobNotFound, PayloadCorrupt, StoreUnavailable
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import MODEL, BlobRef

log = get_logger(__name__)

MAX_VERIFIED = 1 << 15
"""Most names of hashed blobs that are remembered; beyond that, blobs are hashed again."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Blobs that were removed."""

    num_bytes: int
    """Their size."""
    freed_bytes: int
    """What is free on the disk now; an uploaded initial model has another name that holds its bytes for some days."""


class BlobWriter:
    """One blob being written: bytes in order, then `finish`."""

    def __init__(self, role: str, file: IO[bytes], path: Path, keep: Callable[[Path, BlobRef], None]) -> None:
        self._role, self._file, self._path, self._keep = role, file, path, keep
        self._digest, self._size_bytes = Sealing(), 0

    def write(self, piece: bytes | memoryview) -> None:
        """Append the next bytes."""
        self._digest.update(piece)
        self._size_bytes += self._file.write(piece)

    def written(self) -> Path:
        """Return the file with what has been written; it is gone where the blob is not finished."""
        self._file.flush()
        return self._path

    def finish(self) -> BlobRef:
        """Store the bytes durably and return their reference."""
        self._file.flush()
        disk.fsync_file(self._file.fileno(), "blob.put")
        blob = BlobRef(self._role, self._digest.finish(), self._size_bytes)
        self._keep(self._path, blob)
        return blob


class BlobStore(BlobFiles):
    """Blobs and uploads below a state directory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._staging = folder / "staging"
        self._initial = folder / "initial"
        self._durable: set[str] = set()
        """First two characters of the names in folders that are durable."""
        self._verified: set[str] = set()
        self.added_bytes = 0
        """Bytes of the blobs that were stored since the start."""
        self.reserve = Reserve(folder)
        """Room for what people ask for on a full disk."""
        self.holds = Holds()
        """Holds on blobs against garbage collection."""
        self.unnamed: deque[str] = deque()
        """Stored blobs that no row will name, for garbage collection to take over; any thread adds some."""
        self.uploads = Uploads(folder, on_whole=self._remember)
        """Uploads of clients before their commit."""
        self._receiving: set[Upload] = set()
        """Initial models that are being received."""
        self._initial_lock = threading.Lock()
        """Held for each change of the initial models."""
        with disk_errors():
            disk.remove_tree(self._staging, "staging")
            for path in (self._blobs, self.uploads.folder, self._staging, self._initial):
                disk.make_folder(path, "state")
            disk.fsync_folder(folder, "state")

    def put(self, role: str, pieces: Iterable[bytes | memoryview]) -> BlobRef:
        """Store these bytes durably and return their reference. Storing them again repairs a damaged blob.

        Raises:
            StoreUnavailable: The disk is full or away.
        """
        with self.writing(role) as writer:
            for piece in pieces:
                writer.write(piece)
            return writer.finish()

    @contextmanager
    def writing(self, role: str) -> Iterator[BlobWriter]:
        """Yield a writer of one blob; several may be open at a time. A blob that is not finished leaves nothing behind.

        Raises:
            StoreUnavailable: The disk is full or away.
        """
        self.reserve.check()

        def keep(path: Path, blob: BlobRef) -> None:
            self._name(path, blob.sha256)
            self._remember(blob.sha256)

        with disk_errors(), tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
            try:
                yield BlobWriter(role, file, Path(file.name), keep)
            finally:
                disk.remove(Path(file.name), "blob.put")

    def verified_path(self, sha256: str) -> Path:
        """Return the file of a blob whose SHA-256 this process has checked.

        Blobs that this process received or computed are not read again. Blobs of an earlier process are hashed once: a
        crash, a restore or a copy of the disk may lie between.

        Raises:
            PayloadCorrupt: The file is missing or damaged.
        """
        if sha256 in self._verified:
            return self.stored_path(sha256)
        path = super().verified_path(sha256)
        self._remember(sha256)
        return path

    def read(self, sha256: str) -> bytes:
        """Return the bytes of a small blob, checked as they are read; one that is not whole is known to be so no more.

        Raises:
            PayloadCorrupt: The file is missing or damaged.
        """
        try:
            return super().read(sha256)
        except PayloadCorrupt:
            self.doubt(sha256)
            raise

    def doubt(self, sha256: str) -> None:
        """Have a blob hashed again before anybody is told that it is whole."""
        self._verified.discard(sha256)

    def whole_upload(self, client_id: str, blob: BlobRef) -> Path | None:
        """Return the file of a client's complete upload, or None; one of an earlier process is read once.

        A damaged upload is removed: its client sends it again.
        """
        path = self.uploads.path(client_id, blob)
        if path is None:
            return None
        try:
            if blob.sha256 in self._verified or sha256_of(path) == blob.sha256:
                self._remember_upload(path, blob.sha256)
                return path if path.stat().st_size == blob.size_bytes else None
        except FileNotFoundError:
            return None  # forgotten meanwhile
        log.warning("upload_damaged", client_id=client_id, sha256=blob.sha256)
        with disk_errors():
            disk.remove(path, "upload.damaged")
        return None

    def _remember_upload(self, path: Path, sha256: str) -> None:
        stored = self.path(sha256)
        if not stored.exists() or stored.samefile(path):
            self._remember(sha256)

    def is_known_whole(self, sha256: str) -> bool:
        """Whether the stored blob is there and has its SHA-256; reads it once, see `verified_path`."""
        try:
            self.verified_path(sha256)
        except PayloadCorrupt:
            return False
        return True

    def is_whole(self, sha256: str) -> bool:
        """Whether the stored blob is there and has its SHA-256; reads it in any case."""
        self.doubt(sha256)
        return self.is_known_whole(sha256)

    def keep(self, client_id: str, blobs: Iterable[BlobRef]) -> None:
        """Store complete uploads as blobs. They also stay uploads until they are forgotten, so that a crash loses nothing.

        Raises:
            BlobNotFound: A blob is neither an upload of this client nor stored; it may have been forgotten.
        """
        for blob in blobs:
            path = self.uploads.path(client_id, blob)
            if path is not None:
                with disk_errors():
                    self._name(path, blob.sha256)
                continue
            self.holds.take(blob.sha256)
            if not self.path(blob.sha256).is_file():
                raise BlobNotFound(f"the upload of blob {blob.role!r} is gone; send it again", sha256=blob.sha256)

    def begin_initial(self, blob: BlobRef) -> Upload:
        """Begin to receive an initial model, from its first byte; leftovers are removed at the aggregator's start.

        Raises:
            StoreUnavailable: The disk has too little space beside what uploads of clients need, once the models that are
                being received have arrived.
        """
        self.reserve.check()
        with self._initial_lock, disk_errors():
            coming_bytes = sum(upload.blob.size_bytes - upload.offset_bytes for upload in self._receiving.copy())
            free_bytes = max(0, self.reserve.free_bytes - coming_bytes)
            kept_bytes = 3 * self.reserve.size_bytes  # at twice the reserve, uploads of clients find no room
            if free_bytes < blob.size_bytes + kept_bytes:
                raise StoreUnavailable(
                    f"the aggregator's disk has {free_bytes} bytes free, too few for a model of {blob.size_bytes} beside "
                    f"the {kept_bytes} that its runs keep; make room there and try again"
                )
            descriptor, part = tempfile.mkstemp(dir=self._staging, suffix=".part")
            os.close(descriptor)
            upload = Upload(Path(part), Path(part).with_suffix(".whole"), blob)
            self._receiving.add(upload)
            return upload

    def discard_initial(self, upload: Upload) -> None:
        """Remove the files of an upload; a model that was already kept stays."""
        try:
            upload.close()
            with disk_errors():
                for path in (upload.part_path, upload.complete_path):
                    disk.remove(path, "initial.discard")
        finally:
            self._receiving.discard(upload)  # without the lock: the event loop calls this

    def hold_initial(self, source: Path, sha256: str, name: str) -> None:
        """Keep a file as an initial model; a repetition changes only the name.

        Args:
            source: A durable file.
            sha256: SHA-256 of its bytes.
        """
        with disk_errors():
            label = self._initial / f"{sha256}.name"
            with tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
                file.write(name.encode())
                file.flush()
                disk.fsync_file(file.fileno(), "initial.name")
            with self._initial_lock:
                disk.rename(Path(file.name), label, "initial.name")
                self._link(source, self._initial / sha256, "initial")

    def find_initial(self, sha256: str) -> tuple[BlobRef, str] | None:
        """Return an initial model and its name, or None."""
        try:
            size_bytes = (self._initial / sha256).stat().st_size
            name = disk.read_regular(self._initial / f"{sha256}.name").decode(errors="replace")
        except FileNotFoundError:
            return None
        return BlobRef(MODEL, sha256, size_bytes), name

    def keep_initial(self, sha256: str) -> None:
        """Store an initial model as a blob, and record its use.

        Raises:
            BlobNotFound: It was removed to make room.
        """
        with self._initial_lock, disk_errors():
            if not (self._initial / sha256).is_file():
                raise BlobNotFound(
                    f"run.initial_model: the aggregator holds no model sha256:{sha256} any more; upload it again",
                    sha256=sha256,
                )
            self._name(self._initial / sha256, sha256)
            with disk.durable_step("initial.used"):
                os.utime(self._initial / f"{sha256}.name")

    def remove(self, names: Iterable[str]) -> Removed:
        """Remove claimed blobs that no row names.

        Raises:
            StoreUnavailable: The disk refuses; the remaining files are still garbage.
        """
        num_bytes = freed_bytes = 0
        with disk_errors():
            for sha256 in names:
                path = self.path(sha256)
                with suppress(FileNotFoundError):
                    status = path.stat()
                    disk.remove(path, "blob.collect")
                    num_bytes += status.st_size
                    freed_bytes += status.st_size if status.st_nlink == 1 else 0
                self._verified.discard(sha256)
        return Removed(num_bytes, freed_bytes)

    def expire_initial(self, before: float) -> int:
        """Remove initial models that were neither uploaded nor used since a time; returns the freed bytes.

        Runs that began with one have it as a blob.
        """
        with self._initial_lock, disk_errors():
            return sum(self._remove_initial(label) for used_at, label in self._labels() if used_at < before)

    def unused_initial(self) -> dict[str, int]:
        """Return the bytes of each initial model that no run has, those first that were used or uploaded longest ago."""
        found = {}
        with self._initial_lock, disk_errors():
            for _used_at, label in self._labels():
                with suppress(FileNotFoundError):  # a crash left only the name
                    status = label.with_suffix("").stat()
                    if status.st_nlink == 1:
                        found[label.stem] = status.st_size
        return found

    def drop_initial(self, sha256: str) -> int:
        """Remove an initial model, unless a run has it meanwhile; returns the freed bytes."""
        model = self._initial / sha256
        with self._initial_lock, disk_errors():
            is_unused = model.is_file() and model.stat().st_nlink == 1
            return self._remove_initial(self._initial / f"{sha256}.name") if is_unused else 0

    def _labels(self) -> list[tuple[float, Path]]:
        """When each initial model was uploaded or used last, and the file with its name."""
        return sorted((label.stat().st_mtime, label) for label in self._initial.glob("*.name"))

    def _remove_initial(self, label: Path) -> int:
        """Remove a model and then its name: what a crash leaves between them goes with the next collection."""
        model, freed_bytes = label.with_suffix(""), 0
        with suppress(FileNotFoundError):
            status = model.stat()
            freed_bytes = status.st_size if status.st_nlink == 1 else 0
        disk.remove(model, "initial.expire")
        disk.remove(label, "initial.expire")
        return freed_bytes

    def _remember(self, sha256: str) -> None:
        if len(self._verified) >= MAX_VERIFIED:
            self._verified.clear()
        self._verified.add(sha256)

    def _name(self, source: Path, sha256: str) -> None:
        self.holds.take(sha256)
        target = self.path(sha256)
        if sha256[:2] not in self._durable:
            # Also for an existing folder: its creator may have died before its fsync, or may not have reached it yet.
            disk.make_folder(target.parent, "blob.folder")
            disk.fsync_folder(self._blobs, "blob.folder")
            self._durable.add(sha256[:2])
        if target.is_file() and not target.samefile(source) and sha256_of(target) != sha256:
            log.warning("blob_mended", sha256=sha256, detail="the stored bytes were damaged; the same came again")
            disk.remove(target, "blob.collect")
        if self._link(source, target, "blob"):
            self.added_bytes += target.stat().st_size

    @staticmethod
    def _link(source: Path, target: Path, step: str) -> bool:
        """Link a file durably; return whether it had no such name yet."""
        is_new = not target.exists()
        if is_new:
            try:
                disk.link(source, target, step)
            except FileExistsError:
                is_new = False
        disk.fsync_folder(target.parent, step)
        return is_new
