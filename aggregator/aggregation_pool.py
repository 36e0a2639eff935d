"""Threads that aggregate rounds, so that a run whose aggregation takes minutes keeps no other run waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fedplcc.aggregator.coordinator.service import Coordinator
from fedplcc.shared.errors import StoreUnavailable
from fedplcc.shared.process.log import get_logger

log = get_logger("fedplcc.aggregator.app")

THREADS = 4
"""Rounds that are aggregated at a time. The last free thread takes none that may take long."""
RETRY_S = 2.0
"""Pause before a run's aggregation is tried again after it failed; other runs go on."""


class AggregationPool:
    """One thread that sleeps until a change and hands out rounds, and one thread for each round under way."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._wake, self._is_ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="aggregation", daemon=True)
        self._busy: set[threading.Thread] = set()

    def start(self) -> None:
        """Start with the rounds that an earlier process left."""
        self._coordinator.subscribe(lambda _tasks_of, _runs: self._wake.set())
        self._wake.set()
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Begin no other round, and wait a while for those under way; the next process repeats what is left."""
        self._is_ending.set()
        self._wake.set()
        self._thread.join()
        end = time.monotonic() + grace_s
        for thread in list(self._busy):
            thread.join(max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        while True:
            self._wake.wait(RETRY_S)  # also without a change: a run may have rested
            self._wake.clear()
            try:
                while not self._is_ending.is_set() and (work := self._next()) is not None:
                    thread = threading.Thread(target=self._do, args=[work], name="aggregate", daemon=True)
                    self._busy.add(thread)
                    thread.start()
            except Exception:
                log.exception("aggregation_crashed")
                self._is_ending.wait(RETRY_S)
            if self._is_ending.is_set():
                return

    def _next(self) -> Callable[[], None] | None:
        num_free = THREADS - len(self._busy)
        return self._coordinator.take_work(only_short=num_free == 1, retry_s=RETRY_S) if num_free else None

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StoreUnavailable as error:
            log.error("aggregation_waits", detail=error.detail, retry_s=RETRY_S)
        except Exception:
            log.exception("aggregation_crashed")
        finally:
            self._busy.discard(threading.current_thread())
            self._wake.set()
