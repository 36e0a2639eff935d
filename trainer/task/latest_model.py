"""The global model that the clients of one process have in common."""

from __future__ import annotations

from shared.types import BlobRef


class LatestModel:
    """The model that one of the clients fetched last. For one thread.

    All clients of a round begin with one model, evaluate one after it, and begin the next round with that. Where many live
    in one process, the first one fetches it and checks its SHA-256 for all of them: one model of memory, however many.
    """

    def __init__(self) -> None:
        self._latest: tuple[BlobRef, bytes] | None = None

    def get(self, blob: BlobRef) -> bytes | None:
        """Its bytes, if it is this one."""
        return self._latest[1] if self._latest is not None and self._latest[0] == blob else None

    def put(self, blob: BlobRef, data: bytes) -> None:
        """Hold a model, whose bytes have its SHA-256, in place of the one before."""
        self._latest = blob, data
