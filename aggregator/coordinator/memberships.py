"""Answers to Join: on which terms a client is in, and of which runs it keeps something or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from fedplcc.aggregator.coordinator.extensions import Extensions
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.base import Store
from fedplcc.shared.bounds import MAX_FORGOTTEN_RUNS
from fedplcc.shared.errors import InvalidConfig
from fedplcc.shared.identity.audit_chain import AuditHead
from fedplcc.shared.types import CommittedRelease, ForgottenRun, Membership, Run
from fedplcc.shared.version import VERSION


def keeps_nothing(run: Run, client_id: str) -> bool:
    """Whether a client was retired from a run to be forgotten, and not admitted again."""
    retired = run.retired.get(client_id)
    return retired is not None and retired.keeps_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Memberships:
    """Makes the answers to Join of one aggregator.

    Attributes:
        extensions: Which of the runs that have completed may go on.
    """

    ledger: Ledger
    store: Store
    extensions: Extensions
    limits: Limits

    def of(self, client_id: str, audit_head: AuditHead | None) -> Membership:
        """Return the answer to a client that has joined.

        Raises:
            StoreUnavailable: The database cannot be read.
        """
        return Membership(
            heartbeat_interval_s=self.limits.heartbeat_interval_s,
            lease_s=self.limits.lease_s,
            max_chunk_bytes=self.limits.max_chunk_bytes,
            max_blob_bytes=self.limits.max_blob_bytes,
            max_inline_bytes=self.limits.max_inline_bytes,
            last_committed=self.store.last_committed(client_id),
            version=VERSION,
            audit_head=audit_head,
            open_runs=self._keeping(client_id),
            forgotten_runs=self._forgotten(client_id),
            last_release=self._last_release(client_id),
        )

    def _last_release(self, client_id: str) -> CommittedRelease | None:
        """Return the client's last committed release with noise; None too where another version wrote its run."""
        found = self.store.last_release(client_id)
        if found is None:
            return None
        run, number = found
        try:
            config = config_of(run)
        except InvalidConfig:
            return None
        return CommittedRelease(run.run_id, run.config_hash, config.privacy.release_round(number, config.run.rounds))

    def _keeping(self, client_id: str) -> tuple[str, ...]:
        """Return the runs of which the client keeps its state: open, damaged, or completed and able to go on."""
        return (
            *(
                run.run_id
                for run in self.ledger.open_runs()
                if client_id in run.roster and not keeps_nothing(run, client_id)
            ),
            *self.ledger.damaged_runs(),
            *self.extensions.keeping_states(client_id),
        )

    def _forgotten(self, client_id: str) -> tuple[ForgottenRun, ...]:
        """Return the newest runs that are to forget the client, open ones first.

        A client that was admitted again still is to delete what it kept before: its trainer may have been away.
        """
        retirements = [(run.run_id, run.retired) for run in reversed(self.ledger.open_runs())]
        retirements += self.store.ended_retirements(limit=MAX_FORGOTTEN_RUNS)
        found = (
            ForgottenRun(run_id, retired[client_id].round)
            for run_id, retired in retirements
            if client_id in retired and retired[client_id].is_forgotten
        )
        return tuple(found)[:MAX_FORGOTTEN_RUNS]
