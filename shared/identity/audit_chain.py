"""The audit as a chain of hashes: each entry's hash covers the entry and the hash before it.

A changed, removed, moved or inserted entry breaks the chain where it stood. A chain alone cannot show that its last entries
were cut off, or that all of it was written anew from some entry on: that shows a head which somebody else kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.types import AuditHead as AuditHead

DONE, REFUSED = "done", "refused"
"""Outcomes."""
MOST_DAMAGES = 100
"""Most damages that a verification names; it counts the others."""
MOST_HEADS = 256
"""Most heads that a witness keeps: the newest."""
MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """A change that somebody made, or refusals of one caller for one reason; not yet in the chain."""

    time: float
    """Seconds since the epoch."""
    caller: str
    """client:NAME, gateway:NAME, key:ID, owner, aggregator:aggregator, anyone or nobody."""
    credential: str = ""
    """Serial of the certificate or id of the key."""
    method: str
    target: str = ""
    """Run, client, key or invitation."""
    outcome: str = DONE
    reason: str = ""
    """Reason of a refusal."""
    address: str = ""
    request_id: str = ""
    count: int = 1
    """How many equal refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(AuditRecord):
    """A record at its place in the chain."""

    number: int
    """From 1, without gaps."""
    hash: str
    """SHA-256 in hexadecimal, see `hash_of`."""


EMPTY = AuditHead(0, "0" * 64)
"""Head of a chain without entries."""


class DamageKind(StrEnum):
    """Kinds of damage to a chain."""

    CHANGED = "changed"
    """The entry, or the one before it, is not what was written."""
    REMOVED = "removed"
    """No entry has this number, and a later one exists."""
    INSERTED = "inserted"
    """The number was there before, or is none."""
    CUT = "cut"
    """A witness knows this entry, and the chain ends before it."""
    REWRITTEN = "rewritten"
    """A witness knows another hash of this entry: it, or one before it, was written anew."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage; `last` is `number`, or the last of several removed entries."""

    kind: DamageKind
    number: int
    last: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a verification."""

    num_entries: int
    head: AuditHead
    damages: Sequence[Damage]
    """In order; at most `MOST_DAMAGES`."""
    num_damages: int


def canonical_bytes(record: AuditRecord, number: int) -> bytes:
    """Return the bytes of an entry that its hash covers: JSON with sorted names, ASCII only, without spaces."""
    values = {**asdict(record), "number": number, "time": float(record.time)}
    values.pop("hash", None)
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def hash_of(record: AuditRecord, number: int, before: str) -> str:
    """Return an entry's hash: SHA-256, in hexadecimal, of the hash before it (in hexadecimal) and its canonical bytes."""
    return hashlib.sha256(before.encode("utf-8", "surrogatepass") + canonical_bytes(record, number)).hexdigest()


def chained(record: AuditRecord, head: AuditHead) -> AuditEntry:
    """Return the entry that follows a head."""
    number = head.number + 1
    return AuditEntry(**asdict(record), number=number, hash=hash_of(record, number, head.hash))


def head_of(entry: AuditEntry) -> AuditHead:
    """Return the head of a chain that ends with an entry."""
    return AuditHead(entry.number, entry.hash)


def verify(entries: Iterable[AuditEntry], witnessed: Iterable[AuditHead] = ()) -> Verdict:
    """Check a whole chain, in the order in which it is stored, and against heads that somebody else kept.

    After a damage the check goes on from the stored hash, so that each damaged place is named.
    """
    known: dict[int, set[str]] = {}
    for head in witnessed:
        known.setdefault(head.number, set()).add(head.hash)
    damages: list[Damage] = []
    head, num_entries, num_damages = EMPTY, 0, 0
    for entry in entries:
        num_entries += 1
        found = [*_damages_of(entry, head)]
        if known.pop(entry.number, {entry.hash}) != {entry.hash}:
            found.append(Damage(DamageKind.REWRITTEN, entry.number, entry.number))
        num_damages += len(found)
        damages += found[: MOST_DAMAGES - len(damages)]
        head = AuditHead(max(head.number, entry.number), entry.hash)
    cut = sorted(number for number in known if number > head.number)
    missing = [Damage(DamageKind.CUT, number, number) for number in cut]
    num_damages += len(missing)
    return Verdict(num_entries, head, tuple(damages + missing[: MOST_DAMAGES - len(damages)]), num_damages)


def _damages_of(entry: AuditEntry, head: AuditHead) -> Iterator[Damage]:
    expected = head.number + 1
    if entry.number < expected:
        yield Damage(DamageKind.INSERTED, entry.number, entry.number)
        return
    if entry.number > expected:
        # The hash before it is gone, so that nothing can be said of this entry itself.
        yield Damage(DamageKind.REMOVED, expected, entry.number - 1)
        return
    if not _is_whole(entry, head.hash):
        yield Damage(DamageKind.CHANGED, entry.number, entry.number)


def _is_whole(entry: AuditEntry, before: str) -> bool:
    try:
        return entry.hash == hash_of(entry, entry.number, before)
    except (ValueError, TypeError, AttributeError):
        return False  # a value that was never written: no number, or not finite


_HEAD = re.compile(r"([0-9]{1,19}) ([0-9a-f]{64})")


def heads_to_text(heads: Iterable[AuditHead]) -> str:
    """Return the text of a witness file: a line of number and hash for each head."""
    return "".join(f"{head.number} {head.hash}\n" for head in heads)


def heads_from_text(text: str) -> list[AuditHead]:
    """Return the heads of a witness file.

    Raises:
        MalformedRequest: It has another form, or more than `MOST_HEADS` lines.
    """
    lines = text.splitlines()
    if len(lines) > MOST_HEADS:
        raise MalformedRequest(f"a witness file has at most {MOST_HEADS} lines")
    heads = []
    for place, line in enumerate(lines, 1):
        head = _head_from(line)
        if head is None:
            raise MalformedRequest(f"line {place} of the audit's heads is no number and hash")
        heads.append(head)
    return heads


def checked_head(number: int, text: str) -> AuditHead:
    """Return the head that another process sent.

    Raises:
        MalformedRequest: The number or the hash is none.
    """
    head = _head_from(f"{number} {text}")
    if head is None:
        raise MalformedRequest("audit_head: this is no number and hash", field="audit_head")
    return head


def _head_from(line: str) -> AuditHead | None:
    found = _HEAD.fullmatch(line)
    if found is None or int(found[1]) > MAX_NUMBER:
        return None
    return AuditHead(int(found[1]), found[2])
