"""A worker as an actor of a Ray cluster; this code runs on the cluster's machines.

One method of the actor takes messages in and hands messages out, so both directions are in order and need no second caller.
The worker itself is a thread of the actor. Clients' kept state stays with the pool, because the next simulation may place
its clients on other machines; an update is staged there before it is committed, as everywhere.
"""

from __future__ import annotations

import importlib
import os
import queue
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.process import log
from fedplcc.shared.types import ForgottenRun, Membership
from fedplcc.shared.version import VERSION
from fedplcc.simulation.engine import Site
from fedplcc.simulation.messages import Crashed, Link, ask
from fedplcc.trainer.data.record import RunRecord
from fedplcc.trainer.task.manifest import Manifest, Staged


class RayWorker:
    """The actor."""

    def __init__(self, threads: int, level: log.Level, folder: str, paths: Sequence[str]) -> None:
        """Begin to work.

        Args:
            threads: Processor threads.
            level: The least level that is logged.
            folder: Where relative paths of data begin, if this machine has that folder.
            paths: Further places to look for modules.
        """
        with suppress(OSError):
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._threads, self._level = threads, level
        threading.Thread(target=self._work, daemon=True).start()

    def version(self) -> str:
        """Return the version of fedplcc on this machine."""
        return VERSION

    def exchange(self, messages: Sequence[object]) -> Sequence[object]:
        """Pass messages to the worker, and wait for at least one of its own."""
        for message in messages:
            self._inbox.put(message)
        taken = [self._outbox.get()]
        while not self._outbox.empty():
            taken.append(self._outbox.get())
        return taken

    # The worker's link

    def send(self, message: object) -> None:
        """See `Link`."""
        self._outbox.put(message)

    def receive(self) -> Any:
        """See `Link`; when the pool is gone, Ray ends this process."""
        return self._inbox.get()

    def _work(self) -> None:
        try:
            from fedplcc.simulation.client_worker import Access, Worker, warm_up  # loads torch; the pool does not

            log.set_up(self._level)
            warm_up(self._threads)
            Worker(self, Access(states=RemoteStates, blob_bytes=_blob_bytes)).work()
        except BaseException as error:  # the pool raises it
            self._outbox.put(Crashed.of(error))


class RemoteStates:
    """A client's kept state, at the other end of a link; see `fedplcc.trainer.task.client_state.States`."""

    def __init__(self, site: Site, link: Link) -> None:
        self._link = link

    @property
    def manifest(self) -> Manifest:
        """Return what is kept."""
        manifest: Manifest = ask(self._link, "manifest")
        return manifest

    def stage(self, staged: Staged, blobs: Mapping[str, bytes]) -> None:
        """Keep a finished update, durably, in place of the one before."""
        ask(self._link, "stage", staged, dict(blobs))

    def finished(self, identity: str) -> tuple[Staged, dict[str, bytes]] | None:
        """Return the staged update that answers this work with its bytes by SHA-256, or None where there is none."""
        found: tuple[Staged, dict[str, bytes]] | None = ask(self._link, "finished", identity)
        return found

    def sent(self, run_id: str, round: int, missing: Collection[str]) -> tuple[Staged, dict[str, bytes]] | None:
        """Return a run's committed update of a round with its bytes by SHA-256, or None where it is not kept."""
        found: tuple[Staged, dict[str, bytes]] | None = ask(self._link, "sent", run_id, round, tuple(missing))
        return found

    def promote(self) -> None:
        """Keep the staged client state for good."""
        ask(self._link, "promote")

    def drop(self) -> None:
        """Remove the staged update."""
        ask(self._link, "drop")

    def settle(self, membership: Membership, *, run_id: str, identity: str | None) -> None:
        """Promote or drop what is staged, and remove the state of runs that have ended."""
        ask(self._link, "settle", membership, run_id, identity)

    def forget(self, run_id: str) -> None:
        """Remove a run's promoted state."""
        ask(self._link, "forget", run_id)

    def forget_runs(self, forgotten: Collection[ForgottenRun]) -> None:
        """Remove everything of runs that are to forget the client."""
        ask(self._link, "forget_runs", tuple(forgotten))

    def state(self, run_id: str) -> ClientState | None:
        """Return the promoted state of a run; None where there is none, or none that can be read."""
        state: ClientState | None = ask(self._link, "state", run_id)
        return state

    def data_record(self, run_id: str) -> RunRecord | None:
        """Return the record of the client's data in a run, or None where there is none, or none that can be read."""
        record: RunRecord | None = ask(self._link, "data_record", run_id)
        return record

    def keep_data_record(self, run_id: str, record: RunRecord) -> None:
        """Keep the record of the client's data in a run, durably, in place of the one before."""
        ask(self._link, "keep_data_record", run_id, record)


def _blob_bytes(reference: Any) -> bytes:
    """Return the bytes of a blob in Ray's store; each machine gets them once for all its clients."""
    data: bytes = load_ray().get(reference)
    return data


def load_ray() -> Any:
    """Return the package: it takes a second to load, and only a part of it has types."""
    return importlib.import_module("ray")
