"""Bytes of downloads that go on at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedplcc.aggregator.servicer.blob_pieces import OF_A_CALLER_BYTES, SEND_BYTES, pieces_of
from fedplcc.shared.identity.names import Role
from fedplcc.shared.identity.principals import Principal, current_principal
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import MODEL, BlobRef

DATA = bytes(range(256)) * (1 << 14)


async def grown(download: AsyncGenerator[bytes, None]) -> int:
    """Size of a download's fifth piece, the largest that it comes to."""
    return [len(await anext(download)) for _ in range(5)][-1]


async def sizes(coordinator: Any, num_others: int) -> tuple[int, int]:
    """Largest piece of a download beside others of the same caller, and of another caller's meanwhile."""
    blob = BlobRef(MODEL, sha256_hex(DATA), len(DATA))
    current_principal.set(Principal(role=Role.CLIENT, name="ann"))
    downloads = [pieces_of(coordinator, blob, 0) for _ in range(num_others + 1)]
    for download in downloads:
        await anext(download)
    of_ann = await grown(downloads[-1])
    current_principal.set(Principal(role=Role.CLIENT, name="bob"))
    downloads.append(pieces_of(coordinator, blob, 0))
    of_bob = await grown(downloads[-1])
    for download in downloads:
        await download.aclose()
    return of_ann, of_bob


def test_the_more_downloads_a_caller_has_the_smaller_are_its_pieces_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "blob"
    path.write_bytes(DATA)

    @contextmanager
    def reading(_blob: BlobRef) -> Iterator[Path]:
        yield path

    coordinator = SimpleNamespace(transfers=SimpleNamespace(max_chunk_bytes=SEND_BYTES, reading=reading))
    assert asyncio.run(sizes(coordinator, 0)) == (SEND_BYTES, SEND_BYTES)
    of_ann, of_bob = asyncio.run(sizes(coordinator, 30))
    assert of_ann * 31 <= OF_A_CALLER_BYTES
    assert of_bob == SEND_BYTES
