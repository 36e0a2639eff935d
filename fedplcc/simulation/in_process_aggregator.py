"""One client's way to an aggregator that lives in the same process: no sockets, otherwise all that gRPC does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from aggregator.coordinator.service import Coordinator
from aggregator.metrics.transfers import Direction
from shared.types import BlobRef, Client, CommittedUpdate, Evaluation, Membership, Task, Update

CHUNK_BYTES = 1 << 20
"""Piece in which an upload is handed over."""


class InProcessCoordinator:
    """The trainer's view of an aggregator's service. Clients may call theirs in threads of their own, as gRPC does."""

    retries: int = 0

    def __init__(self, service: Coordinator, client_id: str, token: str) -> None:
        self._service, self._client_id, self._token = service, client_id, token

    def task(self) -> Task:
        """The client's task now."""
        return self._service.task(self._client_id, self._token)

    def announce(self, client: Client) -> Membership:
        """Join, or join again."""
        return self._service.join(client, self._token)

    def fetch(self, blob: BlobRef) -> bytes:
        """The bytes of a blob of the client's present task."""
        return self.locate(blob).read_bytes()

    def locate(self, blob: BlobRef) -> Path:
        """The file of a blob of the client's present task, which will be read."""
        _blob, kind, path = self._service.transfers.open_download(self._client_id, self._token, blob.sha256)
        self._count(blob, 0, blob.size_bytes, direction="sent", kind=kind)
        return path

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update, chunk by chunk, from where an interrupted upload ended."""
        names = (self._client_id, self._token, run_id, round_number, blob)
        receiver = self._service.transfers.begin_upload(*names)
        if receiver is None:
            return
        with closing(receiver):
            offset, _is_complete = self._service.transfers.upload_status(*names)
            for begin in range(offset, len(data), CHUNK_BYTES):
                receiver.write(begin, data[begin : begin + CHUNK_BYTES])
            receiver.finish()
        kind = "prototypes" if is_prototypes else "model"
        self._count(blob, offset, len(data) - offset, direction="received", kind=kind)

    def commit_update(self, run_id: str, round_number: int, update: Update) -> CommittedUpdate:
        """Make the update part of its round."""
        return self._service.commit_update(self._client_id, self._token, run_id, round_number, update)

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report the counts of one round's global model."""
        self._service.report_evaluation(self._client_id, self._token, run_id, round_number, evaluation)

    def _count(self, blob: BlobRef, offset_bytes: int, num_bytes: int, *, direction: Direction, kind: str) -> None:
        self._service.transfers.count_transfer(
            num_bytes,
            direction=direction,
            kind=kind,
            client_id=self._client_id,
            sha256=blob.sha256,
            offset_bytes=offset_bytes,
        )
