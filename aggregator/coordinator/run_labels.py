"""Lists of runs, and what people note about runs: tags, notes, archive. Nothing of it changes a run's training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from fedplcc.aggregator.coordinator.request_ids import MAX_REQUEST_ID, Requests
from fedplcc.aggregator.ledger.changes import Changes, Write
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.store.base import ControlRequest, Store
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import MalformedRequest, RunIsOpen
from fedplcc.shared.run_lists import LabelChange, RunLabels, RunList, RunQuery
from fedplcc.shared.types import Event, Run

Audited = Callable[[str, str, str], Sequence[Write]]
"""Returns what adds the audit's record of a change by the present caller: of a method, on a target, by a request id."""


class Labels:
    """What people note about the runs of one aggregator."""

    def __init__(self, ledger: Ledger, store: Store, requests: Requests, audited: Audited) -> None:
        self._ledger, self._store, self._requests, self._audited = ledger, store, requests, audited

    def find_runs(self, query: RunQuery) -> RunList:
        """Return the runs that match a query, as they are now."""
        found = self._store.find_runs(query)
        fails = self._ledger.write_trouble.reason
        return replace(
            found,
            runs=[
                run if run.status.is_final else replace(run, reason=fails(run.run_id) or run.reason)
                for run in found.runs
            ],
        )

    def of(self, run_id: str) -> RunLabels:
        """Return the labels of a run.

        Raises:
            RowCorrupt: Their row is damaged.
        """
        return self._store.find_labels(run_id)

    def change(self, run_id: str, change: LabelChange, *, request_id: str = "") -> Run:
        """Change the labels of a run; return the run. What they are already is no change.

        Raises:
            RunNotFound: There is no such run.
            RunIsOpen: It has not ended, and is to be archived.
            RequestIdReused, MalformedRequest: See `Steering.steer`.
        """
        if len(request_id) > MAX_REQUEST_ID:
            raise MalformedRequest(f"a request id has at most {MAX_REQUEST_ID} characters")
        asked = canonical_json({"run_id": run_id, "action": "update", **asdict(change)})
        audited = self._audited("UpdateRun", run_id, request_id)

        def apply(changes: Changes) -> Run:
            run = self._ledger.get(run_id)
            if request_id:
                request = ControlRequest(
                    request_id=request_id,
                    request_hash=hashlib.sha256(asked.encode()).hexdigest(),
                    run_id=run_id,
                    created_at=changes.now,
                )
                if self._requests.was_done(request):
                    return run
                changes.writes.append(lambda transaction: transaction.add_control_request(request))
            if change.is_archived and not run.status.is_final:
                raise RunIsOpen(
                    f"run {run_id} is {run.status}: only a run that has ended can be archived", run_id=run_id
                )
            before = self._store.find_labels(run_id)
            after = _changed(before, change)
            if after != before:
                changes.writes.append(lambda transaction: transaction.save_labels(run_id, after))
                data = {"tags": list(after.tags), "is_archived": after.is_archived}
                changes.record(Event(type="run_labelled", run_id=run_id, data=data, time=changes.now))
            changes.note(audited)
            return run

        return self._ledger.together(apply, reads_what_it_writes=True)


def _changed(labels: RunLabels, change: LabelChange) -> RunLabels:
    return replace(
        labels,
        tags=labels.tags if change.tags is None else tuple(sorted(set(change.tags))),
        notes=labels.notes if change.notes is None else change.notes,
        is_archived=labels.is_archived if change.is_archived is None else change.is_archived,
    )
