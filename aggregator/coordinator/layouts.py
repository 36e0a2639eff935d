"""Model layouts and feature sizes of runs, which round 0 fixes: read once, then cached."""

from __future__ import annotations

from collections.abc import Collection

from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore
from shared.tensors import TensorTable, read_header
from shared.types import FEATURE_DIM, Run


class Layouts:
    """Layouts of the models of runs that have committed round 0."""

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store, self._blobs = store, blobs
        self._tables: dict[str, TensorTable] = {}
        self._dims: dict[str, int] = {}

    def table(self, run: Run) -> TensorTable:
        """Layout of the run's model."""
        if run.run_id not in self._tables:
            assert run.model is not None
            with self._blobs.verified_path(run.model.sha256).open("rb") as file:
                self._tables[run.run_id] = read_header(file)
        return self._tables[run.run_id]

    def feature_dim(self, run: Run) -> int:
        """Size of the run's features."""
        if run.run_id not in self._dims:
            first = self._store.find_round(run.run_id, 0)
            assert first is not None
            (update,) = first.updates.values()
            self._dims[run.run_id] = update.payload.int_lists[FEATURE_DIM][0]
        return self._dims[run.run_id]

    def forget(self, *, but_of: Collection[str]) -> None:
        """Remove every other run from the cache."""
        for run_id in self._tables.keys() - set(but_of):
            del self._tables[run_id]
            self._dims.pop(run_id, None)
