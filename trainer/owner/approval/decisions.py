"""Decisions of a site's owner, and how they are read: a chain of signed lines, and what counts where it does not hold. Pure.

A line has an HMAC over itself and over the HMAC of the line before it, so that one that was changed, moved or left out is
found. What does not hold fails closed: no approval counts, a no counts wherever it can still be read.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from pydantic import TypeAdapter

from fedplcc.shared.config.initial_model import RunId
from fedplcc.shared.config.run import canonical_json

MAX_DECISIONS_BYTES = 64 << 20
"""Longest file of decisions; what lies beyond is not read, and the decisions do not hold."""


class Ruling(StrEnum):
    """A decision about a run."""

    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision of the owner.

    Attributes:
        number: From 1, without a gap.
        time: Seconds since the epoch.
        document: SHA-256 of the document that was read; empty where none was.
        code: SHA-256 of its code.
        terms: SHA-256 of the document without what a matching run may change.
        by: Who decided, as this host names them; empty for a no that was read in a line that does not hold.
        torch: Version of torch that the site had when it was decided; empty where that is not known.
        before: HMAC of the decision before; of the first, HMAC of the last one that the aggregator was told of before the
            decisions began anew, empty for none.
        mac: HMAC of all of this.
    """

    number: int
    time: float
    run_id: RunId
    ruling: Ruling
    document: str = ""
    code: str = ""
    terms: str = ""
    rounds: int = 0
    by: str = ""
    reason: str = ""
    torch: str = ""
    before: str = ""
    mac: str = ""

    def signed(self, key: bytes) -> Decision:
        """Return it with its HMAC."""
        facts = {name: value for name, value in asdict(self).items() if name != "mac"}
        if not self.torch:
            del facts["torch"]  # decisions that were made before it was recorded hold
        return replace(self, mac=hmac.digest(key, canonical_json(facts).encode(), "sha256").hex())

    def holds(self, key: bytes) -> bool:
        """Return whether its HMAC is one of this key."""
        return hmac.compare_digest(self.signed(key).mac, self.mac)


@dataclass(frozen=True, slots=True)
class Told:
    """The last decision that the aggregator was told of; number 0 for none."""

    number: int = 0
    mac: str = ""

    @classmethod
    def of(cls, text: str) -> Told:
        """Read what `text` has written; what cannot be read is none."""
        number, _, mac = text.strip().partition(" ")
        return cls(int(number), mac) if number.isascii() and number.isdecimal() and mac.isascii() else cls()

    @property
    def text(self) -> str:
        """It, for the file."""
        return f"{self.number} {self.mac}"

    def is_in(self, entries: tuple[Decision, ...]) -> bool:
        """Return whether these decisions have it."""
        return 0 < self.number <= len(entries) and entries[self.number - 1].mac == self.mac


@dataclass(frozen=True, slots=True)
class Decisions:
    """All decisions that count.

    Attributes:
        entries: In their order; none if they do not hold.
        trouble: Why they do not hold; empty if they do.
        noes: Where they do not hold, what was rejected or withdrawn and can still be read.
        aside: File that was put aside because it did not hold; empty for none. What else it said is not known.
    """

    entries: tuple[Decision, ...] = ()
    trouble: str = ""
    noes: tuple[Decision, ...] = ()
    aside: str = ""

    def of(self, run_id: str) -> Decision | None:
        """Return the last decision about a run that counts."""
        known = self.noes if self.trouble else self.entries
        return next((each for each in reversed(known) if each.run_id == run_id), None)

    def last(self) -> list[Decision]:
        """Return the last decision about each run, in the order in which they were made."""
        known = self.noes if self.trouble else self.entries
        return sorted({each.run_id: each for each in known}.values(), key=lambda each: each.number)

    def standing(self) -> list[Decision]:
        """Return the approvals that hold: the last word about their runs."""
        return [each for each in self.last() if each.ruling is Ruling.APPROVED]

    def is_unknown(self, run_id: str) -> bool:
        """Return whether what was decided about a run may be lost."""
        return bool(self.trouble or self.aside) and self.of(run_id) is None

    @property
    def notice(self) -> str:
        """What is wrong with the decisions, and what to do; empty for nothing."""
        if self.trouble or not self.aside:
            return self.trouble
        return (
            f"decisions of this site's owner were lost, and {self.aside} in its state directory is what was left of them: a "
            "run about which nothing was decided since waits for the owner, whatever the policy. Move that file elsewhere "
            "once every no is said again ('fedplcc site pending --all' has those that were still read)"
        )


_DECISION = TypeAdapter(Decision)


def line_of(decision: Decision) -> str:
    """Return the line of a decision."""
    return canonical_json(_DECISION.dump_python(decision, mode="json")) + "\n"


def read_decisions(data: bytes, key: bytes, told: Told, where: str) -> Decisions:
    """Return what a file of decisions says.

    Args:
        data: Its bytes, of which `MAX_DECISIONS_BYTES` and one more suffice; empty for no file.
        key: Secret of the HMACs; empty for none, by which nothing holds.
        told: What the aggregator was told: decisions without it are an older copy, or a part.
        where: Name of the file, for the sentence.
    """
    entries: list[Decision] = []
    noes: dict[str, Decision] = {}
    is_whole = len(data) <= MAX_DECISIONS_BYTES
    for line in data[:MAX_DECISIONS_BYTES].splitlines(keepends=True):
        try:
            entry = _DECISION.validate_json(line)
        except ValueError:
            is_whole = False
            continue
        is_next = entry.number == len(entries) + 1 and (not entries or entry.before == entries[-1].mac)
        if is_whole and line.endswith(b"\n") and key and is_next and entry.holds(key):
            entries.append(entry)
            noes.pop(entry.run_id, None)
        else:
            is_whole = False
            entry = replace(entry, by="", reason="")
        if entry.ruling is not Ruling.APPROVED:
            noes[entry.run_id] = entry
    chain = tuple(entries)
    began_since = bool(chain) and chain[0].before == told.mac
    if is_whole and (not told.number or told.is_in(chain) or began_since):
        return Decisions(chain)
    return Decisions(
        trouble=f"the decisions of this site's owner do not hold from number {_first_lost(chain, told)} on: {where} in its "
        f"state directory was changed, damaged or removed. No approval counts, {len(noes):,} runs that were rejected or "
        "withdrawn stay so, and every other run waits for a new approval",
        noes=tuple(noes.values()),
    )


def _first_lost(chain: tuple[Decision, ...], told: Told) -> int:
    if told.number and told.number <= len(chain):
        return told.number  # the told one is another
    return len(chain) + 1


def begun_anew(noes: Iterable[Decision], key: bytes, told: Told) -> Iterator[Decision]:
    """Yield decisions that begin a new chain: what was rejected or withdrawn, signed again."""
    before = told.mac
    for number, each in enumerate(noes, 1):
        made = replace(each, number=number, before=before).signed(key)
        before = made.mac
        yield made
