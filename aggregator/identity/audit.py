"""The audit: who changed what, and who was refused.

A change's record is written in the change's own transaction: both are there, or neither. Refusals change nothing, so they
wait up to a second, or a minute with others of their kind; see refusals.py. A crash loses those that wait.

Each entry's hash covers the one before. Whoever writes the database can compute hashes, so the heads go to the log hourly
and to each trainer with Join: only a head that somebody else holds shows a cut end. Signing entries would prove nothing,
since the key lies beside the database. Every change of members, keys and runs has an entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from fedplcc.aggregator.identity.refusals import Refusals
from fedplcc.aggregator.store.base import Store, Transaction
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.identity.audit_chain import DONE, EMPTY, REFUSED, AuditEntry, AuditHead, AuditRecord
from fedplcc.shared.identity.principals import Principal, current_principal
from fedplcc.shared.process.log import get_logger

log = get_logger("aggregator.audit")

HEAD_S = 3600.0
"""Time between two lines of the log with the head of the chain."""
LENGTHS = {"caller": 128, "credential": 64, "method": 64, "target": 128, "reason": 64, "address": 64, "request_id": 128}
"""Most characters of each text of a record; the rest is cut off."""

Write = Callable[[Transaction], None]


class Audit:
    """The audit of one aggregator; any thread may call a method."""

    def __init__(
        self,
        store: Store,
        *,
        counted: Callable[[str, int], None] = lambda _reason, _count: None,
        clock: Callable[[], float] = time.time,
        steady_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on with the chain in the store.

        Args:
            counted: Called with the reason and the number of refusals, from any thread; quick.
            clock: The wall clock, in seconds since the epoch.
            steady_clock: The steady clock, in seconds.
        """
        self._store, self._counted = store, counted
        self._clock, self._steady_clock = clock, steady_clock
        self._refusals = Refusals(steady_clock)
        self._head_due_at = steady_clock()

    def done(self, transaction: Transaction, caller: Principal, method: str, target: str, request_id: str = "") -> None:
        """Add the record of a change to the change's transaction."""
        transaction.add_audit([self._record(caller, method, target, request_id)])

    def change(self, method: str, target: str, request_id: str = "") -> Write:
        """Return what adds the record of a change by the present caller to the change's transaction."""
        caller = current_principal.get()
        return lambda transaction: self.done(transaction, caller, method, target, request_id)

    def change_alone(self, method: str, target: str) -> None:
        """Write the record of a change that no transaction makes, by the present caller; called just before the change.

        Raises:
            StoreUnavailable: Nothing can be written now.
        """
        with self._store.transaction() as transaction:
            self.change(method, target)(transaction)

    def refused(
        self, caller: Principal, method: str, target: str, reason: str, request_id: str = "", count: int = 1
    ) -> None:
        """Count a refusal, or several of one kind; quick, and callable on the event loop."""
        self._counted(reason, count)
        record = self._record(caller, method, target, request_id, outcome=REFUSED, reason=reason)
        self._refusals.add(replace(record, count=count))

    def refused_here(self, method: str, target: str, reason: str) -> None:
        """Count a refusal that the present caller met or reports."""
        self.refused(current_principal.get(), method, target, reason)

    def write(self) -> None:
        """Write the refusals that are due, and the head into the log; called every second.

        Raises:
            StoreUnavailable: The refusals still wait.
        """
        self._write(self._refusals.take_due())
        if self._steady_clock() >= self._head_due_at:
            self.log_head()
            self._head_due_at = self._steady_clock() + HEAD_S

    def close(self) -> None:
        """Write all that waits, and the head into the log."""
        self._write(self._refusals.take_due(all_of_them=True))
        self.log_head()

    def head(self) -> AuditHead:
        """Return the last entry that is durable."""
        return self._store.audit_head()

    def entries(self, *, after: int, limit: int) -> list[AuditEntry]:
        """Return the entries after a number, in order."""
        return self._store.list_audit(after=after, limit=limit)

    def log_head(self) -> None:
        """Write the head into the log, where it is a witness."""
        head = self.head()
        if head != EMPTY:
            log.info("audit_head", number=head.number, hash=head.hash)

    def _write(self, records: Sequence[AuditRecord]) -> None:
        if not records:
            return
        try:
            with self._store.transaction() as transaction:
                transaction.add_audit(records)
        except StoreUnavailable:
            self._refusals.put_back(records)
            raise

    def _record(
        self, caller: Principal, method: str, target: str, request_id: str, *, outcome: str = DONE, reason: str = ""
    ) -> AuditRecord:
        return AuditRecord(
            time=self._clock(),
            caller=_bounded("caller", caller.caller),
            credential=_bounded("credential", caller.credential),
            method=_bounded("method", method),
            target=_bounded("target", target),
            outcome=outcome,
            reason=_bounded("reason", reason),
            address=_bounded("address", caller.address),
            request_id=_bounded("request_id", request_id),
        )


def _bounded(name: str, text: str) -> str:
    """Return a text from outside as a column holds it, with "?" for what no database or terminal should meet."""
    text = text[: LENGTHS[name]]
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)
