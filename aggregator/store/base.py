"""Protocols of the store. Their docstrings are the contract, which tests/contract/test_store.py checks for every store.

A transaction is atomic and durable: after the `with` block ends, a crash at any moment keeps all of it; if the block
raises, none of it is kept. Only one transaction is open at a time; reads see the last committed state. Lists by a text are
in the order of code points. Every call raises `StoreUnavailable` while the database is away, full or damaged, and
`MalformedRequest` for a name or a sentence with the character U+0000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from fedplcc.shared.identity.audit_chain import AuditEntry, AuditHead, AuditRecord
from fedplcc.shared.run_lists import RunLabels, RunList, RunQuery
from fedplcc.shared.types import (
    BlobRef,
    Client,
    CommittedUpdate,
    Evaluation,
    Event,
    EventQuery,
    Retired,
    Round,
    Run,
    RunSpec,
    RunStatus,
    Update,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """Executed request to pause, resume or stop a run, under its caller's id."""

    request_id: str
    request_hash: str
    """SHA-256 of the requested change and its run."""
    run_id: str
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """Invitation to join the federation; it admits one key."""

    invitation_id: str
    secret_sha256: str
    role: str
    name: str
    domain: str = ""
    replaces: bool = False
    """Whether it takes the name from its holder."""
    created_at: float
    expires_at: float
    spent_at: float | None = None
    serial: str | None = None
    """Serial of the certificate that was issued for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Certificate that was issued."""

    serial: str
    role: str
    name: str
    public_key_sha256: str
    issued_at: float
    not_after: float
    revoked_at: float | None = None
    pem: str
    """The certificate and those above it, in PEM."""


KEY, SESSION, PERSON = "key", "session", "person"
"""Kinds of keys: of a person or a program, of a browser, and of a person who signed on; the last is in no store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """Key of a person or a program, or a browser's session."""

    key_id: str
    secret_sha256: str
    kind: str
    """`KEY`, `SESSION` or `PERSON`."""
    label: str
    """A name for people; of a session the caller that opened it, of a person name and subject, as in the audit."""
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float
    revoked_at: float | None = None


class Transaction(Protocol):
    """Writes that are committed together."""

    def add_run(self, run: Run, *, request_id: str, request_hash: str) -> None:
        """Insert a run under the caller's request id; both ids are new."""

    def add_control_request(self, request: ControlRequest) -> None:
        """Insert an executed request; its id is new."""

    def save_run(self, run: Run) -> None:
        """Save the state of a run and of its latest round; updates and evaluations have methods of their own."""

    def add_update(self, run_id: str, round_number: int, committed: Update) -> None:
        """Insert a committed update, its blobs, and the fact that this client stored them; the key is new."""

    def end_damaged_run(self, run_id: str) -> None:
        """Record that a run with a damaged row was stopped; nothing else of it changes, and it stays damaged."""

    def remove_update(self, run_id: str, round_number: int, removed: Update) -> None:
        """Delete an update, and that its client has stored its blobs; missing rows are fine."""

    def remove_evaluation(self, run_id: str, round_number: int, client_id: str) -> None:
        """Delete a report; a missing row is fine."""

    def add_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Insert a report; the key is new."""

    def save_labels(self, run_id: str, labels: RunLabels) -> None:
        """Insert or update a run's labels; with a time of deletion no read below finds the run any more, but `find_runs`."""

    def remove_rows(self, run_id: str, most: int) -> int:
        """Delete rounds, updates and reports of a deleted run, `most` rows at most; returns how many."""

    def forget_client(self, client_id: str) -> None:
        """Delete a client, and which blobs it has stored; missing rows are fine. Its updates and reports stay."""

    def save_client(self, client: Client) -> None:
        """Insert or update a client; progress, readings and connection are not stored."""

    def add_blob(self, blob: BlobRef) -> None:
        """Add the row of a blob that is durable on disk. A repetition changes nothing."""

    def forget_blobs(self, sha256s: Sequence[str]) -> None:
        """Delete the rows of blobs and of their senders; missing rows are fine. Records that mention the blobs stay."""

    def add_event(self, event: Event) -> None:
        """Append an event to the history; the store assigns its sequence."""

    def add_events(self, events: Sequence[Event]) -> None:
        """Append events to the history, in order."""

    def save_invitation(self, invitation: Invitation) -> None:
        """Insert or update an invitation."""

    def save_certificate(self, certificate: Certificate) -> None:
        """Insert or update a certificate."""

    def forget_open_invitations(self, role: str, name: str) -> None:
        """Delete the invitations for a holder for which nothing was issued; missing rows are fine."""

    def forget_ended(self, before: float) -> None:
        """Delete the certificates that ended before a time, and the invitations whose holder then has none."""

    def add_audit(self, records: Sequence[AuditRecord]) -> None:
        """Append records to the audit's chain, in order."""

    def save_key(self, key: ApiKey) -> None:
        """Insert or update a key."""

    def forget_ended_keys(self, now: float, before: float, most: int) -> None:
        """Delete the keys that ended before a time, and the oldest of those that ended or were revoked beyond `most`."""


