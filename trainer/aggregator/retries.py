"""Retries of one task's calls, with backoff and jitter, for as long as the task is wanted."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TypeVar

from fedplcc.shared.errors import (
    BlobCorrupt,
    BlobNotFound,
    CertificateExpired,
    ChunkOutOfOrder,
    ClientIdTaken,
    FedplccError,
    NotAMember,
    NotInCohort,
    Overloaded,
    TransferIdle,
    Unavailable,
    UploadSuperseded,
    VersionRefused,
)
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.backoff import backoff
from fedplcc.trainer.aggregator.round_service import RoundServiceCalls
from fedplcc.trainer.aggregator.task_stream import TaskStream
from fedplcc.trainer.cancellation import ShouldStop, check, pause
from fedplcc.trainer.owner.egress.log import NotWrittenDown

GIVE_UP_AFTER = 6
"""Attempts for errors that are expected to pass soon, but may not (`DOUBTFUL`)."""
LOG_AFTER = 4
"""Attempts after which a warning says what a task waits for."""

PASSING = (Unavailable, CertificateExpired, ClientIdTaken, NotAMember, Overloaded, TransferIdle, VersionRefused)
"""Errors that pass: the aggregator comes back, the certificate is renewed, the other instance ends, this one joins again,
the aggregator is less busy, this machine or the network moves again, or an aggregator of another version starts."""
DOUBTFUL = (BlobNotFound, BlobCorrupt, ChunkOutOfOrder, UploadSuperseded)
"""Errors that pass when a transfer begins anew or the task is asked for again, unless something is wrong for good."""

_T = TypeVar("_T")

log = get_logger("fedplcc.trainer.aggregator.retries")


class Retries:
    """Retries of one task's calls."""

    def __init__(self, calls: RoundServiceCalls, stream: TaskStream, should_stop: ShouldStop) -> None:
        """Prepare.

        Args:
            calls: Whose jitter and metrics are used.
            stream: A task that it receives shows that the aggregator is back and knows this trainer.
            should_stop: Asked before every attempt and during pauses.
        """
        self._calls, self._stream, self._should_stop = calls, stream, should_stop
        self.count = 0
        """Attempts after the first ones so far."""

    def until_done(self, operation: str, attempt: Callable[[], _T], position: Callable[[], int] = lambda: 0) -> _T:
        """Call `attempt` until it succeeds; returns what it returns.

        An attempt that came further than all before it, by `position`, makes the next pauses short again: on a link that
        breaks often, each attempt moves some bytes. A pause ends early when the task stream receives a task.

        Args:
            attempt: The call; idempotent.
            position: How far the operation has come, in bytes.

        Raises:
            Cancelled: `should_stop()` holds.
            FedplccError: The aggregator refuses for good.
        """
        waits, furthest, num_doubtful = backoff(self._calls.rng), 0, 0
        for number in itertools.count(1):
            check(self._should_stop)
            num_tasks = self._stream.num_tasks
            try:
                return attempt()
            except FedplccError as error:
                if not _may_pass(error):
                    raise
                is_away = isinstance(error, PASSING)
                num_doubtful += not is_away
                if num_doubtful >= GIVE_UP_AFTER:
                    raise
                if isinstance(error, (NotAMember, BlobNotFound)):
                    # The aggregator has forgotten this trainer or its task: the thread of the task stream joins again.
                    self._stream.refresh()
                _log_retry(operation, number, error)
            if position() > furthest:
                waits, furthest, num_doubtful = backoff(self._calls.rng), position(), 0
            self.count += 1
            self._calls.metrics.retries.labels(operation).inc()
            if self._pause(next(waits), num_tasks if is_away else None):
                waits = backoff(self._calls.rng)
        raise AssertionError("there is always another attempt")

    def _pause(self, seconds: float, num_tasks: int | None) -> bool:
        """Wait; returns whether a task was received since the count `num_tasks`, which ends the wait unless it is None."""

        def has_task() -> bool:
            return num_tasks is not None and num_tasks != self._stream.num_tasks

        pause(seconds, lambda: self._should_stop() or has_task())
        return has_task()


def _may_pass(error: FedplccError) -> bool:
    """Whether trying again may help; a disk of this site that refuses is for its people, and fails the task."""
    return isinstance(error, PASSING + DOUBTFUL) and not isinstance(error, (NotInCohort, NotWrittenDown))


def _log_retry(operation: str, number: int, error: FedplccError) -> None:
    level = logging.WARNING if number == LOG_AFTER else logging.DEBUG
    detail = f"{error.detail}; trying again until it works"
    log.log(level, "retrying", operation=operation, attempt=number, reason=error.reason, detail=detail)
