"""Reasons as records: for a dropped client, for a run that waits or has ended, for a client without work.

Code decides by the records. `sentence_of` makes the sentence for REST, events and logs; no code reads it back: a
state that is read out of a sentence changes with its words, and a second field beside the sentence could disagree with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

NAMED_ABSENT = 10
"""Most missing clients that a run without a quorum names; the others it counts."""


SHOWN = 12
"""Digits of a SHA-256 that a sentence shows."""


class DropReason(StrEnum):
    """Reason why a round continues without a client."""

    LOST = "lost"
    """The client is not connected."""
    SILENT = "silent"
    """The client is connected and makes no progress."""
    SLOW = "slow"
    """The client makes progress, and is not done at the hard deadline."""
    PROBLEM = "problem"
    """The client has reported that it cannot do its task."""
    QUARANTINED = "quarantined"
    """The client is quarantined in the run."""
    RETIRED = "retired"
    """The client was retired from the run; unlike others it does not return to the round."""
    APPROVAL = "approval"
    """The owner of the client's site has not approved the run yet."""


class OwnersWord(StrEnum):
    """Reason of a client's report that tells what the owner of its site decided about a run."""

    AWAITED = "AWAITS_APPROVAL"
    """Nothing yet: the client reads no data for the run and does no task of it."""
    APPROVED = "RUN_APPROVED"
    """The run may go on at the site."""
    REJECTED = "RUN_REJECTED"
    """The site takes no part in the run."""
    WITHDRAWN = "RUN_WITHDRAWN"
    """The site takes no further part in the run."""

    @property
    def ends_part(self) -> bool:
        """Whether the client leaves the run."""
        return self in (OwnersWord.REJECTED, OwnersWord.WITHDRAWN)


class IdleReason(StrEnum):
    """Reason why a run has no work for one of its clients."""

    IN_ROUND = "in_round"
    """The run's open round has no task for this client at present."""
    QUARANTINED = "quarantined"
    """The client is quarantined in the run."""
    RETIRED = "retired"
    """The client was retired from the run."""
    PENDING = "pending"
    RUNNING = "running"
    """No round has opened yet."""
    PAUSED = "paused"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A client that a round does not wait for: the reason, and a sentence for people."""

    reason: DropReason
    detail: str


@dataclass(frozen=True, slots=True)
class TooFewClients:
    """Fewer clients than a quorum needs."""

    num_present: int
    num_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Clients and domains that a round lacks for its quorum."""

    clients: TooFewClients | None = None
    """Set if there are too few clients, whatever their domains."""
    domains: tuple[str, ...] = ()
    """Domains without a client, sorted."""


@dataclass(frozen=True, slots=True)
class WaitsForClients:
    """The roster is not complete; no round has opened."""


@dataclass(frozen=True, slots=True)
class NobodyJoined:
    """The roster was never complete."""

    days: float
    """Days for which the run waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoQuorum:
    """The open round has no quorum. Round 0 needs one client, which makes the first model."""

    round_number: int
    lack: Lack
    missing: Mapping[str, Dropped | None] = field(default_factory=dict)
    """Missing clients by id, the first `NAMED_ABSENT`, each with the reason where it is known."""
    num_missing: int = 0
    """All missing clients."""
    quarantined: tuple[str, ...] = ()
    """Clients of the cohort that are quarantined, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsForApproval:
    """The open round lacks only clients whose owners have not approved the run yet."""

    round_number: int
    clients: tuple[str, ...]
    """These clients, sorted, the first `NAMED_ABSENT`."""
    num_clients: int
    """All of them."""


@dataclass(frozen=True, slots=True)
class NobodyLeft:
    """Every client of the roster is quarantined or has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationFailed:
    """A round cannot be aggregated."""

    round_number: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An error in a run's own step; the run is paused until a person acts, and no other run is touched."""

    round_number: int
    """The latest round that opened; -1 before round 0."""
    detail: str
    clients: tuple[str, ...] = ()
    """Clients whose update or report of that round is refused by the checks, sorted, the first `NAMED_ABSENT`; empty if the
    cause is unknown."""
    is_pending: bool = False
    """Whether the run still waited for its roster; resumed, it waits again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateDamaged:
    """Stored blobs of updates of the open round are damaged or gone; the round waits until their clients send them again."""

    round_number: int
    blobs: Mapping[str, tuple[str, ...]]
    """SHA-256 of the damaged blobs by client id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobDamaged:
    """A stored blob that no client can send again is damaged or gone; the run is paused until a person acts."""

    round_number: int
    """The open round, which needs the blob."""
    role: str
    """Role of the blob in its payload: "model", or a kind of prototypes."""
    sha256: str
    client_id: str = ""
    """The client whose update of an earlier round it is part of; empty if it is the run's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDamaged:
    """A row of the database does not have its digest; the run that it belongs to is paused until a person acts."""

    table: str
    key: str
    """Values of the row's primary key."""


