"""The trainer's end of RoundService; the only module of the trainer that knows gRPC.

`AggregatorClient` is one trainer's connection: join, follow tasks, give signs of life. `for_task` makes the `Coordinator` of
one task, which moves blobs and hands in results; it rides out an aggregator that goes away and comes back, for as long as
the task is wanted. Unary calls have deadlines; transfers have a limit on standing still, none on their whole time, and go
on from the last byte that arrived.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, TypeVar

import grpc
from prometheus_client import Counter

from shared.convert.clients import heartbeat_to_proto
from shared.convert.evaluations import evaluation_to_report
from shared.convert.membership import client_to_join, membership_from_proto
from shared.convert.tasks import poll_to_proto, task_from_proto
from shared.convert.updates import committed_from_proto, update_to_commit
from shared.convert.uploads import UploadHeader, upload_header_to_proto
from shared.errors import (
    AggregatorUnavailable,
    BlobCorrupt,
    BlobNotFound,
    ChunkOutOfOrder,
    ClientIdTaken,
    FedplccError,
    MalformedRequest,
    NotAMember,
    NotInCohort,
    Overloaded,
    TransferIdle,
    Unavailable,
)
from shared.gen.fedplcc.v1 import round_service_pb2, round_service_pb2_grpc
from shared.process.log import get_logger
from shared.types import (
    MODEL,
    BlobRef,
    Client,
    CommittedUpdate,
    Evaluation,
    Heartbeat,
    Membership,
    Poll,
    Task,
    TaskKey,
    Update,
)
from shared.version import VERSION
from shared.wire.backoff import backoff
from shared.wire.call_logs import OutgoingCalls
from shared.wire.channels import KEEPALIVE_S, open_channel
from shared.wire.chunk_size import ChunkSizes
from shared.wire.statuses import translated
from trainer.cancellation import Cancelled, ShouldStop, check
from trainer.readings.metrics import TrainerMetrics

CHUNK_BYTES = (1 << 20) - 64
"""Size of a chunk, if the aggregator takes it; with what is around it, it still fits into a power of two, to which the
encoder rounds its buffer."""
ANSWER_S = 30.0
"""Deadline of unary calls. On a link with a second of delay each way an answer takes two, and more where others fill it; a
connection that is dead is noticed by its keepalive (shared/wire/channels.py), not by this."""
COMMIT_S, COMMIT_BYTES_PER_S = 60.0, 20e6
"""Deadline of a commit: the aggregator reads every blob of the update before it answers."""
STANDSTILL_S = 60.0
"""How long a transfer may move nothing; hashing and fsync of a large blob are within it."""
POLL_ANSWER_S = 30.0
"""How long the answer to a poll may take beyond the time that the poll is held."""
HASTY_POLL_S = 1.0
"""A poll that brings no news in less than this and in less than half its hold was not held: the next one waits a while."""
POLL_S = 0.1
"""How often a transfer or a wait looks whether it is still wanted."""
GIVE_UP_AFTER = 6
"""Attempts where an error is expected to pass soon, but not certain to."""
SAY_AFTER = 4
"""Attempts after which the log says what a task waits for."""

FOLLOWING = "SyncRound"
"""The method by which tasks are followed."""

_T = TypeVar("_T")
_Directive = round_service_pb2.HeartbeatResponse.Directive
_End = round_service_pb2.StreamEnd.Reason

log = get_logger("trainer.aggregator.connection")


class StreamEnd(StrEnum):
    """Why the aggregator ended the task stream."""

    SUPERSEDED = "superseded"
    SHUTTING_DOWN = "shutting_down"
    LEASE_EXPIRED = "lease_expired"
    POLL_ANSWERED = "poll_answered"
    """A short call is over, and the next one follows; those who follow tasks never see it."""
    REFRESHED = "refreshed"
    """This client asked for the present task anew."""


_ENDS = {
    _End.REASON_SUPERSEDED: StreamEnd.SUPERSEDED,
    _End.REASON_SHUTTING_DOWN: StreamEnd.SHUTTING_DOWN,
    _End.REASON_LEASE_EXPIRED: StreamEnd.LEASE_EXPIRED,
    _End.REASON_POLL_ANSWERED: StreamEnd.POLL_ANSWERED,
}


class AggregatorClient:
    """One trainer's connection to its aggregator, for any number of threads.

    Its calls raise errors of shared/errors.py, and `Cancelled` once it is closed.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        instance_token: str,
        metrics: TrainerMetrics,
        *,
        insecure: bool = False,
        poll_hold_s: float | None = None,
        keepalive_s: float = KEEPALIVE_S,
        rng: random.Random | None = None,
    ) -> None:
        """Prepare a connection; it is made when first used.

        Args:
            address: HOST:PORT of the aggregator.
            client_id: For whom the trainer acts.
            instance_token: Kept over the trainer's restarts.
            metrics: Where to count bytes and retries.
            insecure: Whether plain text is accepted off loopback.
            poll_hold_s: Follow tasks by short calls, each held for at most so long; by one stream if None.
            keepalive_s: How long the connection may be silent before the aggregator is asked for a sign of life.
            rng: For the jitter of retries.

        Raises:
            InvalidConfig: No such address, or off loopback without `insecure`.
        """
        self.address, self.client_id, self.instance_token, self.metrics = address, client_id, instance_token, metrics
        self.chunk_bytes, self.poll_hold_s = CHUNK_BYTES, poll_hold_s
        self.rng = rng or random.Random()
        # Blobs have a connection of their own: on a slow link a heartbeat would wait behind all that is on its way, many
        # seconds, and longer than a lease.
        self._channels = [
            open_channel(address, insecure=insecure, failpoints="trainer.rpc", keepalive_s=keepalive_s)
            for _ in range(2)
        ]
        self.stub, self.transfers = map(round_service_pb2_grpc.RoundServiceStub, self._channels)
        self._stream: Any = None
        self._stream_lock = threading.Lock()
        self._is_refreshing = False
        self._made = OutgoingCalls(address, quiet=("Join", FOLLOWING, "Heartbeat"))
        self.times_told = 0
        """Tasks that have come to those who follow them, with those that came again."""
        self.is_closed = False

    def join(self, client: Client) -> Membership:
        """Become the instance that acts for the client.

        Raises:
            ClientIdTaken: Another instance does.
        """
        request = client_to_join(client, instance_token=self.instance_token, version=VERSION)
        with self.calling("Join"):
            membership = membership_from_proto(self.stub.Join(request, timeout=ANSWER_S))
        self.chunk_bytes = min(CHUNK_BYTES, membership.max_chunk_bytes)
        return membership

    def follow(self) -> Iterator[Task | StreamEnd]:
        """Yield the client's task now, then whenever it changes, and at last why the stream ends.

        Raises:
            NotAMember: The client has not joined.
            Unavailable: The connection broke.
        """
        known: TaskKey | None = None
        self._is_refreshing = False
        try:
            with self.calling(FOLLOWING):
                end: StreamEnd | None = StreamEnd.POLL_ANSWERED
                waits = backoff(self.rng)
                while end is StreamEnd.POLL_ANSWERED and not self._is_refreshing:
                    end, begin, is_news = None, time.monotonic(), False
                    for response in self._opened(known):
                        step = _step(response)
                        if isinstance(step, StreamEnd):
                            end = step
                        else:
                            is_news = is_news or step.key != known
                            known = step.key
                            self.times_told += 1
                            yield step
                    if is_news or not self._is_hasty(time.monotonic() - begin):
                        waits = backoff(self.rng)
                    elif end is StreamEnd.POLL_ANSWERED:
                        pause(next(waits), lambda: self._is_refreshing or self.is_closed)
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

    def _is_hasty(self, seconds: float) -> bool:
        """Whether a poll was answered without being held."""
        return self.poll_hold_s is not None and seconds < min(HASTY_POLL_S, self.poll_hold_s / 2)

    def refresh(self) -> None:
        """End the task stream, so that whoever follows it opens it again and is told the present task."""
        with self._stream_lock:
            self._is_refreshing = True
            if self._stream is not None:
                self._stream.cancel()

    def _opened(self, known: TaskKey | None) -> Any:
        """A new task stream; with polling one that is over when there is another task than the known one."""
        request = round_service_pb2.SyncRoundRequest(client_id=self.client_id, instance_token=self.instance_token)
        deadline_s = None
        if self.poll_hold_s is not None:
            request.poll.CopyFrom(poll_to_proto(Poll(known, self.poll_hold_s)))
            deadline_s = self.poll_hold_s + POLL_ANSWER_S
        # A wish to refresh comes before the stream is opened, and is seen here, or after, and then cancels it.
        with self._stream_lock:
            self._stream = self.stub.SyncRound(request, timeout=deadline_s)
            if self._is_refreshing:
                self._stream.cancel()
        return self._stream

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Give a sign of life; says whether the work that it names is still wanted."""
        request = heartbeat_to_proto(heartbeat, instance_token=self.instance_token)
        with self.calling("Heartbeat"):
            response = self.stub.Heartbeat(request, timeout=ANSWER_S)
        return bool(response.directive != _Directive.DIRECTIVE_STOP)

    def for_task(self, should_stop: ShouldStop) -> TaskConnection:
        """The coordinator of one task, which gives up when `should_stop()` holds."""
        return TaskConnection(self, should_stop)

    def close(self) -> None:
        """End every call and the connections."""
        self.is_closed = True
        for channel in self._channels:
            channel.close()

    @contextmanager
    def calling(self, method: str) -> Iterator[None]:
        """Within the block, that calls a method, gRPC's errors become ours, and `Cancelled` after `close`."""

        def is_wanted() -> bool:
            return method != FOLLOWING or not self._is_refreshing

        with self._made.logged(method, is_wanted):
            try:
                with translated(self.address):
                    yield
            except grpc.FutureCancelledError as error:
                if self.is_closed:
                    raise Cancelled from error
                raise Unavailable("the call was cancelled") from error
            except (FedplccError, ValueError) as error:  # a closed channel answers new calls with ValueError
                if self.is_closed:
                    raise Cancelled from error
                raise


