"""Uploads of clients on disk, received chunk by chunk until a commit stores them as blobs.

    incoming/CLIENT/ab12...     complete upload of a client, not yet part of a committed update
    incoming/CLIENT/ab12....part  incomplete upload, resumed after its last byte

A part that a power cut damaged fails its SHA-256 and starts again from its first byte.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedplcc.aggregator.store.blobs.disk_errors import disk_errors
from fedplcc.aggregator.store.blobs.seals import Sealing
from fedplcc.shared.errors import BlobCorrupt, BlobIncomplete, ChunkOutOfOrder, UploadSuperseded
from fedplcc.shared.process import disk
from fedplcc.shared.types import BlobRef

READ_BYTES = 1 << 20
"""Bytes read from a file at a time."""
MAX_UPLOADS = 16
"""Most uploads of one client; far more than an update has blobs."""


class Uploads:
    """Uncommitted uploads of all clients, in an existing state directory."""

    def __init__(self, folder: Path, on_whole: Callable[[str], None]) -> None:
        """Prepare.

        Args:
            on_whole: Called with the SHA-256 of each upload that matched it.
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
        """Return the file of a complete upload of this client, or None."""
        path = self._complete(client_id, blob.sha256)
        return path if path.is_file() else None

    def received_bytes(self, client_id: str, blob: BlobRef) -> int:
        """Return the number of bytes of the blob received from this client so far."""
        try:
            return min(self._part(client_id, blob.sha256).stat().st_size, blob.size_bytes)
        except FileNotFoundError:
            return 0

    def begin(self, client_id: str, blob: BlobRef, budget_bytes: int | None = None) -> Upload:
        """Resume an upload after its last byte; an older stream of the same upload is closed.

        A client's oldest other uploads are removed where there are more than `MAX_UPLOADS`, or where they and this blob
        exceed the client's budget: uploads that are never committed fill neither the disk nor the table of open files.

        Args:
            budget_bytes: Most bytes of the client's uploads; no limit if None.
        """
        with self._lock:
            key = (client_id, blob.sha256)
            if key in self._uploads:
                self._uploads[key].close()
            with disk_errors():
                disk.make_folder(self.folder / client_id, "upload.client")
                self._make_room(client_id, blob, budget_bytes)
                upload = Upload(self._part(client_id, blob.sha256), self._complete(client_id, blob.sha256), blob)
            self._uploads[key] = upload
            return upload

    def end(self, client_id: str, upload: Upload) -> None:
        """Close an upload, complete or not."""
        upload.close()
        if upload.is_whole:
            self._on_whole(upload.blob.sha256)
        with self._lock:
            key = (client_id, upload.blob.sha256)
            if self._uploads.get(key) is upload:
                del self._uploads[key]

    def link(self, client_id: str, blob: BlobRef, stored: Path) -> bool:
        """Link a stored blob as a complete upload of this client, which need not send it; returns False if it is missing.

        The client's commit then finds the blob even if garbage collection has removed the stored one.
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
        """End a client's uploads and remove them; stored blobs stay. A stream that sends one is told to begin again."""
        folder = self.folder / client_id
        if folder.is_dir():  # small updates come without an upload
            with self._lock, disk_errors():
                self._close_all(client_id)
                disk.remove_tree(folder, "upload.forget")

    def held_bytes(self, client_id: str) -> int:
        """Return the bytes of a client's uploads that no commit has stored yet."""
        try:
            files = [path.stat() for path in (self.folder / client_id).iterdir()]
        except OSError:
            return 0  # it has none, or they were committed and forgotten meanwhile
        return sum(status.st_size for status in files if status.st_nlink == 1)

    def has_any(self, client_id: str) -> bool:
        """Whether a client has uploads, also one without a byte yet."""
        with suppress(OSError):  # committed and forgotten meanwhile
            return any((self.folder / client_id).iterdir())
        return False

    def holders(self) -> dict[str, int]:
        """Return the bytes of each client that has uploads, by client id."""
        with disk_errors():
            return {folder.name: self.held_bytes(folder.name) for folder in self.folder.iterdir()}

    def withdraw(self, client_id: str, upload: Upload) -> None:
        """End an upload that has just begun and remove it, unless a newer stream has taken over."""
        upload.close()
        with self._lock, disk_errors():
            key = (client_id, upload.blob.sha256)
            if self._uploads.get(key) is upload:
                del self._uploads[key]
                disk.remove(upload.part_path, "upload.withdrawn")

    def drop(self, client_id: str) -> int:
        """End a client's uploads and remove them; returns their bytes. A stream that sends one is told to begin again."""
        with self._lock, disk_errors():
            held_bytes = self.held_bytes(client_id)
            self._close_all(client_id)
            disk.remove_tree(self.folder / client_id, "upload.dropped")
        return held_bytes

    def expire(self, before: float) -> int:
        """Remove inactive uploads without changes since a time (seconds since the epoch); returns the freed bytes."""
        removed_bytes = 0
        for folder in sorted(self.folder.iterdir()):
            with self._lock, disk_errors(), suppress(FileNotFoundError):  # committed and forgotten meanwhile
                busy = {sha256 for client_id, sha256 in self._uploads if client_id == folder.name}
                stays = False
                for path in folder.iterdir():
                    status = path.stat()
                    # st_ctime: creation of a link counts as a change, whatever the age of the linked blob.
                    if status.st_ctime >= before or path.name.removesuffix(".part") in busy:
                        stays = True
                        continue
                    disk.remove(path, "upload.expire")
                    removed_bytes += status.st_size if status.st_nlink == 1 else 0
                if not stays:
                    disk.remove_tree(folder, "upload.expire")
        return removed_bytes

    def _close_all(self, client_id: str) -> None:
        """Close a client's files before their removal: one that stays open takes room that nobody sees."""
        for (name, _sha256), upload in self._uploads.items():
            if name == client_id:
                upload.close()

    def _make_room(self, client_id: str, blob: BlobRef, budget_bytes: int | None = None) -> None:
        age, left = dict[str, int](), dict[str, int]()
        for path in self.folder.joinpath(client_id).iterdir():
            with suppress(FileNotFoundError):  # forgotten meanwhile
                status, sha256 = path.stat(), path.name.removesuffix(".part")
                age[sha256] = status.st_mtime_ns
                left[sha256] = left.get(sha256, 0) + (status.st_size if status.st_nlink == 1 else 0)
        age.pop(blob.sha256, None)
        rest_bytes = None if budget_bytes is None else budget_bytes - blob.size_bytes
        for number, sha256 in enumerate(sorted(age, key=lambda sha256: (age[sha256], sha256), reverse=True)):
            active = self._uploads.get((client_id, sha256))
            if rest_bytes is not None:
                # Of an upload that goes on, all that is announced.
                rest_bytes -= left[sha256] if active is None else active.blob.size_bytes
            if number < MAX_UPLOADS - 1 and (rest_bytes is None or rest_bytes >= 0):
                continue
            if active is not None:
                active.close()
            for path in (self._part(client_id, sha256), self._complete(client_id, sha256)):
                disk.remove(path, "upload.crowded_out")

    def _complete(self, client_id: str, sha256: str) -> Path:
        return self.folder / client_id / sha256

    def _part(self, client_id: str, sha256: str) -> Path:
        return self.folder / client_id / f"{sha256}.part"


