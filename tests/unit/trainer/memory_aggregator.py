"""An aggregator as a client's tasks see it, in memory."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedplcc.shared.tensors import blob_ref
from fedplcc.shared.types import BlobRef, Client, CommittedUpdate, Evaluation, ForgottenRun, Membership, Update


@dataclass
class MemoryAggregator:
    """Holds blobs and remembers what it is given; errors that it is told to raise come once each."""

    retries: int = 2
    max_inline_bytes: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    """The roles of what was downloaded."""
    stored: dict[str, tuple[bytes, bool]] = field(default_factory=dict)
    updates: list[Any] = field(default_factory=list)
    inline: list[tuple[bytes, ...]] = field(default_factory=list)
    evaluations: list[Any] = field(default_factory=list)
    failures: dict[str, list[BaseException]] = field(default_factory=dict)
    num_joined: int = 0
    open_runs: tuple[str, ...] = ("run-1",)
    forgotten_runs: tuple[ForgottenRun, ...] = ()

    def announce(self, client: Client) -> Membership:
        self.num_joined += 1
        committed = None
        if self.updates:
            number, update = self.updates[-1]
            committed = CommittedUpdate("run-1", number, tuple(blob.sha256 for blob in update.payload.blobs))
        return Membership(
            heartbeat_interval_s=1.0,
            lease_s=5.0,
            max_chunk_bytes=1,
            max_blob_bytes=1,
            last_committed=committed,
            open_runs=self.open_runs,
            forgotten_runs=self.forgotten_runs,
        )

    def offer(self, role: str, data: bytes) -> BlobRef:
        blob = blob_ref(role, data)
        self.blobs[blob.sha256] = data
        return blob

    def fetch(self, blob: BlobRef) -> bytes:
        self._fail("fetch")
        self.fetched.append(blob.role)
        return self.blobs[blob.sha256]

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        self._fail("store")
        assert hashlib.sha256(data).hexdigest() == blob.sha256
        self.stored[blob.sha256] = (data, is_prototypes)

    def commit_update(
        self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
    ) -> CommittedUpdate:
        self._fail("commit")
        self.inline.append(tuple(inline))
        self.updates.append((round_number, update))
        self._fail("acknowledgement")
        return CommittedUpdate(run_id, round_number, tuple(blob.sha256 for blob in update.payload.blobs))

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        self.evaluations.append((round_number, evaluation))

    def _fail(self, where: str) -> None:
        if self.failures.get(where):
            raise self.failures[where].pop(0)
