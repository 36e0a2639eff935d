"""Refusals that wait to be written: one record a minute for each caller, or stranger's address, and reason, with a count.

Memory and disk are bounded whatever strangers do: a caller beyond `MOST_CALLERS` is counted with the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedplcc.shared.bounds import MAX_REFUSALS
from fedplcc.shared.identity.audit_chain import AuditRecord
from fedplcc.shared.identity.principals import NOBODY
from fedplcc.shared.process.address_shares import network_of

MOST_CALLERS = 256
"""Most pairs of caller and reason that are told apart within a minute."""
OTHERS = "others"
"""Caller of the refusals beyond that."""
BETWEEN_S = 60.0
"""Shortest time between two records of one caller and reason."""


@dataclass(slots=True)
class _Counted:
    """Refusals of one caller for one reason."""

    first: AuditRecord
    """The first of those that wait."""
    count: int
    due_at: float
    """By the steady clock."""


class Refusals:
    """Refusals that wait to be written; any thread may call a method, and none waits for the disk."""

    def __init__(self, steady_clock: Callable[[], float]) -> None:
        self._clock = steady_clock
        self._lock = threading.Lock()
        self._counted: dict[tuple[str, str], _Counted] = {}

    def add(self, record: AuditRecord) -> None:
        """Count a refusal; the first of its caller and reason is due at once, those after it together a minute later.

        One record counts at most `MAX_REFUSALS`.
        """
        with self._lock:
            key = self._key(record)
            if key not in self._counted and len(self._counted) >= MOST_CALLERS:
                record = AuditRecord(
                    time=record.time,
                    caller=OTHERS,
                    method="",
                    outcome=record.outcome,
                    reason=record.reason,
                    count=record.count,
                )
                key = (OTHERS, record.reason)
            known = self._counted.get(key)
            if known is None:
                self._counted[key] = _Counted(record, record.count, self._clock())
            elif known.count:
                known.count = min(known.count + record.count, MAX_REFUSALS)
            else:
                known.first, known.count = record, record.count

    def take_due(self, *, all_of_them: bool = False) -> Sequence[AuditRecord]:
        """Return the records to write now, in the order of their first refusals, or all at the end of the process."""
        with self._lock:
            now = self._clock()
            due = [each for each in self._counted.values() if each.count and (all_of_them or now >= each.due_at)]
            records = [replace(each.first, count=each.count) for each in due]
            for each in due:
                each.count, each.due_at = 0, now + BETWEEN_S
            self._counted = {key: each for key, each in self._counted.items() if each.count or now < each.due_at}
        return sorted(records, key=lambda record: record.time)

    def put_back(self, records: Sequence[AuditRecord]) -> None:
        """Let records wait that could not be written."""
        with self._lock:
            for record in records:
                key = self._key(record)
                known = self._counted.setdefault(key, _Counted(record, 0, self._clock()))
                known.first, known.due_at = record, self._clock()
                known.count = min(known.count + record.count, MAX_REFUSALS)

    def _key(self, record: AuditRecord) -> tuple[str, str]:
        """Return what tells records apart; strangers by address while they leave half of the room to others."""
        if record.caller != NOBODY.caller:
            return record.caller, record.reason
        key = (f"{record.caller} {network_of(record.address)}", record.reason)
        is_room = key in self._counted or len(self._counted) < MOST_CALLERS // 2
        return key if is_room else (record.caller, record.reason)
