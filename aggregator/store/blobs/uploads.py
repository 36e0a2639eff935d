"""Uploads on disk: what clients send, piece by piece, until it is kept as blobs.

    incoming/CLIENT/ab12...     complete upload of a client, not yet part of a committed update
    incoming/CLIENT/ab12....part  an upload that goes on from its last byte

A part whose bytes a power cut damaged fails its SHA-256 and starts again from nothing.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aggregator.store.blobs.disk_errors import disk_errors
from shared.errors import BlobCorrupt, ChunkOutOfOrder, FailedPrecondition
from shared.process import disk
from shared.types import BlobRef

READ_BYTES = 1 << 20
"""Piece in which files are read."""
MAX_UPLOADS = 16
"""Uploads that one client may have beside each other; far more than an update has blobs."""


class Uploads:
    """What every client has sent and not committed yet, in a folder of a state directory, which must be there."""

    def __init__(self, folder: Path, on_whole: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            folder: The state directory.
            on_whole: Told the SHA-256 of an upload that was found to have it.
        """
        self.folder = folder / "incoming"
        self._on_whole = on_whole
        self._uploads: dict[tuple[str, str], Upload] = {}
        self._lock = threading.Lock()

    def is_complete(self, client_id: str, blob: BlobRef) -> bool:
        """Whether this client's upload of the blob is complete and waits for a commit."""
        path = self.path(client_id, blob)
        return path is not None and path.stat().st_size == blob.size_bytes

    def path(self, client_id: str, blob: BlobRef) -> Path | None:
        """The file of a complete upload of this client, if there is one."""
        path = self._complete(client_id, blob.sha256)
        return path if path.is_file() else None

    def received_bytes(self, client_id: str, blob: BlobRef) -> int:
        """Bytes of the blob that this client has sent so far."""
        try:
            return min(self._part(client_id, blob.sha256).stat().st_size, blob.size_bytes)
        except FileNotFoundError:
            return 0

    def begin(self, client_id: str, blob: BlobRef) -> Upload:
        """Go on with an upload from its last byte. An older stream of the same upload loses it.

        Of more than `MAX_UPLOADS` of one client the ones that lay longest are dropped: what a client begins and never
        commits can fill neither the disk nor the table of open files.
        """
        with self._lock:
            key = (client_id, blob.sha256)
            if key in self._uploads:
                self._uploads[key].close()
            with disk_errors():
                disk.make_folder(self.folder / client_id, "upload.client")
                self._make_room(client_id, blob)
                upload = Upload(self._part(client_id, blob.sha256), self._complete(client_id, blob.sha256), blob)
            self._uploads[key] = upload
            return upload

    def end(self, client_id: str, upload: Upload) -> None:
        """Close an upload, whether it is complete or goes on later."""
        upload.close()
        if upload.is_whole:
            self._on_whole(upload.blob.sha256)
        with self._lock:
            key = (client_id, upload.blob.sha256)
            if self._uploads.get(key) is upload:
                del self._uploads[key]

    def link(self, client_id: str, blob: BlobRef, stored: Path) -> bool:
        """Make a stored blob a complete upload of this client, who need not send it; False where it is gone.

        So the answer that a blob need not be sent holds until the client commits, whatever is collected meanwhile.
        """
        with self._lock, disk_errors():
            disk.make_folder(self.folder / client_id, "upload.client")
            self._make_room(client_id, blob)
            with suppress(FileExistsError):
                try:
                    disk.link(stored, self._complete(client_id, blob.sha256), "upload.stored")
                except FileNotFoundError:
                    return False
        return True

    def forget(self, client_id: str) -> None:
        """Drop a client's uploads; what was kept stays."""
        disk.remove_tree(self.folder / client_id, "upload.forget")

    def expire(self, before: float) -> int:
        """Take away uploads that have not changed since a time (seconds since the epoch) and do not go on; says the size."""
        removed_bytes = 0
        for folder in sorted(self.folder.iterdir()):
            with self._lock, disk_errors(), suppress(FileNotFoundError):  # committed and forgotten meanwhile
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

    def _make_room(self, client_id: str, blob: BlobRef) -> None:
        age: dict[str, int] = {}
        for path in self.folder.joinpath(client_id).iterdir():
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
        return self.folder / client_id / sha256

    def _part(self, client_id: str, sha256: str) -> Path:
        return self.folder / client_id / f"{sha256}.part"


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
            with disk_errors():
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
            with disk_errors():
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
        with self._lock, disk_errors():
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