class TaskConnection:
    """What one task asks of the aggregator; keeps `trainer.aggregator.port.Coordinator`.

    Every call is tried again with backoff and jitter while the aggregator is away, restarts, or lets another instance act
    for the client; all of them are idempotent.
    """

    def __init__(self, client: AggregatorClient, should_stop: ShouldStop) -> None:
        self.retries = 0
        self._client = client
        self._received: dict[str, _Furthest] = {}
        self._should_stop: ShouldStop = lambda: client.is_closed or should_stop()

    def announce(self, client: Client) -> Membership:
        """Join again, with other sample counts or to hear what the client's last committed update is."""
        return self._persistently("join", lambda: self._client.join(client))

    def fetch(self, blob: BlobRef) -> bytes:
        """Download a blob, going on where a broken connection left off.

        Raises:
            BlobNotFound: The client's present task does not name it.
            BlobCorrupt: What arrives is no piece of it.
            Cancelled: The task is not wanted any more.
        """
        # A blob that arrived corrupt is fetched once more, and all of it has been moved before.
        furthest = self._received.setdefault(
            blob.sha256, _Furthest(self._client.metrics.resent_bytes.labels("received"))
        )
        download = _Download(self._client, blob, self._should_stop, furthest)
        self._persistently("download", download.go_on, lambda: download.size)
        return download.data

    def store(self, run_id: str, round_number: int, blob: BlobRef, data: bytes, *, is_prototypes: bool) -> None:
        """Upload a blob from the offset that the aggregator names.

        Raises:
            RoundClosed, NotInCohort, BlobTooLarge: The aggregator does not take it.
            Cancelled: The task is not wanted any more.
        """
        header = upload_header_to_proto(
            UploadHeader(
                run_id=run_id,
                round=round_number,
                client_id=self._client.client_id,
                instance_token=self._client.instance_token,
                blob=blob,
            )
        )
        begins, furthest = [0], _Furthest(self._client.metrics.resent_bytes.labels("sent"))
        self._persistently(
            "upload", lambda: self._upload(header, data, is_prototypes, begins, furthest), lambda: begins[-1]
        )

    def commit_update(self, run_id: str, round_number: int, update: Update) -> CommittedUpdate:
        """Make the update part of its round.

        Raises:
            MalformedUpdate, RoundClosed, NotInCohort, UpdateConflict: The aggregator refuses it.
            Cancelled: The task is not wanted any more.
        """
        client = self._client
        request = update_to_commit(
            update, run_id=run_id, round_number=round_number, instance_token=client.instance_token
        )
        deadline_s = COMMIT_S + sum(blob.size_bytes for blob in update.payload.blobs) / COMMIT_BYTES_PER_S

        def commit() -> CommittedUpdate:
            with client.calling("CommitUpdate"):
                return committed_from_proto(client.stub.CommitUpdate(request, timeout=deadline_s).committed)

        return self._persistently("commit", commit)

    def report_evaluation(self, run_id: str, round_number: int, evaluation: Evaluation) -> None:
        """Report counts.

        Raises:
            MalformedUpdate, RoundClosed, NotInCohort: The aggregator refuses them.
            Cancelled: The task is not wanted any more.
        """
        client = self._client
        request = evaluation_to_report(
            evaluation, run_id=run_id, round_number=round_number, instance_token=client.instance_token
        )

        def report() -> None:
            with client.calling("ReportEvaluation"):
                client.stub.ReportEvaluation(request, timeout=ANSWER_S)

        self._persistently("report", report)

    def _upload(
        self,
        header: round_service_pb2.BlobHeader,
        data: bytes,
        is_prototypes: bool,
        begins: list[int],
        furthest: _Furthest,
    ) -> None:
        """Send the rest of a blob; `begins` learns from which byte on that is."""
        client = self._client
        request = round_service_pb2.GetUploadStatusRequest(header=header)
        with client.calling("GetUploadStatus"):
            status = client.transfers.GetUploadStatus(request, timeout=ANSWER_S)
        if status.is_complete:
            return
        if not 0 <= status.offset_bytes <= len(data):
            raise MalformedRequest(f"offset_bytes: {status.offset_bytes} of {len(data)} bytes", field="offset_bytes")
        begins.append(status.offset_bytes)
        if status.offset_bytes:
            client.metrics.transfers_resumed.labels("sent").inc()
        kind, method, make = (
            ("prototypes", client.transfers.UploadPrototypes, round_service_pb2.UploadPrototypesRequest)
            if is_prototypes
            else ("model", client.transfers.UploadModel, round_service_pb2.UploadModelRequest)
        )
        sent_bytes = client.metrics.transfer_bytes.labels("sent", kind)
        watch = _Watch(self._should_stop)

        def parts() -> Iterator[Any]:
            yield make(header=header)
            sizes, offset = ChunkSizes(client.chunk_bytes), status.offset_bytes
            while offset < len(data):
                piece = data[offset : offset + sizes.next_bytes]
                begin = watch.moved()
                yield make(chunk=round_service_pb2.Chunk(offset_bytes=offset, data=piece))
                sizes.record(len(piece), time.monotonic() - begin)
                sent_bytes.inc(len(piece))
                offset += len(piece)
                furthest.moved(offset - len(piece), offset)
            watch.moved()

        with client.calling("UploadPrototypes" if is_prototypes else "UploadModel"):
            call = method.future(parts())
            with watch.over(call):
                call.result()

    def _persistently(self, operation: str, attempt: Callable[[], _T], position: Callable[[], int] = lambda: 0) -> _T:
        """Try until it works, is refused for good, or the task is not wanted any more.

        An attempt that came further than those before it, by `position`, makes the next pauses short again: on a link that
        breaks often each attempt moves some bytes. A pause ends when whoever follows is told the task anew: the aggregator
        is back, and knows us and what we do.
        """
        waits, furthest = backoff(self._client.rng), 0
        num_doubtful = 0
        for number in itertools.count(1):
            check(self._should_stop)
            told = self._client.times_told
            try:
                return attempt()
            except FedplccError as error:
                if not _may_pass(error):
                    raise
                is_away = isinstance(error, _PASSING)
                num_doubtful += not is_away
                if num_doubtful >= GIVE_UP_AFTER:
                    raise
                if isinstance(error, (NotAMember, BlobNotFound)):
                    # The aggregator has forgotten us, or which task we have: whoever follows joins and asks again.
                    self._client.refresh()
                level = logging.WARNING if number == SAY_AFTER else logging.DEBUG
                detail = f"{error.detail}; trying again until it works"
                log.log(level, "retrying", operation=operation, attempt=number, reason=error.reason, detail=detail)
            if position() > furthest:
                waits, furthest, num_doubtful = backoff(self._client.rng), position(), 0
            self.retries += 1
            self._client.metrics.retries.labels(operation).inc()
            if self._pause(next(waits), told if is_away else None):
                waits = backoff(self._client.rng)
        raise AssertionError("it is tried without end")

    def _pause(self, seconds: float, told: int | None) -> bool:
        """Wait; says whether the task was told anew meanwhile, counted from `told`, if that is to end it."""

        def is_told() -> bool:
            return told is not None and told != self._client.times_told

        pause(seconds, lambda: self._should_stop() or is_told())
        return is_told()


