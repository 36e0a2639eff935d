"""The latest global model, shared by the clients of one process."""

from __future__ import annotations

from shared.types import BlobRef


class LatestModel:
    """The model that one of the clients fetched last. For one thread.

    All clients of a round start from the same model, evaluate the same one, and start the next round from that. Where many
    clients share a process, the first one fetches it and checks its SHA-256 for all: the memory of one model suffices.
    """

    def __init__(self) -> None:
        self._latest: tuple[BlobRef, bytes] | None = None

    def get(self, blob: BlobRef) -> bytes | None:
        """Return the bytes of the model if it is the latest one; None otherwise."""
        return self._latest[1] if self._latest is not None and self._latest[0] == blob else None

    def put(self, blob: BlobRef, data: bytes) -> None:
        """Keep a model, whose bytes have its SHA-256, in place of the one before."""
        self._latest = blob, data
