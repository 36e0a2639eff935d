"""Messages about events: kind, sentence, facts, and the id that the same event always has. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.types import Event

MAX_WORDS = 500
"""Most characters of a text that another process chose."""


class MessageKind(StrEnum):
    """Kinds of messages."""

    RUN_COMPLETED = "run_completed"
    RUN_FAILED = "run_failed"
    RUN_STOPPED = "run_stopped"
    RUN_PARKED = "run_parked"
    """An error in the run's own step, such as a disk without its reserve."""
    CLIENT_AWAY = "client_away"
    APPROVAL_WANTED = "approval_wanted"
    WORST_DOMAIN_FALLS = "worst_domain_falls"
    CLIENT_PROBLEM = "client_problem"
    """A problem at a site, such as a full disk there."""
    TEST = "test"
    """Sent by hand."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message about an event. It is a function of the history: the same event gives the same bytes."""

    kind: MessageKind
    event: Event
    sentence: str
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def document(self) -> dict[str, Any]:
        """The message as JSON, in the form of Standard Webhooks: type, timestamp, data."""
        event = self.event
        about = {"run_id": event.run_id, "client_id": event.client_id}
        data: dict[str, Any] = {name: value for name, value in about.items() if value}
        data |= {"round": event.round} if event.round >= 0 else {}
        return {
            "type": self.kind.value,
            "timestamp": datetime.fromtimestamp(event.time, UTC).isoformat(),
            "data": {**data, "sequence": event.sequence, "sentence": self.sentence, **self.facts},
        }


def kind_of(event: Event) -> MessageKind | None:
    """Return the kind of message that an event may give; None for an event that gives none."""
    if event.type == "client_problem" and event.data.get("reason") in set(OwnersWord):
        return MessageKind.APPROVAL_WANTED if event.data["reason"] == OwnersWord.AWAITED else None
    return KIND_OF_TYPE.get(event.type)


KIND_OF_TYPE: Mapping[str, MessageKind] = MappingProxyType(
    {
        "run_completed": MessageKind.RUN_COMPLETED,
        "run_failed": MessageKind.RUN_FAILED,
        "run_stopped": MessageKind.RUN_STOPPED,
        "run_parked": MessageKind.RUN_PARKED,
        "client_lost": MessageKind.CLIENT_AWAY,
        "round_committed": MessageKind.WORST_DOMAIN_FALLS,
        "client_problem": MessageKind.CLIENT_PROBLEM,
    }
)
"""Kinds by the event's type."""


def message_of(kind: MessageKind, event: Event, **facts: Any) -> Message:
    """Return the message about an event."""
    return Message(kind, event, _sentence(kind, event, facts), facts)


def message_id(federation: str, receiver: str, message: Message) -> str:
    """Return the id by which a receiver knows a message: that of the event, however often and by whomever it is sent.

    The time is part of it, as a database that was restored counts its events from an earlier number on.
    """
    event = message.event
    place = [federation, receiver, message.kind.value, event.run_id, event.client_id, event.sequence, event.time]
    return f"msg_{hashlib.sha256(json.dumps(place).encode()).hexdigest()[:32]}"


def _sentence(kind: MessageKind, event: Event, facts: Mapping[str, Any]) -> str:
    run, client = event.run_id, event.client_id
    match kind:
        case MessageKind.RUN_COMPLETED:
            return _because(f"Run {run} is complete", event.data.get("reason"))
        case MessageKind.RUN_FAILED:
            return _because(f"Run {run} failed", event.data.get("reason"))
        case MessageKind.RUN_STOPPED:
            return _because(f"Run {run} was stopped", event.data.get("reason"))
        case MessageKind.RUN_PARKED:
            return _because(f"Run {run} is paused by an error in its own step", event.data.get("reason"))
        case MessageKind.CLIENT_AWAY:
            return f"Client {client} has been away since its lease ended"
        case MessageKind.APPROVAL_WANTED:
            return f"Run {run} waits for the approval of {client}: its owner decides there"
        case MessageKind.WORST_DOMAIN_FALLS:
            worst, best = (f"{100 * float(facts[name]):.1f} %" for name in ("worst", "best"))
            return f"Run {run}: the worst domain fell to {worst} in round {event.round}; its best was {best}"
        case MessageKind.CLIENT_PROBLEM:
            return _because(f"Client {client} has a problem", event.data.get("detail") or event.data.get("reason"))
        case MessageKind.TEST:
            return "This is a test: messages of this fedplcc gateway arrive here"


def _because(sentence: str, reason: object) -> str:
    if not reason:
        return sentence
    said = "".join(each if each.isprintable() else " " for each in str(reason)[:MAX_WORDS])
    return f"{sentence}: {said}"
