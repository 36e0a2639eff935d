"""Model layouts, feature sizes and lists of tensors of runs, which round 0 fixes: read once, then cached."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fedplcc.aggregator.computation.fold import sent_table
from fedplcc.aggregator.computation.round_inputs import withheld_places
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.files import check_whole
from fedplcc.shared.tensors import TensorTable, read_header
from fedplcc.shared.types import FEATURE_DIM, Run


class Layouts:
    """Layouts of the models of runs that have committed round 0."""

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store, self._blobs = store, blobs
        self._tables: dict[str, TensorTable] = {}
        self._lists: dict[str, Mapping[str, tuple[int, ...]]] = {}

    def table(self, run: Run) -> TensorTable:
        """Layout of the run's model.

        Raises:
            PayloadCorrupt: The model's file is gone or damaged.
        """
        if run.run_id not in self._tables:
            assert run.model is not None
            path = self._blobs.verified_path(run.model.sha256)
            try:
                with path.open("rb") as file:
                    table = read_header(file)
            finally:
                check_whole(path)  # after its use, so that what has changed before is found
            self._tables[run.run_id] = table
        return self._tables[run.run_id]

    def sent_table(self, run: Run) -> TensorTable:
        """Layout of the model in an update of the run, which lacks what clients keep for themselves."""
        return sent_table(self.table(run), withheld_places(config_of(run), self.int_lists(run)))

    def feature_dim(self, run: Run) -> int:
        """Size of the run's features."""
        return self.int_lists(run)[FEATURE_DIM][0]

    def int_lists(self, run: Run) -> Mapping[str, tuple[int, ...]]:
        """Lists of round 0's update by name: the feature size, and places of tensors in the run's model."""
        if run.run_id not in self._lists:
            first = self._store.find_round(run.run_id, 0)
            assert first is not None
            (update,) = first.updates.values()
            self._lists[run.run_id] = update.payload.int_lists
        return self._lists[run.run_id]

    def forget(self, *, but_of: Collection[str]) -> None:
        """Remove every other run from the cache."""
        for run_id in self._tables.keys() - set(but_of):
            del self._tables[run_id]
            self._lists.pop(run_id, None)
