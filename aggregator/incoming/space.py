"""Room on the aggregator's disk: uploads give way where it is short, those that help no round first.

A quarantined client's uploads go at once. Where the disk is short, those of clients without an open round go, and then
initial models that no run has; where it is full, the reserve is given back (store/blobs/reserve.py) and the largest
holders' go too. A client whose upload was removed sends it again; whoever begins a run with a model that was removed is
told to upload it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.rounds.machine import run_facts
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.disk_errors import full_disk, refused_by_disk
from fedplcc.aggregator.store.blobs.garbage_lock import BackupIsRunning, collecting
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Run

log = get_logger(__name__)


class Space:
    """Room on the disk of a state directory; any thread may call it."""

    def __init__(self, ledger: Ledger, blobs: BlobStore) -> None:
        self._ledger, self._blobs = ledger, blobs
        self._turn, self._has_failed = threading.Lock(), False

    def look(self) -> None:
        """Make room where it is short, and take the reserve where there is enough."""
        self.relieve()
        try:
            if not self._blobs.reserve.is_short:
                self._blobs.reserve.take()
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "no_reserve", detail=f"{error.strerror or error}; a full disk will stop people's requests too"
                )
            self._has_failed = True
        else:
            self._has_failed = False

    def relieve(self) -> bool:
        """Make room where it is short; returns whether there is more now.

        Never raises: a disk that is away is told by whoever writes to it.
        """
        runs = self._ledger.open_runs()  # first: a caller may hold the ledger's lock, and others wait for it here
        with self._turn:
            try:
                return self._relieve(runs)
            except (OSError, StoreUnavailable) as error:
                log.debug("no_room_made", detail=str(error))
                return False

    def require(self, client_id: str, num_bytes: int) -> None:
        """Make room for bytes that a client is about to send.

        Uploads that no round waits for go, then unused initial models, then larger uploads; none does where all of them are
        too few.

        Raises:
            StoreUnavailable: The disk has too little room for them.
        """
        try:
            if self._room_bytes() >= num_bytes:
                return
            runs = self._ledger.open_runs()
            with self._turn:
                holders = self._blobs.uploads.holders()
                mine = holders.pop(client_id, 0) + num_bytes
                giving = {name: held for name, held in holders.items() if held > mine or not _is_awaited(name, runs)}
                most_bytes = sum(giving.values()) + sum(self._blobs.unused_initial().values())
                if self._room_bytes() + most_bytes >= num_bytes:
                    self._give_way(giving, runs, lambda: self._room_bytes() >= num_bytes, with_awaited=True)
                free_bytes = self._room_bytes()
                if free_bytes >= num_bytes:
                    return
        except OSError as error:
            raise refused_by_disk(error) from error
        if free_bytes <= 0:
            raise full_disk()
        raise StoreUnavailable(
            f"{full_disk().detail}: {client_id} announced {num_bytes} bytes, and {free_bytes} are free for uploads"
        )

    def _room_bytes(self) -> int:
        """Return the bytes that are free for uploads; negative on a disk that is short."""
        reserve = self._blobs.reserve
        return reserve.free_bytes - 2 * reserve.size_bytes

    def drop_quarantined(self, run: Run) -> None:
        """Remove the uploads of clients that a run has quarantined, but for those that another run waits for."""
        runs = self._ledger.open_runs()
        for client_id in run.quarantined:
            if not _is_awaited(client_id, runs) and self._blobs.uploads.has_any(client_id):
                with suppress(StoreUnavailable):
                    self._drop(client_id)

    def _relieve(self, runs: Sequence[Run]) -> bool:
        reserve, before = self._blobs.reserve, self._blobs.reserve.free_bytes
        if not reserve.is_short:
            return False
        is_full = reserve.is_low or not reserve.is_held
        if is_full:
            reserve.release()
        holders = self._blobs.uploads.holders()
        self._give_way(holders, runs, lambda: not reserve.is_short, with_awaited=is_full)
        return reserve.free_bytes > before

    def _give_way(
        self, holders: Mapping[str, int], runs: Sequence[Run], has_room: Callable[[], bool], *, with_awaited: bool
    ) -> None:
        """Remove uploads that no round waits for, then unused initial models, then other uploads, until there is room."""
        first = in_order(holders, runs, with_awaited=False)
        last = in_order(holders, runs, with_awaited=True)[len(first) :] if with_awaited else []
        for client_id in first:
            if has_room():
                return
            self._drop(client_id)
        models = self._blobs.unused_initial()
        if models and not has_room():
            with suppress(BackupIsRunning), collecting(self._blobs.folder):  # a backup may be copying one
                for sha256 in models:
                    if has_room():
                        return
                    num_bytes = self._blobs.drop_initial(sha256)
                    log.warning("initial_model_dropped", sha256=sha256, bytes=num_bytes)
        for client_id in last:
            if has_room():
                return
            self._drop(client_id)

    def _drop(self, client_id: str) -> None:
        num_bytes = self._blobs.uploads.drop(client_id)
        log.warning("uploads_dropped", client_id=client_id, bytes=num_bytes)


def in_order(holders: Mapping[str, int], runs: Sequence[Run], *, with_awaited: bool) -> list[str]:
    """Return the clients whose uploads give way, the first ones first.

    Args:
        with_awaited: Whether also the uploads give way that an open round waits for.
    """
    awaited = {client_id: _is_awaited(client_id, runs) for client_id in holders}
    names = [client_id for client_id in holders if with_awaited or not awaited[client_id]]
    return sorted(names, key=lambda client_id: (awaited[client_id], -holders[client_id], client_id))


def _is_awaited(client_id: str, runs: Iterable[Run]) -> bool:
    """Whether an open round waits for an update of this client."""
    return any(
        run_facts.has_open_round(run)
        and run.current_round is not None
        and client_id in run.current_round.cohort
        and client_id not in run.current_round.updates
        and client_id not in run.quarantined
        for run in runs
    )
