"""A worker as an actor of a Ray cluster; what runs on the cluster's machines.

The actor's one method hands messages in and takes messages out, so both ways are in order and need no second caller. The
worker itself is a thread beside it. What a client keeps stays with the crew, for the next simulation may find its clients on
other machines: staged there before it is committed, like everywhere.
"""

from __future__ import annotations

import importlib
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedplcc.simulation.engine import Site
from fedplcc.simulation.link import Link
from fedplcc.simulation.messages import Crashed, ask
from shared.methods.base import ClientState
from shared.process import log
from shared.types import Membership
from shared.version import VERSION
from trainer.task.client_state import Manifest, Staged


class RayWorker:
    """The actor."""

    def __init__(self, threads: int, level: log.Level, folder: str, paths: Sequence[str]) -> None:
        """Begin to work.

        Args:
            threads: Processor threads.
            level: The least level that is logged.
            folder: Where relative paths of data begin, if this machine has it.
            paths: Where else modules are looked for.
        """
        with suppress(OSError):
            os.chdir(folder)
        sys.path += [path for path in paths if path not in sys.path]
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._threads, self._level = threads, level
        threading.Thread(target=self._work, daemon=True).start()

    def version(self) -> str:
        """The version of fedplcc on this machine."""
        return VERSION

    def exchange(self, messages: Sequence[object]) -> Sequence[object]:
        """Hand messages to the worker, and wait for at least one of its own."""
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
        """See `Link`; when the crew is gone, Ray ends this process."""
        return self._inbox.get()

    def _work(self) -> None:
        try:
            from fedplcc.simulation.worker import Means, Worker, warm_up  # torch: this class is loaded by the crew too

            log.set_up(self._level)
            warm_up(self._threads)
            Worker(self, Means(states=RemoteStates, blob_bytes=_blob_bytes)).work()
        except BaseException as error:  # whoever waits for a message hears of it
            self._outbox.put(Crashed.of(error))


class RemoteStates:
    """What a client keeps, at the other end of a link; see `trainer.task.client_state.States`."""

    def __init__(self, site: Site, link: Link) -> None:
        self._link = link

    @property
    def manifest(self) -> Manifest:
        """What is kept."""
        manifest: Manifest = ask(self._link, "manifest")
        return manifest

    def stage(self, staged: Staged, blobs: Mapping[str, bytes]) -> None:
        """Keep a finished update, durably, in place of the one before."""
        ask(self._link, "stage", staged, dict(blobs))

    def finished(self, identity: str) -> tuple[Staged, dict[str, bytes]] | None:
        """The staged update that answers this work with its bytes by SHA-256, or None where there is none."""
        found: tuple[Staged, dict[str, bytes]] | None = ask(self._link, "finished", identity)
        return found

    def promote(self) -> None:
        """Keep the staged client state for good."""
        ask(self._link, "promote")

    def drop(self) -> None:
        """Let go of the staged update."""
        ask(self._link, "drop")

    def settle(self, membership: Membership, *, run_id: str, identity: str | None) -> None:
        """Promote or drop what is staged, and let go of runs that have ended."""
        ask(self._link, "settle", membership, run_id, identity)

    def forget(self, run_id: str) -> None:
        """Let go of a run's promoted state."""
        ask(self._link, "forget", run_id)

    def state(self, run_id: str) -> ClientState | None:
        """The promoted state of a run; None where there is none, or none that can be read."""
        state: ClientState | None = ask(self._link, "state", run_id)
        return state


def _blob_bytes(reference: Any) -> bytes:
    """The bytes of a blob that the crew has put into Ray's store; a machine gets it once for all its clients."""
    data: bytes = load_ray().get(reference)
    return data


def load_ray() -> Any:
    """The package, which takes a second to load and has types for a part of itself."""
    return importlib.import_module("ray")
