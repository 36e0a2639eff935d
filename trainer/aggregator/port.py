"""The port through which a task reaches the aggregator, in domain types.

A networked trainer connects it by gRPC (task_connection.py); a simulation calls the aggregator in its own process. Every
method is idempotent, so that an implementation may retry it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedplcc.shared.types import BlobRef, Client, CommittedUpdate, Evaluation, Membership, Update


class AggregatorPort(Protocol):
    """The aggregator as one client's task sees it.

    A method may raise `fedplcc.trainer.cancellation.Cancelled` where the task is no longer wanted, and any error of
    shared/errors.py that the aggregator answers with.
    """

    @property
    def max_inline_bytes(self) -> int:
        """Most bytes of blobs that a commit may carry; 0 for none."""

    @property
    def retries(self) -> int:
        """Attempts after the first ones that this task has needed so far."""

    def announce(self, client: Client) -> Membership:
        """Join again with these facts of the client; the answer is later than everything that was sent before."""

    def fetch(self, blob: BlobRef) -> bytes:
        """Return the bytes of a blob of the client's present task. The caller checks their SHA-256."""

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Store one blob of the client's update; it is complete when this returns."""

    def commit_update(
        self, run_id: str, round_number: int, update: Update, inline: Sequence[bytes] = ()
    ) -> CommittedUpdate:
        """Make the update part of its round; its blobs are stored, or come along in `inline`."""

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report one client's evaluation of a round."""
