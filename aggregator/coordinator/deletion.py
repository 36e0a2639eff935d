"""Deletion of runs that have ended, and of clients that take part in none.

A run's deletion is marked in one transaction, with its event and the audit's record. Then its blobs go, and its rows: after
a crash in between, the next start removes what is left (garbage/collection.py).

Rows go a thousand a transaction, since one for millions would hold up every commit. The row of the run, its events and its
request id stay: an id that was in a paper, a log or a backup never means another run. Tags, notes, archive and deletion are
a table of their own, since an open run's row is written from memory.
"""

from __future__ import annotations

from dataclasses import replace

from fedplcc.aggregator.coordinator.attendance import Attendance
from fedplcc.aggregator.coordinator.run_labels import Audited
from fedplcc.aggregator.garbage.collection import GarbageCollection
from fedplcc.aggregator.ledger.changes import Changes
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.uploads import Uploads
from fedplcc.shared.errors import ClientInOpenRun, ClientNotFound, RunIsOpen
from fedplcc.shared.types import Client, Event, Run


class Deletion:
    """Deletions of one aggregator."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        uploads: Uploads,
        collection: GarbageCollection,
        sessions: Sessions,
        attendance: Attendance,
        metrics: AggregatorMetrics,
        audited: Audited,
    ) -> None:
        self._ledger, self._store, self._uploads = ledger, store, uploads
        self._collection, self._sessions, self._attendance = collection, sessions, attendance
        self._metrics, self._audited = metrics, audited

    def delete_run(self, run_id: str) -> int:
        """Delete a run that has ended; return the bytes that became free on the disk.

        Raises:
            RunNotFound: There is no such run; RunDeleted if it was deleted before.
            RunIsOpen: It has not ended.
            StoreUnavailable: The database or the disk is unavailable.
        """
        run = self._ended(run_id)
        return self._collection.delete(run, lambda: self._mark(run))

    def _ended(self, run_id: str) -> Run:
        run = self._ledger.get(run_id)
        if not run.status.is_final:
            raise RunIsOpen(f"run {run_id} is {run.status}: stop it first", run_id=run_id, status=run.status)
        return run

    def _mark(self, run: Run) -> None:
        audited = self._audited("DeleteRun", run.run_id, "")

        def change(changes: Changes) -> None:
            self._ended(run.run_id)
            deleted = replace(self._store.find_labels(run.run_id), deleted_at=changes.now)
            changes.writes.append(lambda transaction: transaction.save_labels(run.run_id, deleted))
            data = {"name": run.name, "status": run.status.value}
            changes.record(Event(type="run_deleted", run_id=run.run_id, data=data, time=changes.now))
            changes.note(audited)

        self._ledger.together(change, reads_what_it_writes=True)

    def forget_client(self, client_id: str) -> Client:
        """Forget a client that takes part in no open run; return it as it was. Its trainer, if there is one, joins anew.

        Raises:
            ClientNotFound: No client of this id ever joined.
            ClientInOpenRun: It is in the roster of a run that has not ended.
            StoreUnavailable: The database or the disk is unavailable.
        """
        self._require_free(client_id)
        client = self._find(client_id)
        audited = self._audited("ForgetClient", client_id, "")

        def change(changes: Changes) -> None:
            self._find(client_id)
            self._require_free(client_id)
            changes.writes.append(lambda transaction: transaction.forget_client(client_id))
            changes.record(Event(type="client_forgotten", client_id=client_id, time=changes.now))
            changes.note(audited)
            changes.afterwards.append(lambda: self._end_session(client_id))
            changes.afterwards.append(lambda: self._metrics.clients.registered(-1))

        self._ledger.together(change, reads_what_it_writes=True)
        if self._uploads.has_any(client_id):
            self._uploads.drop(client_id)
        return client

    def _end_session(self, client_id: str) -> None:
        session = self._sessions.find(client_id)
        if session is not None:
            self._sessions.end([session])
        self._sessions.logs.forget(client_id)

    def _find(self, client_id: str) -> Client:
        client = self._store.find_client(client_id)
        if client is None:
            raise ClientNotFound(f"no client {client_id[:64]!r} ever joined")
        return self._attendance.shown(client)

    def _require_free(self, client_id: str) -> None:
        for run in self._ledger.open_runs():
            if client_id in run.roster or client_id in run.quarantined:
                raise ClientInOpenRun(
                    f"client {client_id} takes part in run {run.run_id}, which is {run.status}: stop that one first",
                    run_id=run.run_id,
                )
