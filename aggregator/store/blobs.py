"""Blobs on disk, named by SHA-256, and the uploads that become blobs.

    blobs/ab/ab12...            complete, durable; a database row names it
    incoming/CLIENT/ab12...     complete upload of a client, not yet part of a committed update
    incoming/CLIENT/ab12....part  an upload that goes on from its last byte
    initial/ab12...         complete, durable; a model that runs can begin with, whether one does or not
    initial/ab12....name    what people call it

A file is fsynced before it gets its name, and a folder after it got a new name; only then may a row name the blob. What a
crash leaves behind is always either a whole blob or a part that the next upload continues; a part whose bytes a power cut
damaged fails its SHA-256 and starts again from nothing. What is not needed any more leaves in the other order, the row first
(see collection.py); a file that no row names is garbage, unless it is just being put away (see holds.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aggregator.store.blob_files import BlobFiles
from aggregator.store.holds import Holds
from shared import disk
from shared.errors import BlobCorrupt, BlobNotFound, ChunkOutOfOrder, FailedPrecondition, StoreUnavailable
from shared.types import MODEL, BlobRef

READ_BYTES = 1 << 20
"""Piece in which files are read."""
RESERVED_BYTES = 16 << 20
"""What a model to begin with leaves free on the disk, so that the database and the runs' updates go on."""
MAX_UPLOADS = 16
"""Uploads that one client may have beside each other; far more than an update has blobs."""
MAX_VERIFIED = 1 << 15
"""Names that are remembered of blobs that this process has hashed; beyond them it hashes again."""


