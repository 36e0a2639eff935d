"""A committed round, computed again from its stored updates by the aggregator's own functions."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedplcc.aggregator.computation.aggregation import Aggregated, aggregate
from fedplcc.aggregator.computation.fold import BLOCK_ELEMENTS
from fedplcc.aggregator.computation.parts.prototypes import earlier_updates
from fedplcc.aggregator.computation.round_inputs import RoundInputs
from fedplcc.aggregator.computation.weighed_domains import weighed_domains
from fedplcc.aggregator.histories.layouts import Layouts
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.files import BlobFiles
from fedplcc.aggregator.store.blobs.garbage_lock import no_collection
from fedplcc.shared.errors import BlobNotFound, InvalidConfig, RoundNotFound, RunDeleted, RunNotFound
from fedplcc.shared.methods.parts.prototypes import PrototypeExchange
from fedplcc.shared.types import BlobRef, EventQuery, Retired, Round, RoundPhase, Run, Update, state_blobs
from fedplcc.state.snapshot import require_state, snapshot


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
    recorded: Mapping[str, BlobRef]
    """Global model and prototypes, and where the round made them the next start and the server state, by name."""
    computed: Mapping[str, BlobRef]

    @property
    def is_equal(self) -> bool:
        """Whether the bytes are the same."""
        return self.recorded == self.computed


def replay(state: Path, run_id: str, number: int, *, url: str | None = None) -> Replayed:
    """Compute a round of a run again. The state directory is only read, and may have an aggregator on it.

    Args:
        number: The round; from 1 on, since round 0 is what a client made.
        url: Of its database, if that is on a server.

    Raises:
        InvalidConfig: The folder is no state directory, or the round is 0.
        RunNotFound, RoundNotFound: There is no such run (RunDeleted if it was deleted), or the round has no result yet.
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
        run = _as_it_was(store, run, record)
        earlier = earlier_updates(run, store)
        _require_kept(store, run, number, earlier)
        assert run.model is not None
        files = _Scratch(Path(scratch), state)
        layouts = Layouts(store, files)
        of = RoundInputs(
            run=run,
            table=layouts.table(run),
            blobs=files,
            block_elements=BLOCK_ELEMENTS,
            earlier=earlier,
            int_lists=layouts.int_lists(run),
            domains=weighed_domains(run, store),
        )
        computed = aggregate(of)
        return Replayed(
            run_id=run_id,
            number=number,
            clients=tuple(sorted(record.updates)),
            recorded=_by_name(record),
            computed=_by_name(computed),
        )


def _by_name(record: Round | Aggregated) -> dict[str, BlobRef]:
    named = {"model": record.model, "prototypes": record.prototypes, "start": record.start, **record.server_state}
    return {name: blob for name, blob in named.items() if blob is not None}


class _Scratch(BlobStore):
    """A blob store that writes to a folder of its own, and reads what it wrote itself there.

    Other blobs are those of a state directory, with their hashes checked.
    """

    def __init__(self, folder: Path, state: Path) -> None:
        super().__init__(folder)
        self._state = BlobFiles(state)

    def verified_path(self, sha256: str) -> Path:
        own = self.path(sha256)
        return own if own.is_file() else self._state.verified_path(sha256)


def _found(store: Store, run_id: str, number: int) -> tuple[Run, Round]:
    run = store.find_run(run_id)
    if run is None and store.find_labels(run_id).deleted_at is not None:
        raise RunDeleted(f"run {run_id} was deleted: nothing of it can be computed again", run_id=run_id)
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
    opened = replace(
        record, phase=RoundPhase.AGGREGATING, model=None, prototypes=None, start=None, server_state={}, evaluations={}
    )
    roster, quarantined, retired = _members_in(store, run, record.number)
    return replace(
        run,
        model=before.model,
        prototypes=before.prototypes,
        start=before.start,
        server_state=before.server_state,
        current_round=opened,
        roster=roster,
        quarantined=quarantined,
        retired=retired,
    )


def _members_in(store: Store, run: Run, number: int) -> tuple[tuple[str, ...], dict[str, str], dict[str, Retired]]:
    """Roster, quarantine and retirements when the round was aggregated: others counted in nothing that it computed."""
    coming = ("clients_admitted", "client_admitted", "client_retired")
    types = ("client_quarantined", "client_released", *coming, "round_aggregating")
    quarantined: dict[str, str] = {}
    retired: dict[str, Retired] = {}
    later: set[str] = set()
    is_later = False
    page = store.list_events(EventQuery(run_id=run.run_id, types=types))
    while page:
        for event in page:
            if event.type == "clients_admitted" and is_later:
                later.update(event.data.get("clients", {}))
            elif event.type == "client_quarantined" and not is_later:
                quarantined[event.client_id] = str(event.data.get("reason", ""))
            elif event.type == "client_released" and not is_later:
                quarantined.pop(event.client_id, None)
            elif event.type == "client_retired" and not is_later:
                retired[event.client_id] = Retired(round=event.round, is_forgotten=bool(event.data.get("forgets")))
            elif event.type == "client_admitted" and not is_later and event.client_id in retired:
                retired[event.client_id] = replace(retired[event.client_id], is_back=True)
            is_later = is_later or (event.type == "round_aggregating" and event.round == number)
        page = store.list_events(EventQuery(run_id=run.run_id, types=types, after=page[-1].sequence))
    return tuple(name for name in run.roster if name not in later), quarantined, retired


def _require_kept(store: Store, run: Run, number: int, earlier: Sequence[Update]) -> None:
    assert run.current_round is not None
    assert run.model is not None
    exchange = config_of(run).algorithm.part(PrototypeExchange)
    is_carried = exchange is not None and exchange.carry is not None
    started_from = (
        ("model", (run.model,)),
        ("server state", state_blobs(run)),
        ("set of prototypes", (run.prototypes,) if is_carried and run.prototypes is not None else ()),
    )
    for what, blobs in started_from:
        if any(store.find_blob(blob.sha256) is None for blob in blobs):
            raise Collected(
                f"round {number} of run {run.run_id} cannot be computed again: the {what} that it started from was "
                "collected; an aggregator with a larger --keep-updates keeps what more rounds need"
            )
    needed = [(update.client_id, update.payload.blobs) for _, update in sorted(run.current_round.updates.items())]
    needed += [(update.client_id, update.payload.prototype_sets) for update in earlier]
    gone = sorted({name for name, blobs in needed if any(store.find_blob(blob.sha256) is None for blob in blobs)})
    if gone:
        raise Collected(
            f"round {number} of run {run.run_id} cannot be computed again: updates of {len(gone)} clients were collected "
            f"({', '.join(gone[:3])}{' and others' if len(gone) > 3 else ''}); an aggregator with a larger --keep-updates "
            "keeps those of more rounds"
        )
