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
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

from fedplcc.shared.process import log
from fedplcc.shared.version import VERSION
from fedplcc.simulation.engine import Site
from fedplcc.simulation.messages import Crashed, Link, ask
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.manifest import Manifest


class RayWorker:
    """The actor."""

    def __init__(self, threads: int, level: log.Level, folder: str, paths: Sequence[str]) -> None:
        """Begin to work.

        Args:
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
            Worker(self, Access(states=_states, blob_bytes=_blob_bytes)).work()
        except BaseException as error:  # the pool raises it
            self._outbox.put(Crashed.of(error))


class RemoteStates:
    """A client's kept state, at the other end of a link: what `ClientStates` is asked for there."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def manifest(self) -> Manifest:
        """Return what is kept."""
        manifest: Manifest = ask(self._link, "manifest")
        return manifest

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return partial(ask, self._link, method)


def _states(site: Site, link: Link) -> ClientStates:
    return cast(ClientStates, RemoteStates(link))


def _blob_bytes(reference: Any) -> bytes:
    """Return the bytes of a blob in Ray's store; each machine gets them once for all its clients."""
    data: bytes = load_ray().get(reference)
    return data


def load_ray() -> Any:
    """Return the package: it takes a second to load, and only a part of it has types."""
    return importlib.import_module("ray")