_PASSING = (Unavailable, ClientIdTaken, NotAMember, Overloaded, TransferIdle)
"""Pass when the aggregator is back, the other instance is gone, this one has joined again, it is less busy, or this machine
or the network moves again."""
_DOUBTFUL = (BlobNotFound, BlobCorrupt, ChunkOutOfOrder)
"""Pass when a transfer is begun anew or the task is asked for again, unless something is wrong for good."""


def _may_pass(error: FedplccError) -> bool:
    return isinstance(error, _PASSING + _DOUBTFUL) and not isinstance(error, NotInCohort)


class _Furthest:
    """How far into a blob bytes have been moved, and a count of those that are moved again."""

    def __init__(self, again: Counter) -> None:
        self._again, self._end = again, 0

    def moved(self, begin: int, end: int) -> None:
        """The bytes from one offset to another are moved."""
        self._again.inc(max(0, min(end, self._end) - begin))
        self._end = max(end, self._end)


class _Download:
    """The bytes of a blob that have arrived so far."""

    def __init__(self, client: AggregatorClient, blob: BlobRef, should_stop: ShouldStop, furthest: _Furthest) -> None:
        self._client, self._blob, self._should_stop, self._furthest = client, blob, should_stop, furthest
        self._pieces: list[bytes] = []
        self.size = 0

    @property
    def data(self) -> bytes:
        """What has arrived."""
        return b"".join(self._pieces)

    def go_on(self) -> None:
        """Ask for the rest of the blob."""
        client = self._client
        request = round_service_pb2.DownloadBlobRequest(
            client_id=client.client_id,
            instance_token=client.instance_token,
            sha256=self._blob.sha256,
            offset_bytes=self.size,
        )
        if self.size:
            client.metrics.transfers_resumed.labels("received").inc()
        kind = "model" if self._blob.role == MODEL else "prototypes"
        received_bytes = client.metrics.transfer_bytes.labels("received", kind)
        watch = _Watch(self._should_stop)
        with client.calling("DownloadBlob"):
            call = client.transfers.DownloadBlob(request)
            with watch.over(call):
                for response in call:
                    self._take(response.chunk.offset_bytes, response.chunk.data)
                    received_bytes.inc(len(response.chunk.data))
                    watch.moved()
        if self.size < self._blob.size_bytes:
            raise AggregatorUnavailable(f"the download ended at byte {self.size} of {self._blob.size_bytes}")

    def _take(self, offset: int, data: bytes) -> None:
        if offset != self.size or not data or offset + len(data) > self._blob.size_bytes:
            self._pieces, self.size = [], 0
            raise BlobCorrupt(f"the aggregator sent {len(data)} bytes from {offset} that do not continue the blob")
        self._pieces.append(data)
        self.size += len(data)
        self._furthest.moved(offset, self.size)


