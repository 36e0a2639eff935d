"""Models and prototypes of committed rounds, for whoever fetches them."""

from __future__ import annotations

from pathlib import Path

from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.errors import BlobNotFound, RoundNotFound
from fedplcc.shared.types import BEST, BlobRef, Round, RoundPhase, Run


class Artifacts:
    """What committed rounds left."""

    def __init__(self, ledger: Ledger, store: Store, blobs: BlobStore) -> None:
        self._ledger, self._store, self._blobs = ledger, store, blobs

    def find(self, run_id: str, number: int, kind: str) -> tuple[BlobRef, Path]:
        """The model or the prototypes of a committed round, and their file; -1 is the last one, -2 the best by validation.

        Raises:
            RunNotFound, RoundNotFound: There is no such run or committed round.
            BlobNotFound: It was collected.
            PayloadCorrupt: Its file is gone.
        """
        run = self._ledger.get(run_id)
        if number == BEST:
            best = self._ledger.best(run)
            if best is None:
                raise RoundNotFound(f"no round of run {run_id} was validated, so none is the best", run_id=run_id)
            number = best.round
        current: Run | Round | None = run if number < 0 else self._store.find_round(run_id, number)
        if isinstance(current, Round) and current.phase is not RoundPhase.COMMITTED:
            current = None
        blob = None if current is None or run_facts.last_committed(run) is None else getattr(current, kind)
        if blob is None:
            which = "any round" if number < 0 else f"round {number}"
            raise RoundNotFound(f"run {run_id} has not committed {which}", run_id=run_id, round=number)
        with self._blobs.holds.reading(blob.sha256) as is_kept:  # else what is collected just now would be damage
            if is_kept and self._store.find_blob(blob.sha256) is not None:
                return blob, self._blobs.verified_path(blob.sha256)
        setting = "keep_models" if kind == "model" else "keep_models or keep_prototypes"
        raise BlobNotFound(
            f"the {kind} of round {number} of run {run_id} was collected: the aggregator keeps those of a run's first "
            f"and last rounds, as many as its setting {setting} says, of its best one and of those of run.keep_every",
            sha256=blob.sha256,
        )
