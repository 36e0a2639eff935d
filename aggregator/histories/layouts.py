"""Model layouts, feature sizes and lists of tensors of runs, which round 0 fixes: read once, then cached."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from fedplcc.aggregator.computation.fold import sent_table
from fedplcc.aggregator.computation.round_inputs import withheld_places
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.files import check_whole
from fedplcc.shared.config.round_bytes import ModelLayout, RoundBytes, round_bytes
from fedplcc.shared.encoded_models import encoded_size
from fedplcc.shared.errors import InvalidConfig, PayloadCorrupt
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
        table = self._tables.get(run.run_id)
        if table is None:
            assert run.model is not None
            path = self._blobs.verified_path(run.model.sha256)
            try:
                with path.open("rb") as file:
                    table = read_header(file)
            finally:
                check_whole(path)  # after its use, so that what has changed before is found
            self._tables[run.run_id] = table
        return table

    def sent_table(self, run: Run) -> TensorTable:
        """Layout of the model in an update of the run, which lacks what clients keep for themselves."""
        return sent_table(self.table(run), withheld_places(config_of(run), self.int_lists(run)))

    def feature_dim(self, run: Run) -> int:
        """Size of the run's features."""
        return self.int_lists(run)[FEATURE_DIM][0]

    def int_lists(self, run: Run) -> Mapping[str, tuple[int, ...]]:
        """Lists of round 0's update by name: the feature size, and places of tensors in the run's model."""
        lists = self._lists.get(run.run_id)
        if lists is None:
            first = self._store.find_round(run.run_id, 0)
            update = None if first is None else next(iter(first.updates.values()), None)
            if update is None:  # it has just been deleted perhaps
                raise PayloadCorrupt(f"round 0 of run {run.run_id} has no update")
            lists = self._lists[run.run_id] = update.payload.int_lists
        return lists

    def round_bytes(self, run: Run, examples: Sequence[int | None]) -> RoundBytes | None:
        """Bytes that a round of the run moves; None before round 0 has committed, and where it cannot be known any more.

        Args:
            examples: Training samples of each client that may take part, 0 where it is not known, None of one that evaluates
                only.
        """
        if run_facts.last_committed(run) is None or run.model is None:
            return None
        try:
            config, lists, whole = config_of(run), self.int_lists(run), run.model.size_bytes
            sent_bytes = encoded_bytes = whole
            if config.wire.is_encoded:
                sent_bytes = encoded_size(self.sent_table(run).schema, config.wire.precision)
                encoded_bytes = encoded_size(self.table(run).schema, config.wire.precision)
            elif withheld_places(config, lists):
                sent_bytes = self.sent_table(run).size_bytes
        except (InvalidConfig, PayloadCorrupt):  # of another version, or damaged: told elsewhere
            return None
        layout = ModelLayout(
            model_bytes=whole,
            sent_bytes=sent_bytes,
            feature_dim=lists[FEATURE_DIM][0],
            encoded_bytes=encoded_bytes,
        )
        return round_bytes(config, layout, examples)

    def forget(self, *, but_of: Collection[str]) -> None:
        """Remove every other run from the cache."""
        for run_id in (self._tables.keys() | self._lists.keys()) - set(but_of):
            self._tables.pop(run_id, None)
            self._lists.pop(run_id, None)
