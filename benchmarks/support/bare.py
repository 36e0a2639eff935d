"""The yardstick: the least that moves the same bytes, and keeps them, over the same gRPC with the same chunks.

A synchronous server hands out a file and takes files in, hashed as they come and fsynced at their end; messages are bare
bytes, with no protocol buffers, no names, no checks of who sends what, no database, and nothing to go on with after a crash.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.support.members import Members
from fedplcc.shared.wire.channels import SERVER_OPTIONS

CHUNK_BYTES = (1 << 20) - 64
"""As trainer and aggregator cut blobs."""
MEAN_ELEMENTS = 1 << 17
"""Elements of a block of the mean; the fastest of 2^14 to 2^20 on the machine of the committed results."""
THREADS = 16
MODEL = "model"


def serve(control: Connection, folder: Path, model: bytes, members: Members, keeps: bool = True) -> None:
    """Say the port, serve, and take the mean of uploads whose names are asked for; ends when `control` does.

    Args:
        control: To whoever started this process.
        folder: Where uploads are kept, all of them, as a store keeps them.
        model: What is downloaded.
        members: Whose certificates are spoken, if any.
        keeps: Whether bytes rest: hashed, in files, fsynced. Else they only move: out of memory, and into nothing.
    """
    (folder / MODEL).write_bytes(model)
    server = grpc.server(ThreadPoolExecutor(THREADS), options=SERVER_OPTIONS)

    def download(_request: bytes, _context: Any) -> Iterator[bytes]:
        return _file_pieces(folder / MODEL) if keeps else pieces(model)

    def upload(parts: Iterator[bytes], _context: Any) -> bytes:
        name = next(parts).decode()
        return _receive(folder / name, parts) if keeps else b"%d" % sum(map(len, parts))

    handlers = {
        "Download": grpc.unary_stream_rpc_method_handler(download),
        "Upload": grpc.stream_unary_rpc_method_handler(upload),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare.Bare", handlers),))
    where, tls = "127.0.0.1:0", members.server_tls()
    credentials = None if tls is None else tls.credentials()
    port = server.add_insecure_port(where) if credentials is None else server.add_secure_port(where, credentials)
    server.start()
    control.send(port)
    try:
        while True:
            _write_mean(folder, control.recv(), len(model))
            control.send(True)
    except EOFError:
        pass
    server.stop(None)


class BareClient:
    """One connection to the bare server."""

    def __init__(self, port: int, members: Members, *, hashes: bool = True) -> None:
        self._hashes, self._count = hashes, 0
        self._channel = members.open_bare_channel(f"127.0.0.1:{port}", "bare")
        self._download = self._channel.unary_stream("/bare.Bare/Download", None, None)
        self._upload = self._channel.stream_unary("/bare.Bare/Upload", None, None)

    def download(self) -> bytes:
        """The model."""
        received = []
        digest = hashlib.sha256()
        for piece in self._download(b""):
            if self._hashes:
                digest.update(piece)
            received.append(piece)
        return b"".join(received)

    def upload(self, client: str, data: bytes) -> str:
        """Send one blob; returns the name under which it is kept.

        Raises:
            RuntimeError: It arrived otherwise.
        """
        self._count += 1
        name = f"{client}-{self._count}"
        digest = hashlib.sha256()

        def parts() -> Iterator[bytes]:
            yield name.encode()
            for piece in pieces(data):
                if self._hashes:
                    digest.update(piece)
                yield piece

        if self._upload(parts()) != (digest.digest() if self._hashes else b"%d" % len(data)):
            raise RuntimeError("the upload arrived otherwise than it was sent")
        return name

    def close(self) -> None:
        """End the connection."""
        self._channel.close()


def pieces(data: bytes) -> Iterator[bytes]:
    """Bytes as they are sent."""
    for begin in range(0, len(data), CHUNK_BYTES):
        yield data[begin : begin + CHUNK_BYTES]


def mean_blocks(paths: Sequence[Path], begin: int, num_elements: int) -> Iterator[np.ndarray[Any, Any]]:
    """The bare mean: equally weighted, float32, block by block, of the float32 that follow byte `begin` of each file.

    A block is overwritten by the next one.
    """
    scratch, sums = np.empty(MEAN_ELEMENTS, np.float32), np.empty(MEAN_ELEMENTS, np.float32)
    for first in range(0, num_elements, MEAN_ELEMENTS):
        count = min(MEAN_ELEMENTS, num_elements - first)
        block, total = scratch[:count], sums[:count]
        total[:] = 0
        for path in paths:
            with path.open("rb", buffering=0) as file:
                file.seek(begin + 4 * first)
                file.readinto(block.data)
            block *= np.float32(1 / len(paths))
            total += block
        yield total


def _write_mean(folder: Path, names: Sequence[str], size_bytes: int) -> None:
    paths = [folder / name for name in names]
    with paths[0].open("rb") as file:
        prefix = file.read(8)
        header = prefix + file.read(int.from_bytes(prefix, "little"))
    with (folder / "mean").open("wb") as file:
        file.write(header)
        for block in mean_blocks(paths, len(header), (size_bytes - len(header)) // 4):
            file.write(block.data)
        file.flush()
        os.fsync(file.fileno())
    (folder / "mean").rename(folder / MODEL)


def _file_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _receive(path: Path, parts: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        os.fsync(file.fileno())
    return digest.digest()