class Upload:
    """Upload of one blob by one client: bytes in order, resumed where the last attempt ended.

    Bytes are written unbuffered: a newer stream that resumes at the file's end must find all of them, and none may follow.
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
        self._hashed: Sealing | None = None

    @property
    def offset_bytes(self) -> int:
        """Number of bytes received so far."""
        return self._size

    def write(self, offset_bytes: int, data: bytes) -> None:
        """Append a chunk.

        Raises:
            ChunkOutOfOrder: It does not begin where the received bytes end, or exceeds the announced size.
            UploadSuperseded: The upload was closed or removed, or a newer stream has taken over.
            StoreUnavailable: The disk is full or away; begin the upload again to resume it.
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
        """Check the blob and rename it to its final name.

        Raises:
            BlobIncomplete: Bytes are missing; the part is kept.
            BlobCorrupt: The bytes do not match the SHA-256; the part is emptied.
            UploadSuperseded: The upload was closed or removed, or a newer stream has taken over.
            StoreUnavailable: The disk refused the bytes.
        """
        with self._lock:
            self._check_is_open()
            if self._size < self.blob.size_bytes:
                raise BlobIncomplete(f"the upload ended at byte {self._size} of {self.blob.size_bytes}")
            with disk_errors():
                digest, self._hashed = self._digest(), None
                if digest.finish() != self.blob.sha256:
                    self._start_over()
                    raise BlobCorrupt("the bytes received do not have the announced SHA-256", sha256=self.blob.sha256)
                try:
                    disk.fsync_file(self._file.fileno(), "upload")
                except OSError:
                    self._start_over()  # after a failed fsync any byte may be missing on the disk
                    raise
                try:
                    disk.rename(self.part_path, self.complete_path, "upload")
                except FileNotFoundError:
                    self._file.close()  # committed and forgotten, or removed to make room
                self._check_is_open()
                self.is_whole = True

    def close(self) -> None:
        """Close the file, after a chunk that is being written; later chunks are refused."""
        with self._lock, disk_errors():
            self._file.close()

    def _check_is_open(self) -> None:
        if self._file.closed:
            raise UploadSuperseded("this stream of the upload has ended; begin it again", sha256=self.blob.sha256)

    def _append(self, data: bytes) -> None:
        digest, rest = self._digest(), memoryview(data)
        try:
            with disk.durable_step("upload", "append"):
                while rest:
                    rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.close()  # only the file's size tells how much of the chunk was written
            raise
        digest.update(data)
        self._size += len(data)

    def _digest(self) -> Sealing:
        """Return the hash of the received bytes; reads those of an earlier attempt when first called."""
        if self._hashed is None:
            digest = Sealing()
            self._file.seek(0)
            while piece := self._file.read(READ_BYTES):
                digest.update(piece)
            self._hashed = digest
        return self._hashed

    def _start_over(self) -> None:
        self._file.truncate(0)
        self._size, self._hashed = 0, None
