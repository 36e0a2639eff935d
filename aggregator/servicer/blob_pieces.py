"""Bytes of a stored blob, sent in pieces whose size follows the receiver's speed."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from pathlib import Path

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.servicer.calls import call
from fedplcc.shared.errors import PayloadCorrupt
from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.types import BlobRef
from fedplcc.shared.wire.chunk_size import ChunkSizes

SEND_BYTES = (1 << 20) - 64
"""Largest piece. The encoder rounds its buffer up to a power of two: piece and message header together fit into 1 MiB."""

OF_A_CALLER_BYTES, AT_ONCE_BYTES = 4 << 20, 32 << 20
"""Bytes of the pieces of one caller's downloads, and of everybody's, that go on at once: of more than 4, or 32, each has
smaller ones. While a reader takes a piece, it is here three times: as it was read, as a message, and in what gRPC sends."""
_open: Counter[Hashable] = Counter()
"""Downloads that go on, by caller; used on the event loop."""


async def pieces_of(coordinator: Coordinator, blob: BlobRef, offset_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield a blob's bytes from an offset on; a piece grows while the receiver takes it quickly."""
    sizes = ChunkSizes(min(SEND_BYTES, coordinator.transfers.max_chunk_bytes))
    caller = current_principal.get().share
    _open[caller] += 1
    try:
        with coordinator.transfers.reading(blob) as path:
            # Each piece opens the file again, so that a call cancelled at any moment leaves no file open.
            while offset_bytes < blob.size_bytes and (
                data := await call(_read_piece, path, offset_bytes, min(sizes.next_bytes, _share_bytes(caller)))
            ):
                begin = time.monotonic()
                yield data
                sizes.record(len(data), time.monotonic() - begin)
                offset_bytes += len(data)
    finally:
        _open[caller] -= 1
        if not _open[caller]:
            del _open[caller]


async def whole_pieces_of(coordinator: Coordinator, blob: BlobRef, offset_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield a blob's bytes as `pieces_of` does; the last piece goes out only after the SHA-256 of all was found right.

    Who goes on at an offset has the SHA-256, and checks the whole.

    Raises:
        PayloadCorrupt: The stored bytes are damaged.
    """
    digest, last = hashlib.sha256(), b""
    async with aclosing(pieces_of(coordinator, blob, offset_bytes)) as pieces:
        async for data in pieces:
            if last:
                yield last
            last = data
            if not offset_bytes:
                await call(digest.update, data)
    if not offset_bytes and digest.hexdigest() != blob.sha256:
        coordinator.transfers.doubt(blob.sha256)
        raise PayloadCorrupt(
            f"the stored {blob.role} does not have its SHA-256; the disk or somebody damaged it", sha256=blob.sha256
        )
    if last:
        yield last


def _share_bytes(caller: Hashable) -> int:
    share = AT_ONCE_BYTES // _open.total()
    return share if caller is None else min(share, OF_A_CALLER_BYTES // _open[caller])


def _read_piece(path: Path, offset_bytes: int, num_bytes: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(offset_bytes)
        return file.read(num_bytes)