class BlobStore(BlobFiles):
    """Blobs and uploads below one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._incoming = folder / "incoming"
        self._staging = folder / "staging"
        self._initial = folder / "initial"
        self._uploads: dict[tuple[str, str], Upload] = {}
        self._durable: set[Path] = set()
        self._verified: set[str] = set()
        self.holds = Holds()
        """Of blobs that are being put away; see there."""
        self._lock = threading.Lock()
        with _disk_errors():
            disk.remove_tree(self._staging, "staging")
            for path in (self._blobs, self._incoming, self._staging, self._initial):
                disk.make_folder(path, "state")
            disk.fsync_folder(folder, "state")

    def put(self, role: str, pieces: Iterable[bytes]) -> BlobRef:
        """Make a blob of these bytes durable and return its name. The same bytes again change nothing."""
        digest, size = hashlib.sha256(), 0
        with _disk_errors(), tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
            try:
                for piece in pieces:
                    digest.update(piece)
                    size += file.write(piece)
                file.flush()
                disk.fsync_file(file.fileno(), "blob.put")
                blob = BlobRef(role, digest.hexdigest(), size)
                self._name(Path(file.name), blob.sha256)
                self._remember(blob.sha256)
            finally:
                disk.remove(Path(file.name), "blob.put")
        return blob

    def verified_path(self, sha256: str) -> Path:
        """The file of a blob that a row names, found to be what its name says, when it came or at the first call.

        So what this process received or computed is not read for it, and what an earlier one left is read once: between the
        two lie a crash, a restore, a copied disk.

        Raises:
            PayloadCorrupt: It is gone, or damaged.
        """
        if sha256 in self._verified:
            return self.stored_path(sha256)
        path = super().verified_path(sha256)
        self._remember(sha256)
        return path

    def uploaded(self, client_id: str, blob: BlobRef) -> bool:
        """Whether this client's upload of the blob is complete and waits for a commit."""
        path = self.uploaded_path(client_id, blob)
        return path is not None and path.stat().st_size == blob.size_bytes

    def uploaded_path(self, client_id: str, blob: BlobRef) -> Path | None:
        """The file of a complete upload of this client, if there is one."""
        path = self._complete(client_id, blob.sha256)
        return path if path.is_file() else None

    def received_bytes(self, client_id: str, blob: BlobRef) -> int:
        """Bytes of the blob that this client has sent so far."""
        try:
            return min(self._part(client_id, blob.sha256).stat().st_size, blob.size_bytes)
        except FileNotFoundError:
            return 0

    def begin_upload(self, client_id: str, blob: BlobRef) -> Upload:
        """Go on with an upload from its last byte. An older stream of the same upload loses it.

        Of more than `MAX_UPLOADS` of one client the ones that lay longest are dropped: what a client begins and never
        commits can fill neither the disk nor the table of open files.
        """
        with self._lock:
            key = (client_id, blob.sha256)
            if key in self._uploads:
                self._uploads[key].close()
            with _disk_errors():
                disk.make_folder(self._incoming / client_id, "upload.client")
                self._make_room(client_id, blob)
                upload = Upload(self._part(client_id, blob.sha256), self._complete(client_id, blob.sha256), blob)
            self._uploads[key] = upload
            return upload

    def end_upload(self, client_id: str, upload: Upload) -> None:
        """Close an upload, whether it is complete or goes on later."""
        upload.close()
        if upload.is_whole:
            self._remember(upload.blob.sha256)
        with self._lock:
            key = (client_id, upload.blob.sha256)
            if self._uploads.get(key) is upload:
                del self._uploads[key]

    def upload_stored(self, client_id: str, blob: BlobRef) -> bool:
        """Make a stored blob a complete upload of this client, who need not send it; False where it is gone.

        So the answer that a blob need not be sent holds until the client commits, whatever is collected meanwhile.
        """
        with self._lock, _disk_errors():
            disk.make_folder(self._incoming / client_id, "upload.client")
            self._make_room(client_id, blob)
            with suppress(FileExistsError):
                try:
                    disk.link(self.path(blob.sha256), self._complete(client_id, blob.sha256), "upload.stored")
                except FileNotFoundError:
                    return False
        return True

    def keep(self, client_id: str, blobs: Iterable[BlobRef]) -> None:
        """Make complete uploads durable as blobs. They stay uploads too, until `forget`, so that a crash loses nothing.

        Raises:
            BlobNotFound: A blob is neither an upload of this client nor stored; it may have been, before a `forget`.
        """
        for blob in blobs:
            path = self._complete(client_id, blob.sha256)
            if path.is_file():
                with _disk_errors():
                    self._name(path, blob.sha256)
                continue
            self.holds.take(blob.sha256)
            if not self.path(blob.sha256).is_file():
                raise BlobNotFound(f"the upload of blob {blob.role!r} is gone; send it again", sha256=blob.sha256)

    def forget(self, client_id: str) -> None:
        """Drop a client's uploads; what was kept stays."""
        disk.remove_tree(self._incoming / client_id, "upload.forget")

    def begin_initial(self, blob: BlobRef) -> Upload:
        """Receive a model to begin with, always from its first byte; what is left of it goes when the aggregator starts.

        Raises:
            StoreUnavailable: The disk has no room for it beside `RESERVED_BYTES`.
        """
        with _disk_errors():
            free_bytes = shutil.disk_usage(self._staging).free
            if free_bytes < blob.size_bytes + RESERVED_BYTES:
                raise StoreUnavailable(
                    f"the aggregator's disk has {free_bytes} bytes free, too few for a model of {blob.size_bytes} beside "
                    f"the {RESERVED_BYTES} that its runs keep; make room there and try again"
                )
            descriptor, part = tempfile.mkstemp(dir=self._staging, suffix=".part")
            os.close(descriptor)
            return Upload(Path(part), Path(part).with_suffix(".whole"), blob)

    def discard_initial(self, upload: Upload) -> None:
        """Let go of what was received; a model that is held by now stays."""
        upload.close()
        with _disk_errors():
            for path in (upload.part_path, upload.complete_path):
                disk.remove(path, "initial.discard")

    def hold_initial(self, source: Path, sha256: str, name: str) -> None:
        """Make a model one that runs can begin with; the same again changes nothing but the name.

        Args:
            source: A durable file of these bytes.
            sha256: Of the bytes.
            name: What people call it.
        """
        with _disk_errors():
            label = self._initial / f"{sha256}.name"
            with tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
                file.write(name.encode())
                file.flush()
                disk.fsync_file(file.fileno(), "initial.name")
            disk.rename(Path(file.name), label, "initial.name")
            self._link(source, self._initial / sha256, "initial")

    def find_initial(self, sha256: str) -> tuple[BlobRef, str] | None:
        """A model that runs can begin with, and what people call it."""
        try:
            size_bytes = (self._initial / sha256).stat().st_size
            name = (self._initial / f"{sha256}.name").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        return BlobRef(MODEL, sha256, size_bytes), name

    def keep_initial(self, sha256: str) -> None:
        """Make a model that runs can begin with durable as a blob; it counts as used now."""
        with _disk_errors():
            self._name(self._initial / sha256, sha256)
            with disk.durable_step("initial.used"):
                os.utime(self._initial / f"{sha256}.name")

    def remove(self, names: Iterable[str]) -> int:
        """Take away blobs that no row names and `holds` has claimed; says how many bytes they had.

        Raises:
            StoreUnavailable: The disk refuses; what is left is garbage still.
        """
        removed_bytes = 0
        with _disk_errors():
            for sha256 in names:
                path = self.path(sha256)
                with suppress(FileNotFoundError):
                    removed_bytes += path.stat().st_size
                    disk.remove(path, "blob.collect")
                self._verified.discard(sha256)
        return removed_bytes

    def expire_uploads(self, before: float) -> int:
        """Take away uploads that have not changed since a time (seconds since the epoch) and do not go on; says the size."""
        removed_bytes = 0
        for folder in sorted(self._incoming.iterdir()):
            with self._lock, _disk_errors(), suppress(FileNotFoundError):  # committed and forgotten meanwhile
                busy = {sha256 for client_id, sha256 in self._uploads if client_id == folder.name}
                stays = False
                for path in folder.iterdir():
                    status = path.stat()
                    # The time of the last change of the file itself or its names: a blob that was linked here is older.
                    if status.st_ctime >= before or path.name.removesuffix(".part") in busy:
                        stays = True
                        continue
                    disk.remove(path, "upload.expire")
                    removed_bytes += status.st_size if status.st_nlink == 1 else 0
                if not stays:
                    disk.remove_tree(folder, "upload.expire")
        return removed_bytes

    def expire_initial(self, before: float) -> int:
        """Take away models to begin with that were neither brought nor used since a time; says the bytes.

        A run that began with one keeps it as a blob.
        """
        removed_bytes = 0
        with _disk_errors():
            for label in sorted(self._initial.glob("*.name")):
                if label.stat().st_mtime >= before:
                    continue
                model = label.with_suffix("")
                with suppress(FileNotFoundError):
                    status = model.stat()
                    removed_bytes += status.st_size if status.st_nlink == 1 else 0
                disk.remove(model, "initial.expire")
                disk.remove(label, "initial.expire")
        return removed_bytes

    def _remember(self, sha256: str) -> None:
        if len(self._verified) >= MAX_VERIFIED:
            self._verified.clear()
        self._verified.add(sha256)

    def _make_room(self, client_id: str, blob: BlobRef) -> None:
        age: dict[str, int] = {}
        for path in self._incoming.joinpath(client_id).iterdir():
            with suppress(FileNotFoundError):  # forgotten meanwhile
                age[path.name.removesuffix(".part")] = path.stat().st_mtime_ns
        age.pop(blob.sha256, None)
        newest_first = sorted(age, key=lambda sha256: (age[sha256], sha256), reverse=True)
        for sha256 in newest_first[MAX_UPLOADS - 1 :]:
            if (client_id, sha256) in self._uploads:
                self._uploads[client_id, sha256].close()
            for path in (self._part(client_id, sha256), self._complete(client_id, sha256)):
                disk.remove(path, "upload.crowded_out")

    def _complete(self, client_id: str, sha256: str) -> Path:
        return self._incoming / client_id / sha256

    def _part(self, client_id: str, sha256: str) -> Path:
        return self._incoming / client_id / f"{sha256}.part"

    def _name(self, source: Path, sha256: str) -> None:
        self.holds.take(sha256)
        target = self.path(sha256)
        if target.parent not in self._durable:
            # Also where it is there: whoever made it may have died, or may not have come to its fsync yet.
            disk.make_folder(target.parent, "blob.folder")
            disk.fsync_folder(self._blobs, "blob.folder")
            self._durable.add(target.parent)
        self._link(source, target, "blob")

    @staticmethod
    def _link(source: Path, target: Path, step: str) -> None:
        if not target.exists():
            with suppress(FileExistsError):
                disk.link(source, target, step)
        disk.fsync_folder(target.parent, step)


