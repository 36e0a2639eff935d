"""What the aggregator asks of a store. The docstrings are the contract; tests/contract/test_store.py holds stores to it.

A transaction is atomic and durable: after the `with` block ends, a crash at any moment keeps all of it; if the block
raises, none of it is kept. Only one transaction is open at a time; reads see the last committed state. Lists by a text are
in the order of code points. Every call raises `StoreUnavailable` while the database is away, full or damaged, and
`MalformedRequest` for a name or a sentence with the character U+0000.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from shared.types import BlobRef, Client, CommittedUpdate, Evaluation, Event, EventQuery, Round, Run, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """A request to pause, resume or stop a run that was done, under the id that its caller gave it."""

    request_id: str
    request_hash: str
    """SHA-256 of what it asked for, and of which run."""
    run_id: str
    created_at: float


class Transaction(Protocol):
    """Writes that become true together."""

    def add_run(self, run: Run, *, request_id: str, request_hash: str) -> None:
        """Record a new run under the caller's request id; both ids are new."""

    def add_control_request(self, request: ControlRequest) -> None:
        """Record that a request was done; its id is new."""

    def save_run(self, run: Run) -> None:
        """Record the run's present state and that of its latest round; updates and evaluations have calls of their own."""

    def add_update(self, run_id: str, round_number: int, committed: Update) -> None:
        """Record a committed update, its blobs and that this client stored them; the key is new."""

    def add_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Record a report; the key is new."""

    def save_client(self, client: Client) -> None:
        """Record a client, or what changed of it; progress, readings and connection are not kept."""

    def add_blob(self, blob: BlobRef) -> None:
        """Name a blob that is durable on disk. Naming it again changes nothing."""

    def forget_blobs(self, sha256s: Sequence[str]) -> None:
        """Name these blobs no more, nor who stored them; one that is not named is fine. Records that mention them stay."""

    def add_event(self, event: Event) -> None:
        """Append to the history; the store gives the sequence."""


class Store(Protocol):
    """Durable state of an aggregator."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open the one transaction.

        Raises:
            StoreUnavailable: The database cannot be written.
        """

    def open_runs(self) -> list[Run]:
        """Runs that have not ended, oldest first, each with its latest round, updates and evaluations."""

    def find_run(self, run_id: str) -> Run | None:
        """A run with its latest round, updates and evaluations."""

    def find_request(self, request_id: str) -> tuple[str, str] | None:
        """The run id and request hash recorded under a request id that created a run."""

    def find_control_request(self, request_id: str) -> ControlRequest | None:
        """The request to pause, resume or stop that was done under an id."""

    def list_runs(self, *, limit: int, before: str = "") -> list[Run]:
        """Runs, newest first, from the one after `before`; their rounds carry no updates or evaluations."""

    def list_rounds(self, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        """Rounds of a run in order, without updates and evaluations."""

    def find_round(self, run_id: str, number: int) -> Round | None:
        """One round with its updates and evaluations."""

    def list_evaluations(
        self, run_id: str, number: int | None = None, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Evaluation]]:
        """Reports of a run or of one round, by round and client id, from the one after `after`; all without a limit."""

    def list_events(self, query: EventQuery) -> list[Event]:
        """The entries of the history that are asked for."""

    def list_clients(self, *, after: str = "", limit: int | None = None) -> list[Client]:
        """Clients that ever joined, by id, from the one after `after`; all of them without a limit."""

    def find_client(self, client_id: str) -> Client | None:
        """One client."""

    def last_committed(self, client_id: str) -> CommittedUpdate | None:
        """The client's newest committed update."""

    def list_updates(
        self, run_id: str, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Update]]:
        """Updates of a run by round and client id, from the one after `after`; all without a limit."""

    def newest_updates(self, run_id: str, *, first: int, end: int) -> dict[str, Update]:
        """The newest update of each client of a run in its rounds from `first` to the one before `end`, by client id."""

    def has_stored(self, client_id: str, sha256: str) -> bool:
        """Whether this client committed an update with this blob before."""

    def find_blob(self, sha256: str) -> int | None:
        """Size in bytes of a named blob."""

    def list_blobs(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Named blobs by SHA-256, each with its size in bytes, from the one after `after`."""

    def domains(self, clients: Sequence[str]) -> dict[str, str]:
        """The domain of each of these clients."""

    def close(self) -> None:
        """Let go of files and connections."""
