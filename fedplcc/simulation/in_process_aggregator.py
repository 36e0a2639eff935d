"""One client's connection to the aggregator in this process: the calls that gRPC would make, without sockets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.aggregator.metrics.transfers import Direction
from fedplcc.shared.types import BlobRef, Client, CommittedUpdate, Evaluation, Heartbeat, Membership, Task, Update

CHUNK_BYTES = 1 << 20
"""Size of one piece of an upload."""


class InProcessAggregator:
    """The trainer's view of the aggregator's service. Each client may call its own from another thread."""

    retries: int = 0

    def __init__(self, service: Coordinator, client_id: str, token: str) -> None:
        self._service, self._client_id, self._token = service, client_id, token

    @property
    def max_inline_bytes(self) -> int:
        """Most bytes of blobs that a commit may carry."""
        return self._service.max_inline_bytes

    def task(self) -> Task:
        """Return the client's present task."""
        return self._service.task(self._client_id, self._token)

    def announce(self, client: Client) -> Membership:
        """Join, or join again."""
        return self._service.join(client, self._token)

    def leave(self) -> None:
        """Take the task of a run that stops, and be idle."""
        self.task()
        self._service.heartbeat(Heartbeat(client_id=self._client_id), self._token)

    def fetch(self, blob: BlobRef) -> bytes:
        """Return the bytes of a blob of the client's present task."""
        return self.locate(blob).read_bytes()

    def locate(self, blob: BlobRef) -> Path:
        """Return the file of a blob of the client's present task, and count it as sent."""
        _blob, kind, path = self._service.transfers.open_download(self._client_id, self._token, blob.sha256)
        self._count(blob, 0, blob.size_bytes, direction="sent", kind=kind)
        return path

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update, piece by piece; an interrupted upload goes on where it ended."""
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

    def commit_update(
        self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
    ) -> CommittedUpdate:
        """Make the update part of its round."""
        return self._service.commit_update(self._client_id, self._token, run_id, round_number, update, inline)

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
