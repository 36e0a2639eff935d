"""The aggregator as one task of a networked trainer sees it."""

from __future__ import annotations

from collections.abc import Sequence

from fedplcc.shared.convert.evaluations import evaluation_to_report
from fedplcc.shared.convert.updates import committed_from_proto, update_to_commit
from fedplcc.shared.convert.uploads import UploadHeader, upload_header_to_proto
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import BlobRef, Client, CommittedUpdate, Evaluation, Membership, Update
from fedplcc.trainer.aggregator.retries import Retries
from fedplcc.trainer.aggregator.round_service import ANSWER_S, RoundServiceCalls
from fedplcc.trainer.aggregator.task_stream import TaskStream
from fedplcc.trainer.aggregator.transfers import Download, ResentBytes, Upload
from fedplcc.trainer.cancellation import ShouldStop

COMMIT_S, COMMIT_BYTES_PER_S = 60.0, 20e6
"""Deadline of a commit: the aggregator reads every blob of the update before it answers."""
BESIDE_HEARTBEATS_BYTES = 64 << 10
"""Most inline bytes of a commit that heartbeats may wait behind; more go over the connection of blobs. So a trainer of small
models needs no second connection."""


class TaskConnection:
    """The calls of one task; keeps `fedplcc.trainer.aggregator.port.AggregatorPort`.

    Each call is tried again while the aggregator is away, restarts, or lets another instance act for the client; all of them
    are idempotent.
    """

    def __init__(self, calls: RoundServiceCalls, stream: TaskStream, should_stop: ShouldStop) -> None:
        """Prepare.

        Args:
            should_stop: Ends every call and every wait.
        """
        self._calls, self._stream = calls, stream
        self._should_stop: ShouldStop = lambda: calls.is_closed or should_stop()
        self._attempts = Retries(calls, stream, self._should_stop)
        self._received: dict[str, ResentBytes] = {}

    @property
    def max_inline_bytes(self) -> int:
        """Most bytes of blobs that a commit may carry, as the aggregator said last; 0 for none."""
        return self._calls.max_inline_bytes

    @property
    def retries(self) -> int:
        """Attempts after the first ones that this task has needed so far."""
        return self._attempts.count

    def announce(self, client: Client) -> Membership:
        """Join again, with other sample counts or to learn the client's last committed update."""
        return self._attempts.until_done("join", lambda: self._calls.join(client))

    def fetch(self, blob: BlobRef) -> bytes:
        """Return a blob that came with the task, or download it.

        Raises:
            BlobNotFound: The client's present task does not name it.
            BlobCorrupt: The bytes that arrive are no part of it.
            Cancelled: The task is no longer wanted.
        """
        inline = self._stream.inline_blob(blob)
        if inline is not None:
            return inline
        # A blob that arrived corrupt is fetched once more: all of its bytes have been moved before.
        counter = self._calls.metrics.resent_bytes.labels("received")
        resent = self._received.setdefault(blob.sha256, ResentBytes(counter))
        download = Download(self._calls, blob, self._should_stop, resent)
        self._attempts.until_done("download", download.attempt, lambda: download.size)
        return download.data

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Upload a blob from the offset that the aggregator names.

        Raises:
            RoundClosed, NotInCohort, BlobTooLarge: The aggregator does not take it.
            Cancelled: The task is no longer wanted.
        """
        header = UploadHeader(
            run_id=run_id,
            round=round_number,
            client_id=self._calls.client_id,
            instance_token=self._calls.instance_token,
            blob=blob,
        )
        proto = upload_header_to_proto(header)
        upload = Upload(self._calls, proto, data, self._should_stop, is_prototypes=is_prototypes)
        self._attempts.until_done("upload", upload.attempt, lambda: upload.offset)

    def commit_update(
        self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
    ) -> CommittedUpdate:
        """Make the update part of its round.

        Args:
            inline: Bytes of its blobs that were not stored before, at most `max_inline_bytes` of all together.

        Raises:
            BlobTooLarge: The aggregator takes fewer inline bytes than it said.
            MalformedUpdate, RoundClosed, NotInCohort, UpdateConflict: The aggregator refuses it.
            Cancelled: The task is no longer wanted.
        """
        calls = self._calls
        request = update_to_commit(
            update,
            run_id=run_id,
            round_number=round_number,
            instance_token=calls.instance_token,
            inline_blobs=inline,
        )
        deadline_s = COMMIT_S + sum(blob.size_bytes for blob in update.payload.moved) / COMMIT_BYTES_PER_S

        sizes = {blob.sha256: blob.size_bytes for blob in update.payload.prototype_sets}
        prototype_bytes = sum(sizes.get(sha256_hex(data), 0) for data in inline)
        moved = {"prototypes": prototype_bytes, "model": sum(map(len, inline)) - prototype_bytes}

        def commit() -> CommittedUpdate:
            for kind, num_bytes in moved.items():
                calls.metrics.transfer_bytes.labels("sent", kind).inc(num_bytes)
            with calls.calling("CommitUpdate") as link:
                stub = link.stub if sum(moved.values()) <= BESIDE_HEARTBEATS_BYTES else link.transfers
                return committed_from_proto(stub.CommitUpdate(request, timeout=deadline_s).committed)

        return self._attempts.until_done("commit", commit)

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report counts.

        Raises:
            MalformedUpdate, RoundClosed, NotInCohort: The aggregator refuses them.
            Cancelled: The task is no longer wanted.
        """
        calls = self._calls
        request = evaluation_to_report(
            evaluation, run_id=run_id, round_number=round_number, instance_token=calls.instance_token
        )

        def report() -> None:
            with calls.calling("ReportEvaluation") as link:
                link.stub.ReportEvaluation(request, timeout=ANSWER_S)

        self._attempts.until_done("report", report)