@dataclass(frozen=True, slots=True)
class StoreFails:
    """The disk or the database of the aggregator cannot be written."""

    detail: str


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """A run completed before its last round, because it got no better on validation images."""

    best_round: int
    patience: int
    """Rounds without a better one."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A sentence that a person or an error gave, or that came from another process."""

    sentence: str


Reason: TypeAlias = (
    WaitsForClients
    | NobodyJoined
    | NoQuorum
    | WaitsForApproval
    | NobodyLeft
    | AggregationFailed
    | Parked
    | UpdateDamaged
    | BlobDamaged
    | RowDamaged
    | StoreFails
    | StoppedEarly
    | Stated
)
"""Reason why a run waits, was stopped or failed."""


def sentence_of(reason: Reason | None) -> str:
    """Return the sentence for people; empty without a reason."""
    match reason:
        case None:
            return ""
        case WaitsForClients():
            return "waiting for clients to join"
        case NobodyJoined():
            return f"its clients had not all joined after {reason.days:g} days"
        case NoQuorum():
            return _no_quorum(reason)
        case WaitsForApproval():
            named = [f"{name}'s" for name in reason.clients]
            num_more = reason.num_clients - len(named)
            named += [f"{num_more} more"] if num_more > 0 else []
            return f"waits for {' and '.join([', '.join(named[:-1]), named[-1]] if named[1:] else named)} approval"
        case NobodyLeft():
            return "no client is left: every one of the roster is quarantined or has left"
        case AggregationFailed():
            return f"round {reason.round_number} cannot be aggregated: {reason.detail}"
        case StoppedEarly():
            rounds = f"{reason.patience} round{'' if reason.patience == 1 else 's'}"
            return (
                f"stopped early: no better accuracy on validation images than round {reason.best_round}'s in {rounds}"
            )
        case Parked():
            return _parked(reason)
        case UpdateDamaged():
            return _damaged_updates(reason)
        case BlobDamaged():
            what = f"{reason.role} blob {reason.sha256[:SHOWN]}"
            owner = f"the {what} of client {reason.client_id}" if reason.client_id else f"the run's {what}"
            return (
                f"round {reason.round_number} cannot go on: {owner} is damaged or gone at the aggregator; put the file back "
                "from a backup and resume the run, or stop it"
            )
        case RowDamaged():
            return (
                f"the run cannot go on: the row {reason.key} of the table {reason.table} is damaged; "
                "restore a backup of the state directory, or stop the run"
            )
        case StoreFails():
            return f"waits for the disk or database: {reason.detail}; when that is mended, the run continues"
        case Stated():
            return reason.sentence


def _parked(reason: Parked) -> str:
    where = f"round {reason.round_number}" if reason.round_number >= 0 else "the run"
    sentence = f"parked: {where} cannot go on: {reason.detail}"
    if not reason.clients:
        return f"{sentence}; the log of the aggregator says more; resume the run to try again, or stop it"
    return f"{sentence}; sent by {', '.join(reason.clients)}: quarantine the client and resume the run, or stop it"


def _damaged_updates(reason: UpdateDamaged) -> str:
    named = sorted(reason.blobs.items())[:NAMED_ABSENT]
    clients = ", ".join(f"{name} (blob {', '.join(sha256[:SHOWN] for sha256 in blobs)})" for name, blobs in named)
    num_more = len(reason.blobs) - len(named)
    more = f" and {num_more} more" if num_more > 0 else ""
    return (
        f"round {reason.round_number} waits for clients to send again what was damaged at the aggregator: {clients}{more}; "
        "a client that no longer has it says so as its problem: quarantine it, and the round goes on without it"
    )


def _no_quorum(reason: NoQuorum) -> str:
    lack = _lacking(reason.lack) if reason.round_number else "nobody is there to make the first model"
    sentence = f"round {reason.round_number} has no quorum, {lack}"
    if reason.missing:
        named = (
            name if why is None else f"{name} ({why.reason}: {why.detail})"
            for name, why in sorted(reason.missing.items())
        )
        sentence += f"; missing: {', '.join(named)}"
        num_more = reason.num_missing - len(reason.missing)
        sentence += f" and {num_more} more" if num_more > 0 else ""
    if reason.quarantined:
        sentence += f"; quarantined: {', '.join(reason.quarantined)}"
    return sentence


def _lacking(lack: Lack) -> str:
    few = lack.clients
    words = [] if few is None else [f"{few.num_present} of the {few.num_needed} clients that it needs"]
    return " and ".join([*words, *(f"no client of domain {domain}" for domain in lack.domains)])
