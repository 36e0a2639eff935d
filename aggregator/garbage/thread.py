"""The thread that removes unneeded blobs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fedplcc.aggregator.garbage.collection import GarbageCollection
from fedplcc.aggregator.ledger.ledger import Listener
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.log import get_logger

log = get_logger(__name__)

COLLECTION_S = 60.0
"""Longest time between two checks for garbage."""


class GarbageCollector:
    """The thread that removes unneeded blobs, step by step: after changes that may leave some, and at intervals."""

    def __init__(self, collection: GarbageCollection, subscribe: Callable[[Listener], None]) -> None:
        self._collection = collection
        self._wake, self._is_ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="collection", daemon=True)
        subscribe(lambda _tasks_of, _runs: self._wake.set())

    def start(self) -> None:
        """Start the thread with the garbage that an earlier process left."""
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current batch of blobs."""
        self._is_ending.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_ending.wait(self._collection.wait_s()):
            if not self._collection.is_due():
                self._wake.wait(COLLECTION_S)
            self._wake.clear()
            try:
                if self._collection.is_due():
                    self._collection.step(self._is_ending.is_set)
            except StoreUnavailable as error:
                log.error("collection_failed", detail=error.detail)
            except Exception:
                log.exception("collection_crashed")