class Store(Protocol):
    """Durable state of an aggregator. Deleted runs are found by `find_runs`, `find_labels` and `deleted_runs` alone."""

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Open the only transaction.

        Raises:
            StoreUnavailable: The database cannot be written.
        """

    def open_runs(self) -> list[Run]:
        """Return the runs that have not ended, oldest first, each with its latest round, updates and evaluations."""

    def completed_runs(self, *, methods: Sequence[str], since: float, limit: int) -> list[tuple[str, tuple[str, ...]]]:
        """Return the completed runs of some methods that ended at a time or later, newest first: their ids and rosters."""

    def ended_retirements(self, *, limit: int) -> list[tuple[str, Mapping[str, Retired]]]:
        """Return the newest runs, also deleted ones, that have ended and from which clients were retired: who and when."""

    def find_run(self, run_id: str, *, of: str | None = None) -> Run | None:
        """Return a run with its latest round, updates and evaluations; those of one client alone if it is named."""

    def find_status(self, run_id: str) -> RunStatus | None:
        """Return a run's status without reading its rounds, updates and evaluations."""

    def find_request(self, request_id: str) -> tuple[str, str] | None:
        """Return run id and request hash of the request that created a run."""

    def find_control_request(self, request_id: str) -> ControlRequest | None:
        """Return the executed request to pause, resume or stop with this id."""

    def list_runs(self, *, limit: int, before: str = "") -> list[Run]:
        """Return runs older than `before`, newest first; their rounds carry no updates or evaluations."""

    def find_runs(self, query: RunQuery) -> RunList:
        """Return the runs that match a query, `query.limit` at most, and the numbers of those that match on all pages."""

    def find_labels(self, run_id: str) -> RunLabels:
        """Return a run's labels, also of a deleted run; those without anything for any other id.

        Raises:
            RowCorrupt: Their row is damaged.
        """

    def deleted_runs(self, *, with_rows: bool = False) -> list[str]:
        """Return the ids of the deleted runs, sorted; with `with_rows` of those that have rows left to remove."""

    def damaged_deletions(self) -> list[str]:
        """Return the ids of the deleted runs of which the labels are damaged, so that they may not have been deleted."""

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, newest first; it reads nothing else of them."""

    def runs_of_model(self, sha256: str) -> list[str]:
        """Return the ids of the runs one of whose rounds made the model of this SHA-256, newest first."""

    def list_rounds(self, run_id: str, *, after: int = -1, limit: int = 1000) -> list[Round]:
        """Return a run's rounds after a number, in order, without updates and evaluations."""

    def find_round(self, run_id: str, number: int, *, of: str | None = None) -> Round | None:
        """Return a round with its updates and evaluations; those of one client alone if it is named."""

    def first_evaluation(self, run_id: str, client_id: str, *, before: int) -> Evaluation | None:
        """Return a client's first report of a run, if it is of a round before this one; quick in runs of any length."""

    def list_evaluations(
        self, run_id: str, number: int | None = None, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Evaluation]]:
        """Return the reports of a run or of one round after the key `after`, by round and client id; all without a limit."""

    def list_events(self, query: EventQuery) -> list[Event]:
        """Return the events of the history that match a query."""

    def list_clients(self, *, after: str = "", limit: int | None = None) -> list[Client]:
        """Return the clients that ever joined with ids after `after`, by id; all without a limit."""

    def find_client(self, client_id: str) -> Client | None:
        """Return a client that ever joined."""

    def last_committed(self, client_id: str) -> CommittedUpdate | None:
        """Return the client's newest committed update."""

    def last_release(self, client_id: str) -> tuple[RunSpec, int] | None:
        """Return the run and the round of the client's newest committed update in a run whose releases have noise."""

    def list_updates(
        self, run_id: str, *, after: tuple[int, str] = (-1, ""), limit: int | None = None
    ) -> list[tuple[int, Update]]:
        """Return a run's updates after the key `after`, by round and client id; all without a limit."""

    def newest_updates(self, run_id: str, *, first: int, end: int) -> dict[str, Update]:
        """Return each client's newest update in the rounds `first` to `end` - 1 of a run, by client id."""

    def has_stored(self, client_id: str, sha256: str) -> bool:
        """Whether this client has committed an update with this blob."""

    def find_blob(self, sha256: str) -> int | None:
        """Return the size in bytes of a blob that has a row."""

    def list_blobs(self, *, after: str = "", limit: int = 1000) -> list[tuple[str, int]]:
        """Return the blobs with rows after `after`, by SHA-256, each with its size in bytes."""

    def domains(self, clients: Sequence[str]) -> dict[str, str]:
        """Return the domains of these clients."""

    def find_invitation(self, invitation_id: str) -> Invitation | None:
        """Return an invitation, open, spent or ended."""

    def invited_domain(self, name: str) -> str:
        """Return the domain of the newest invitation that admitted a client; empty if there is none, or it names none."""

    def count_open_invitations(self, now: float) -> int:
        """Return the number of invitations that admit somebody."""

    def find_certificate(self, serial: str) -> Certificate | None:
        """Return a certificate by its serial number."""

    def certificates_of(self, role: str, name: str) -> list[Certificate]:
        """Return all certificates of a holder, newest first."""

    def has_holder(self, role: str) -> bool:
        """Whether anybody has a certificate of a role that was not revoked."""

    def list_certificates(self, *, ending_after: float, limit: int) -> list[Certificate]:
        """Return the certificates that end after a time, by role and name, newest first for each holder."""

    def list_serials(self) -> dict[str, bool]:
        """Return the serial number of every certificate, and whether it was revoked."""

    def revoked_holders(self, role: str) -> frozenset[str]:
        """Return the names of a role whose certificates were all revoked."""

    def list_audit(self, *, after: int = 0, limit: int = 1000) -> list[AuditEntry]:
        """Return the audit's entries after a number, in order, as they are stored, also where they are damaged."""

    def key_makers(self) -> dict[str, str]:
        """Return who made each key, by its id, as the audit names callers; sessions are not among them."""

    def open_run_creators(self) -> dict[str, str]:
        """Return who created each run that has not ended, by its id, as the audit names callers."""

    def audit_head(self) -> AuditHead:
        """Return number and hash of the audit's last entry; those of an empty chain without one."""

    def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key by its id, ended or revoked too."""

    def list_keys(self, *, ending_after: float, limit: int) -> list[ApiKey]:
        """Return the keys that end after a time and were not revoked, newest first."""

    def close(self) -> None:
        """Close files and connections."""
