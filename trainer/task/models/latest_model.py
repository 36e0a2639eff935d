"""The latest global model, shared by the clients of one process."""

from __future__ import annotations

from fedplcc.shared.types import BlobRef


class LatestModel:
    """The model that one of the clients fetched last. For one thread.

    All clients of a round start from the same model, evaluate the same one, and start the next round from that. Where many
    clients share a process, the first one fetches it and checks its SHA-256 for all: the memory of one model suffices.
    """

    def __init__(self) -> None:
        self._latest: tuple[BlobRef, bytes] | None = None
        self._made: tuple[str, BlobRef] | None = None

    def get(self, blob: BlobRef) -> bytes | None:
        """Return the bytes of the model if it is the latest one; None otherwise."""
        return self._latest[1] if self._latest is not None and self._latest[0] == blob else None

    def put(self, blob: BlobRef, data: bytes) -> None:
        """Keep a model, whose bytes have its SHA-256, in place of the one before."""
        self._latest = blob, data

    def is_made_here(self, config_hash: str, blob: BlobRef) -> bool:
        """Whether this process made a first model of a configuration, or one like it, and it is this one."""
        return self._made == (config_hash, blob)

    def made_here(self, config_hash: str, blob: BlobRef) -> None:
        """Remember a first model that this process made of its configuration, or found to be as it would make it."""
        self._made = config_hash, blob