class _Watch:
    """Ends a transfer that moves nothing for too long, or that is not wanted any more."""

    def __init__(self, should_stop: ShouldStop) -> None:
        self._should_stop = should_stop
        self._moved_at = time.monotonic()

    def moved(self) -> float:
        """Say that something moved; returns when."""
        self._moved_at = time.monotonic()
        return self._moved_at

    @contextmanager
    def over(self, call: Any) -> Iterator[None]:
        """Watch over a call within the block.

        Raises:
            Cancelled: The call was ended because it is not wanted any more.
        """
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(POLL_S):
                if self._should_stop() or time.monotonic() - self._moved_at > STANDSTILL_S:
                    call.cancel()
                    return

        thread = threading.Thread(target=look, name="transfer-watch", daemon=True)
        thread.start()
        try:
            yield
        except (grpc.RpcError, grpc.FutureCancelledError):
            check(self._should_stop)
            raise
        finally:
            is_over.set()
            call.cancel()  # after the last message this does nothing
            thread.join()


def pause(seconds: float, should_stop: ShouldStop) -> None:
    """Wait; returns early when `should_stop()` holds."""
    end = time.monotonic() + seconds
    while (rest := end - time.monotonic()) > 0 and not should_stop():
        time.sleep(min(rest, POLL_S))


def _step(response: round_service_pb2.SyncRoundResponse) -> Task | StreamEnd:
    which = response.WhichOneof("step")
    if which == "task":
        return task_from_proto(response.task)
    end = _ENDS.get(response.end.reason) if which == "end" else None
    if end is None:
        raise MalformedRequest("the task stream said something that this version does not know", field="step")
    return end
