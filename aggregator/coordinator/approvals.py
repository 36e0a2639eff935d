"""Decisions of sites' owners about runs, as their trainers report them: a run's client may go on, or leaves the run.

Only the site decides: nothing here makes a trainer work. A report of somebody else, or a false one, changes what is shown
and who is waited for, and the site goes on as its owner decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fedplcc.aggregator.coordinator.run_labels import Audited
from fedplcc.aggregator.ledger.changes import Write
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.presence.sessions import Session
from fedplcc.aggregator.rounds.machine import members, run_facts
from fedplcc.shared.errors import InvalidTransition
from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.types import ClientProblem, Run

MAX_AUDITED = 16
"""Most decisions of one client about one run that count, in the audit and to bring it back, while this process lives."""
AUDITED_AS: Mapping[OwnersWord, str] = MappingProxyType(
    {
        OwnersWord.APPROVED: "ApproveRun",
        OwnersWord.REJECTED: "RejectRun",
        OwnersWord.WITHDRAWN: "WithdrawRun",
    }
)
"""Names of the decisions in the audit."""


def owners_word(reason: str) -> OwnersWord | None:
    """Return what a client's report says of its owner; None if it is about something else."""
    return OwnersWord(reason) if reason in frozenset(OwnersWord) else None


class Approvals:
    """Draws the consequences of owners' decisions."""

    def __init__(self, ledger: Ledger, audited: Audited) -> None:
        """Change the runs of a ledger.

        Args:
            audited: Returns what adds the audit's record of a change.
        """
        self._ledger, self._audited = ledger, audited
        self._audits: dict[tuple[str, str], tuple[int, OwnersWord]] = {}
        """Decisions of a client about a run that came, and the last of them."""

    def heard(self, session: Session, run: Run | None, problem: ClientProblem) -> ClientProblem | None:
        """Draw the consequences of a client's report; returns it as a trouble of the client, None where it is none.

        Raises:
            StoreUnavailable: See `decided`.
        """
        word = owners_word(problem.reason)
        if word is not None and run is not None and session.client.client_id in run.roster:
            self.decided(session, run, word)
        if word is OwnersWord.APPROVED:
            return None
        return replace(problem, is_fatal=problem.is_fatal and not (word is not None and word.ends_part))

    def decided(self, session: Session, run: Run, word: OwnersWord) -> None:
        """Record a decision about an open run that has the session's client in its roster.

        Raises:
            StoreUnavailable: It cannot be written now; the trainer reports it again.
        """
        client_id = session.client.client_id
        if word.ends_part:
            if not run_facts.is_retired(run, client_id):
                self._leave(run, client_id, word)
        elif word is OwnersWord.APPROVED:
            audited = self._audit_of(client_id, run.run_id, word)
            if members.has_owner_ended(run, client_id) and self._audits[client_id, run.run_id][0] <= MAX_AUDITED:
                self._come_back(run, client_id, audited)
            elif audited:
                self._ledger.together(lambda changes: changes.writes.extend(audited))
            session.is_approved(run.run_id)

    def _come_back(self, run: Run, client_id: str, audited: Sequence[Write]) -> None:
        """Have the client in again from the next round on: it left by its owner's word alone."""
        try:
            self._ledger.change(run.run_id, lambda run: members.come_back(run, client_id), audited=audited)
        except InvalidTransition:
            return  # the run is stopping or has ended meanwhile, or takes no more admissions

    def _leave(self, run: Run, client_id: str, word: OwnersWord) -> None:
        audited = self._audit_of(client_id, run.run_id, word)
        try:
            self._ledger.change(run.run_id, lambda run: members.retire(run, client_id, by_owner=True), audited=audited)
        except InvalidTransition:
            return  # the run is stopping or has ended meanwhile

    def _audit_of(self, client_id: str, run_id: str, word: OwnersWord) -> Sequence[Write]:
        """Return what adds a decision to the audit; nothing where that has no room for it."""
        may_audit = self._may_audit(client_id, run_id, word)
        return self._audited(AUDITED_AS[word], f"{run_id}/{client_id}", "") if may_audit else ()

    def _may_audit(self, client_id: str, run_id: str, word: OwnersWord) -> bool:
        """Count a decision for the audit; returns whether it has room for it.

        A trainer that dies before it knows that its report came reports it again: the same word twice is one decision.
        """
        place = (client_id, run_id)
        if place not in self._audits:
            self._audits = {
                each: known for each, known in self._audits.items() if self._ledger.find_open(each[1]) is not None
            }
        count, last = self._audits.get(place, (0, None))
        if word is last:
            return False
        self._audits[place] = count + 1, word
        return count < MAX_AUDITED
