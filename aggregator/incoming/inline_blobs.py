"""Inline blobs: small blobs whose bytes travel inside the message that names them, in a commit or with a task.

A round of five clients with a model of 40 kB cost 26 calls, and costs 10. There is no call for small updates, which would
be a second way to commit, and an inline update keeps the guarantees of an uploaded one. With a task a trainer says what it
takes and what it holds: what it was sent is not remembered, since a lost answer would leave both ends with different
beliefs.
"""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import BinaryIO, Literal

from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.errors import BlobCorrupt, BlobTooLarge, FedplccError
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import BlobRef, Payload

MAX_KEPT_BYTES = 8 << 20
"""Most bytes of small blobs that are kept in memory for tasks."""


class InlineBlob:
    """Content of a blob that came inside a commit; keeps `checked.Content`."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        """Open the content for reading."""
        return io.BytesIO(self.data)

    def read_bytes(self) -> bytes:
        """Return the content."""
        return self.data


def came_along(payload: Payload, inline: Sequence[bytes], *, max_bytes: int) -> dict[BlobRef, InlineBlob]:
    """Return the blobs of an update's payload whose bytes came with its commit.

    Args:
        max_bytes: Most bytes of all of them together.

    Raises:
        BlobTooLarge: There are more bytes.
        BlobCorrupt: Some have neither SHA-256 nor size of a blob of the payload.
    """
    num_bytes = sum(map(len, inline))
    if num_bytes > max_bytes:
        raise BlobTooLarge(f"the blobs inside a commit have at most {max_bytes} bytes together, these {num_bytes}")
    contents = {(sha256_hex(data), len(data)): InlineBlob(data) for data in inline}
    named = {(blob.sha256, blob.size_bytes) for blob in payload.moved}
    for sha256, _size in contents.keys() - named:
        raise BlobCorrupt("bytes inside the commit are no blob of its payload, by SHA-256 and size", sha256=sha256)
    found = {blob: contents.get((blob.sha256, blob.size_bytes)) for blob in payload.moved}
    return {blob: content for blob, content in found.items() if content is not None}


class SmallBlobs:
    """Bytes of the blobs that go out with tasks: read and checked once, kept while there is room. For any thread.

    A thousand clients get the same model at the same time: it is read when it is made, after a restart by one of them.
    """

    def __init__(self, blobs: BlobStore, *, max_inline_bytes: int) -> None:
        """Prepare.

        Args:
            max_inline_bytes: Most bytes of blobs with one task; 0 for none.
        """
        self._blobs, self._max_inline_bytes = blobs, max_inline_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()  # of what is kept
        self._reading = threading.Lock()  # of the file that one reads for all

    def wanted(self, payload: Payload, *, held: Collection[str], max_bytes: int) -> tuple[BlobRef, ...]:
        """Return the blobs of a task that go out with it: all that the trainer does not hold, or none if they are too large.

        Args:
            held: SHA-256 of the blobs that the trainer holds.
            max_bytes: Most bytes that the trainer takes.
        """
        missing = tuple({blob.sha256: blob for blob in payload.moved if blob.sha256 not in held}.values())
        fits = sum(blob.size_bytes for blob in missing) <= min(max_bytes, self._max_inline_bytes)
        return missing if fits else ()

    def kept(self, blobs: Sequence[BlobRef]) -> tuple[bytes, ...] | None:
        """Return the bytes of blobs if all are in memory. Waits for no file: the event loop may call it."""
        with self._lock:
            found = [self._kept.get(blob.sha256) for blob in blobs]
        return None if None in found else tuple(data for data in found if data is not None)

    def expect(self, blobs: Iterable[BlobRef | None]) -> None:
        """Have those that may go out in memory before anybody is woken for them: else each of a thousand asks a thread."""
        self.read([blob for blob in blobs if blob is not None and blob.size_bytes <= self._max_inline_bytes])

    def read(self, blobs: Sequence[BlobRef]) -> tuple[bytes, ...]:
        """Return the bytes of blobs; none where one cannot be read: its download will say why."""
        with self._reading:
            found = [self._read(blob) for blob in blobs]
        return () if None in found else tuple(data for data in found if data is not None)

    def _read(self, blob: BlobRef) -> bytes | None:
        with self._lock:
            if blob.sha256 in self._kept:
                self._kept.move_to_end(blob.sha256)
                return self._kept[blob.sha256]
        with self._blobs.holds.reading(blob.sha256) as is_there:
            try:
                data = self._blobs.read(blob.sha256) if is_there else None
            except (FedplccError, OSError):
                return None
        if data is None:
            return None
        with self._lock:
            self._kept[blob.sha256] = data
            num_bytes = sum(map(len, self._kept.values()))
            while num_bytes > MAX_KEPT_BYTES:
                num_bytes -= len(self._kept.popitem(last=False)[1])
        return data
