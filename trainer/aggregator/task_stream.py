"""The stream of a client's tasks: the present one, then each that replaces it, over one long call or many short ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from fedplcc.shared.convert.tasks import poll_to_proto, taken_inline_to_proto, task_from_proto
from fedplcc.shared.errors import FedplccError, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import BlobRef, Poll, TakenInline, Task, TaskKey
from fedplcc.shared.wire.backoff import backoff
from fedplcc.trainer.aggregator.round_service import FOLLOWING, INLINE_BYTES, Link, RoundServiceCalls
from fedplcc.trainer.cancellation import pause

POLL_ANSWER_S = 30.0
"""Longest time that the answer to a poll may take beyond the time for which the poll is held."""
SHORT_POLL_S = 1.0
"""A poll that brings no news in less than this and in less than half its hold was not held: the next one waits a while."""

_End = round_service_pb2.StreamEnd.Reason


class StreamEnd(StrEnum):
    """Reasons for the end of a task stream."""

    SUPERSEDED = "superseded"
    SHUTTING_DOWN = "shutting_down"
    LEASE_EXPIRED = "lease_expired"
    POLL_ANSWERED = "poll_answered"
    """A poll is over and the next one follows; `TaskStream.follow` never yields it."""
    REFRESHED = "refreshed"
    """This trainer asked for the present task anew."""


_ENDS = {
    _End.REASON_SUPERSEDED: StreamEnd.SUPERSEDED,
    _End.REASON_SHUTTING_DOWN: StreamEnd.SHUTTING_DOWN,
    _End.REASON_LEASE_EXPIRED: StreamEnd.LEASE_EXPIRED,
    _End.REASON_POLL_ANSWERED: StreamEnd.POLL_ANSWERED,
}


class TaskStream:
    """The stream of one client's tasks; one thread follows it, any may refresh it."""

    def __init__(self, calls: RoundServiceCalls) -> None:
        """Prepare; nothing is opened before `follow`."""
        self._calls = calls
        self._stream: Any = None
        self._lock = threading.Lock()
        self._is_refreshing = False
        self._inline: Mapping[str, bytes] = {}
        self.num_tasks = 0
        """Tasks received so far; one that comes again counts again."""

    def follow(self) -> Iterator[Task | StreamEnd]:
        """Yield the client's task now, then whenever it changes, and at last the reason for the end of the stream.

        Raises:
            NotAMember: The client has not joined.
            Unavailable: The connection broke.
        """
        self._is_refreshing = False
        try:
            end = None
            with self._calls.calling(FOLLOWING, lambda: not self._is_refreshing) as link:
                end = yield from self._tasks(link)
            if self._is_refreshing:
                end = StreamEnd.REFRESHED
            if end is not None:
                yield end
        except FedplccError:
            if not self._is_refreshing:
                raise
            yield StreamEnd.REFRESHED
        finally:
            if self._stream is not None:
                self._stream.cancel()

    def inline_blob(self, blob: BlobRef) -> bytes | None:
        """Return a blob of the last task that named any, if its bytes came with a task; any thread may call it."""
        return self._inline.get(blob.sha256)

    def refresh(self) -> None:
        """End the stream, so that the thread that follows it opens it again and receives the present task."""
        with self._lock:
            self._is_refreshing = True
            if self._stream is not None:
                self._stream.cancel()

    def _tasks(self, link: Link) -> Generator[Task, None, StreamEnd | None]:
        """Yield tasks, poll after poll; returns the reason for the end, None where the stream ends without one."""
        known: TaskKey | None = None
        waits = backoff(self._calls.rng)
        while True:
            end, begin, is_news = None, time.monotonic(), False
            for response in self._opened(link, known):
                step = _step(response)
                if isinstance(step, StreamEnd):
                    end = step
                else:
                    is_news = is_news or step.key != known
                    known = step.key
                    self._keep_inline(step, response.inline_blobs)
                    if self._calls.egress is not None and step.run is not None:
                        self._calls.egress.saw(step.run)
                    self.num_tasks += 1
                    yield step
            if end is not StreamEnd.POLL_ANSWERED:
                return end
            if is_news or not self._is_short(time.monotonic() - begin):
                waits = backoff(self._calls.rng)
            else:
                pause(next(waits), lambda: self._is_refreshing or self._calls.is_closed)
            if self._is_refreshing:
                return end

    def _keep_inline(self, task: Task, inline: Sequence[bytes]) -> None:
        """Keep the blobs of a task that came with it or were held before, and no other, as the contract says."""
        if not task.payload.blobs:
            return
        arrived = {sha256_hex(data): data for data in inline}
        received_bytes = self._calls.metrics.transfer_bytes
        for blob in task.payload.moved:
            if blob.sha256 in arrived:
                kind = "prototypes" if blob in task.payload.prototype_sets else "model"
                received_bytes.labels("received", kind).inc(len(arrived[blob.sha256]))
        held = {**self._inline, **arrived}
        self._inline = {blob.sha256: held[blob.sha256] for blob in task.payload.moved if blob.sha256 in held}

    def _is_short(self, seconds: float) -> bool:
        """Whether a poll was answered without being held."""
        hold_s = self._calls.poll_hold_s
        return hold_s is not None and seconds < min(SHORT_POLL_S, hold_s / 2)

    def _opened(self, link: Link, known: TaskKey | None) -> Any:
        """Open a task stream; a poll ends when there is another task than the known one."""
        calls, hold_s = self._calls, self._calls.poll_hold_s
        request = round_service_pb2.SyncRoundRequest(client_id=calls.client_id, instance_token=calls.instance_token)
        taken = TakenInline(INLINE_BYTES, frozenset(self._inline))
        request.inline_blobs.CopyFrom(taken_inline_to_proto(taken))
        deadline_s = None
        if hold_s is not None:
            request.poll.CopyFrom(poll_to_proto(Poll(known, hold_s)))
            deadline_s = hold_s + POLL_ANSWER_S
        # A refresh comes before the stream is opened and is seen here, or comes after and then cancels it.
        with self._lock:
            self._stream = link.stub.SyncRound(request, timeout=deadline_s)
            if self._is_refreshing:
                self._stream.cancel()
        return self._stream


def _step(response: round_service_pb2.SyncRoundResponse) -> Task | StreamEnd:
    which = response.WhichOneof("step")
    if which == "task":
        return task_from_proto(response.task)
    end = _ENDS.get(response.end.reason) if which == "end" else None
    if end is None:
        raise MalformedRequest("the task stream said something that this version does not know", field="step")
    return end