class Upload:
    """One client's upload of one blob: bytes in order, from where the last attempt ended.

    Bytes go to the file as they come, unbuffered: another stream that goes on from the file's end must find all of them, and
    none may follow later.
    """

    def __init__(self, part: Path, complete: Path, blob: BlobRef) -> None:
        self.blob, self.part_path, self.complete_path = blob, part, complete
        self.is_whole = False
        self._lock = threading.Lock()
        self._file = part.open("a+b", buffering=0)
        self._size = os.fstat(self._file.fileno()).st_size
        if self._size > blob.size_bytes:
            self._file.truncate(0)
            self._size = 0
        self._hashed: hashlib._Hash | None = None

    @property
    def offset_bytes(self) -> int:
        """Bytes received so far."""
        return self._size

    def write(self, offset_bytes: int, data: bytes) -> None:
        """Append a chunk.

        Raises:
            ChunkOutOfOrder: It does not begin where the bytes so far end, or runs past the end.
            FailedPrecondition: The upload was closed, or a newer stream has taken over.
            StoreUnavailable: The disk is full or away; begin the upload again to go on.
        """
        with self._lock:
            self._check_is_open()
            if offset_bytes != self._size:
                raise ChunkOutOfOrder(
                    f"the chunk begins at byte {offset_bytes}, expected {self._size}", expected_offset_bytes=self._size
                )
            if self._size + len(data) > self.blob.size_bytes:
                raise ChunkOutOfOrder(f"the chunk runs past the announced {self.blob.size_bytes} bytes")
            with _disk_errors():
                self._append(data)

    def finish(self) -> None:
        """Check the blob and give it its name.

        Raises:
            BlobCorrupt: Bytes are missing (the part is kept) or do not have their SHA-256 (the part is dropped).
            FailedPrecondition: The upload was closed, or a newer stream has taken over.
            StoreUnavailable: The disk did not take the bytes.
        """
        with self._lock:
            self._check_is_open()
            if self._size < self.blob.size_bytes:
                raise BlobCorrupt(f"the upload ended at byte {self._size} of {self.blob.size_bytes}")
            with _disk_errors():
                if self._digest().hexdigest() != self.blob.sha256:
                    self._start_over()
                    raise BlobCorrupt("the bytes received do not have the announced SHA-256", sha256=self.blob.sha256)
                try:
                    disk.fsync_file(self._file.fileno(), "upload")
                except OSError:
                    self._start_over()  # after a failed fsync nobody knows which bytes are on the disk
                    raise
                disk.rename(self.part_path, self.complete_path, "upload")
                self.is_whole = True

    def close(self) -> None:
        """Let go of the file; bytes that still come are refused. Waits for a chunk that is being written."""
        with self._lock, _disk_errors():
            self._file.close()

    def _check_is_open(self) -> None:
        if self._file.closed:
            raise FailedPrecondition("this stream of the upload has ended; begin it again", sha256=self.blob.sha256)

    def _append(self, data: bytes) -> None:
        digest, rest = self._digest(), memoryview(data)
        try:
            with disk.durable_step("upload", "append"):
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.close()  # what was written of the chunk is only known to the file
            raise
        digest.update(data)
        self._size += len(data)

    def _digest(self) -> hashlib._Hash:
        """The hash of the bytes so far; those of an earlier attempt are read when it is first needed."""
        if self._hashed is None:
            digest = hashlib.sha256()
            self._file.seek(0)
            while piece := self._file.read(READ_BYTES):
                digest.update(piece)
            self._hashed = digest
        return self._hashed

    def _start_over(self) -> None:
        self._file.truncate(0)
        self._size, self._hashed = 0, None


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"the aggregator cannot write to its disk: {error.strerror or error}") from error
