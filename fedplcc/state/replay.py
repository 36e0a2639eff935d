"""A committed round, computed again from its stored updates by the aggregator's own functions."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from aggregator.computation.aggregation import aggregate, earlier_updates
from aggregator.computation.fold import BLOCK_ELEMENTS
from aggregator.store.base import Store
from aggregator.store.blobs.blob_store import BlobStore
from aggregator.store.blobs.files import BlobFiles
from aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.state.snapshot import require_state, snapshot
from shared.errors import BlobNotFound, InvalidConfig, RoundNotFound, RunNotFound
from shared.tensors import read_header
from shared.types import BlobRef, EventQuery, Round, RoundPhase, Run, Update


class Collected(BlobNotFound):
    """Updates or the model of the round were collected as garbage."""

    reason = "COLLECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Recorded and recomputed results of a round."""

    run_id: str
    number: int
    clients: tuple[str, ...]
    """Whose updates, sorted."""
    recorded: tuple[BlobRef, BlobRef]
    """Global model and prototypes."""
    computed: tuple[BlobRef, BlobRef]

    @property
    def is_equal(self) -> bool:
        """Whether the bytes are the same."""
        return self.recorded == self.computed


def replay(state: Path, run_id: str, number: int, *, url: str | None = None) -> Replayed:
    """Compute a round of a run again. The state directory is only read, and may have an aggregator on it.

    Args:
        state: The aggregator's state directory.
        run_id: The run.
        number: The round; from 1 on, since round 0 is what a client made.
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: The folder is no state directory, or the round is 0.
        RunNotFound, RoundNotFound: There is no such run, or the round has no result yet.
        Collected: Updates of the round, or the model that it started from, were collected.
        PayloadCorrupt: One of them is damaged.
        StoreUnavailable: The state directory cannot be read, or there is no room for the result in the temporary folder.
    """
    if number < 1:
        raise InvalidConfig("--round: from 1 on; round 0 is what a client made, nothing is computed in it")
    require_state(state, url)
    with (
        no_collection(state),
        snapshot(state, url) as store,
        tempfile.TemporaryDirectory(prefix="fedplcc-replay-") as scratch,
    ):
        run, record = _found(store, run_id, number)
        recorded = record.model, record.prototypes
        assert recorded[0] is not None
        assert recorded[1] is not None
        run = _as_it_was(store, run, record)
        earlier = earlier_updates(run, store)
        _require_kept(store, run, number, earlier)
        assert run.model is not None
        files = _Scratch(Path(scratch), state)
        with files.verified_path(run.model.sha256).open("rb") as file:
            table = read_header(file)
        computed = aggregate(run, table, files, BLOCK_ELEMENTS, earlier)
        return Replayed(
            run_id=run_id,
            number=number,
            clients=tuple(sorted(record.updates)),
            recorded=(recorded[0], recorded[1]),
            computed=(computed.model, computed.prototypes),
        )


class _Scratch(BlobStore):
    """A blob store that reads a state directory's blobs, with their hashes checked, and writes new ones elsewhere."""

    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder)
        self._state = BlobFiles(state)

    def verified_path(self, sha256: str) -> Path:
        return self._state.verified_path(sha256)


def _found(store: Store, run_id: str, number: int) -> tuple[Run, Round]:
    run = store.find_run(run_id)
    if run is None:
        known = ", ".join(run.run_id for run in store.list_runs(limit=5))
        raise RunNotFound(f"there is no run {run_id!r}; the newest are: {known or 'none'}", run_id=run_id)
    record = store.find_round(run_id, number)
    if record is None or record.model is None or record.prototypes is None:
        raise RoundNotFound(f"run {run_id} has no result of round {number} yet; it is at round {run.round_number}")
    return run, record


def _as_it_was(store: Store, run: Run, record: Round) -> Run:
    """The run when the round had all its updates and no result."""
    before = store.find_round(run.run_id, record.number - 1)
    assert before is not None, "rounds follow one another"
    opened = replace(record, phase=RoundPhase.AGGREGATING, model=None, prototypes=None, evaluations={})
    quarantined = _quarantined_in(store, run.run_id, record.number)
    return replace(run, model=before.model, prototypes=before.prototypes, current_round=opened, quarantined=quarantined)


def _quarantined_in(store: Store, run_id: str, number: int) -> dict[str, str]:
    """Clients in quarantine when the round was aggregated: the pool had none of their prototypes."""
    types = ("client_quarantined", "client_released", "round_aggregating")
    quarantined: dict[str, str] = {}
    page = store.list_events(EventQuery(run_id=run_id, types=types))
    while page:
        for event in page:
            if event.type == "client_quarantined":
                quarantined[event.client_id] = str(event.data.get("reason", ""))
            elif event.type == "client_released":
                quarantined.pop(event.client_id, None)
            elif event.round == number:
                return quarantined
        page = store.list_events(EventQuery(run_id=run_id, types=types, after=page[-1].sequence))
    return quarantined


def _require_kept(store: Store, run: Run, number: int, earlier: Mapping[str, Update]) -> None:
    assert run.current_round is not None
    assert run.model is not None
    if store.find_blob(run.model.sha256) is None:
        raise Collected(
            f"round {number} of run {run.run_id} cannot be computed again: the model that it started from was collected; an "
            "aggregator with a larger --keep-updates keeps what more rounds need"
        )
    gone = [
        client_id
        for client_id, update in sorted(run.current_round.updates.items())
        if any(store.find_blob(blob.sha256) is None for blob in update.payload.blobs)
    ] + [
        client_id
        for client_id, update in sorted(earlier.items())
        if any(store.find_blob(blob.sha256) is None for blob in update.payload.prototype_sets)
    ]
    if gone:
        raise Collected(
            f"round {number} of run {run.run_id} cannot be computed again: updates of {len(gone)} clients were collected "
            f"({', '.join(gone[:3])}{' and others' if len(gone) > 3 else ''}); an aggregator with a larger --keep-updates "
            "keeps those of more rounds"
        )
