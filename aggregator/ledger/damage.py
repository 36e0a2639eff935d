"""The search for damaged blobs of a run, after reading one has failed."""

from __future__ import annotations

from collections.abc import Iterable

from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.machine import run_moves
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import BlobDamaged
from fedplcc.shared.types import BlobRef, Run, Update, result_blobs

log = get_logger(__name__)


def damaged_updates(run: Run, blobs: BlobStore) -> dict[str, tuple[str, ...]]:
    """Return the damaged or missing blobs of the open round's updates: SHA-256s, sorted, by client id."""
    assert run.current_round is not None
    updates = run.current_round.updates.items()
    found = {client_id: _damaged(update.payload.blobs, blobs) for client_id, update in sorted(updates)}
    return {
        client_id: tuple(sorted(blob.sha256 for blob in damaged)) for client_id, damaged in found.items() if damaged
    }


def damaged_blob(run: Run, earlier: Iterable[Update], blobs: BlobStore) -> BlobDamaged | None:
    """Return the first damaged or missing blob that no client can send again; None if all are whole.

    Args:
        earlier: Updates of earlier rounds whose prototypes the round uses.
    """
    owned = [("", blob) for blob in _own(run)]
    owned += [(update.client_id, blob) for update in earlier for blob in update.payload.prototype_sets]
    for client_id, blob in owned:
        if _damaged((blob,), blobs):
            return BlobDamaged(round_number=run.round_number, role=blob.role, sha256=blob.sha256, client_id=client_id)
    return None


def park_if_damaged(ledger: Ledger, run_id: str, blobs: BlobStore) -> None:
    """Pause a run of which a blob that its open round needs is damaged or gone, with the reason."""
    run = ledger.find_open(run_id)
    reason = None if run is None else damaged_blob(run, (), blobs)
    if reason is None:
        return
    with ledger.lock:
        run = ledger.find_open(run_id)
        if run is not None and reason.sha256 in {blob.sha256 for blob in _own(run)}:
            log.error("blob_damaged", run_id=run_id, round=run.round_number, role=reason.role, sha256=reason.sha256)
            ledger.step(run, run_moves.park(run, reason))


def _own(run: Run) -> list[BlobRef]:
    """Results of the run's last committed round, and of its open one."""
    return [*result_blobs(run), *(() if run.current_round is None else result_blobs(run.current_round))]


def _damaged(found: tuple[BlobRef, ...], blobs: BlobStore) -> list[BlobRef]:
    return [blob for blob in found if not blobs.is_whole(blob.sha256)]
