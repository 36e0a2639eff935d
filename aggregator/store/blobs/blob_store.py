"""Blobs on disk, named by SHA-256.

    blobs/ab/ab12...            complete, durable; a database row names it
    initial/ab12...         complete, durable; a model that runs can begin with, whether one does or not
    initial/ab12....name    what people call it
    incoming/               what clients send, see uploads.py

A file is fsynced before it gets its name, and a folder after it got a new name; only then may a row name the blob. What a
crash leaves behind is always either a whole blob or a part that the next upload continues. What is not needed any more
leaves in the other order, the row first (see coordinator/garbage.py); a file that no row names is garbage, unless it is
just being put away (see holds.py).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from aggregator.store.blobs.disk_errors import disk_errors
from aggregator.store.blobs.files import BlobFiles, sha256_of
from aggregator.store.blobs.holds import Holds
from aggregator.store.blobs.uploads import Upload, Uploads
from shared.errors import BlobNotFound, StoreUnavailable
from shared.process import disk
from shared.process.log import get_logger
from shared.types import MODEL, BlobRef

log = get_logger(__name__)

RESERVED_BYTES = 16 << 20
"""What a model to begin with leaves free on the disk, so that the database and the runs' updates go on."""
MAX_VERIFIED = 1 << 15
"""Names that are remembered of blobs that this process has hashed; beyond them it hashes again."""


class BlobStore(BlobFiles):
    """Blobs, and the uploads that become blobs, below one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._staging = folder / "staging"
        self._initial = folder / "initial"
        self._durable: set[Path] = set()
        self._verified: set[str] = set()
        self.holds = Holds()
        """Of blobs that are being put away; see there."""
        self.uploads = Uploads(folder, on_whole=self._remember)
        """What clients send, before it is kept."""
        with disk_errors():
            disk.remove_tree(self._staging, "staging")
            for path in (self._blobs, self.uploads.folder, self._staging, self._initial):
                disk.make_folder(path, "state")
            disk.fsync_folder(folder, "state")

    def put(self, role: str, pieces: Iterable[bytes]) -> BlobRef:
        """Make a blob of these bytes durable and return its name. The same bytes again only mend what was damaged."""
        digest, size = hashlib.sha256(), 0
        with disk_errors(), tempfile.NamedTemporaryFile(dir=self._staging, delete=False) as file:
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

    def keep(self, client_id: str, blobs: Iterable[BlobRef]) -> None:
        """Make complete uploads durable as blobs. They stay uploads too, until they are forgotten: a crash loses nothing.

        Raises:
            BlobNotFound: A blob is neither an upload of this client nor stored; it may have been, before a `forget`.
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
        """Receive a model to begin with, always from its first byte; what is left of it goes when the aggregator starts.

        Raises:
            StoreUnavailable: The disk has no room for it beside `RESERVED_BYTES`.
        """
        with disk_errors():
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
        with disk_errors():
            for path in (upload.part_path, upload.complete_path):
                disk.remove(path, "initial.discard")

    def hold_initial(self, source: Path, sha256: str, name: str) -> None:
        """Make a model one that runs can begin with; the same again changes nothing but the name.

        Args:
            source: A durable file of these bytes.
            sha256: Of the bytes.
            name: What people call it.
        """
        with disk_errors():
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
        with disk_errors():
            self._name(self._initial / sha256, sha256)
            with disk.durable_step("initial.used"):
                os.utime(self._initial / f"{sha256}.name")

    def remove(self, names: Iterable[str]) -> int:
        """Take away blobs that no row names and `holds` has claimed; says how many bytes they had.

        Raises:
            StoreUnavailable: The disk refuses; what is left is garbage still.
        """
        removed_bytes = 0
        with disk_errors():
            for sha256 in names:
                path = self.path(sha256)
                with suppress(FileNotFoundError):
                    removed_bytes += path.stat().st_size
                    disk.remove(path, "blob.collect")
                self._verified.discard(sha256)
        return removed_bytes

    def expire_initial(self, before: float) -> int:
        """Take away models to begin with that were neither brought nor used since a time; says the bytes.

        A run that began with one keeps it as a blob.
        """
        removed_bytes = 0
        with disk_errors():
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

    def _name(self, source: Path, sha256: str) -> None:
        self.holds.take(sha256)
        target = self.path(sha256)
        if target.parent not in self._durable:
            # Also where it is there: whoever made it may have died, or may not have come to its fsync yet.
            disk.make_folder(target.parent, "blob.folder")
            disk.fsync_folder(self._blobs, "blob.folder")
            self._durable.add(target.parent)
        if target.is_file() and not target.samefile(source) and sha256_of(target) != sha256:
            log.warning("blob_mended", sha256=sha256, detail="the stored bytes were damaged; the same came again")
            disk.remove(target, "blob.collect")
        self._link(source, target, "blob")

    @staticmethod
    def _link(source: Path, target: Path, step: str) -> None:
        if not target.exists():
            with suppress(FileExistsError):
                disk.link(source, target, step)
        disk.fsync_folder(target.parent, step)
