"""Transfers of blobs: each attempt resumes where the last one ended, and ends itself when nothing moves for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from prometheus_client import Counter

from fedplcc.shared.errors import AggregatorUnavailable, BlobCorrupt, MalformedRequest
from fedplcc.shared.gen.fedplcc.v1 import round_service_pb2
from fedplcc.shared.types import MODEL, BlobRef
from fedplcc.shared.wire.chunk_size import ChunkSizes
from fedplcc.trainer.aggregator.round_service import ANSWER_S, RoundServiceCalls
from fedplcc.trainer.cancellation import POLL_S, ShouldStop, check

STANDSTILL_S = 60.0
"""Longest time in which a transfer may move nothing; the aggregator hashes and fsyncs a large blob within it."""


class ResentBytes:
    """Count of a blob's bytes that are moved more than once."""

    def __init__(self, counter: Counter) -> None:
        self._counter, self._end = counter, 0

    def moved(self, begin: int, end: int) -> None:
        """Record that the bytes from offset `begin` to offset `end` were moved."""
        self._counter.inc(max(0, min(end, self._end) - begin))
        self._end = max(end, self._end)


class Download:
    """The download of one blob: the bytes that have arrived so far."""

    def __init__(self, calls: RoundServiceCalls, blob: BlobRef, should_stop: ShouldStop, resent: ResentBytes) -> None:
        """Begin with no byte.

        Args:
            should_stop: Asked while bytes move.
            resent: Counts bytes that arrive again.
        """
        self._calls, self._blob, self._should_stop, self._resent = calls, blob, should_stop, resent
        self._arrived = bytearray()  # pieces of two bytes would each take sixty in a list

    @property
    def size(self) -> int:
        """Number of bytes that have arrived."""
        return len(self._arrived)

    @property
    def data(self) -> bytes:
        """The bytes that have arrived."""
        return bytes(self._arrived)

    def attempt(self) -> None:
        """Download the rest of the blob.

        Raises:
            BlobNotFound: The client's present task does not name it.
            BlobCorrupt: A chunk does not continue the blob; the next attempt begins anew.
            Cancelled: `should_stop()` holds.
            Unavailable: The connection broke.
        """
        calls = self._calls
        request = round_service_pb2.DownloadBlobRequest(
            client_id=calls.client_id,
            instance_token=calls.instance_token,
            sha256=self._blob.sha256,
            offset_bytes=self.size,
        )
        if self.size:
            calls.metrics.transfers_resumed.labels("received").inc()
        kind = "model" if self._blob.role == MODEL else "prototypes"
        received_bytes = calls.metrics.transfer_bytes.labels("received", kind)
        guard = _StandstillGuard(self._should_stop)
        with calls.calling("DownloadBlob") as link:
            call = link.transfers.DownloadBlob(request)
            with guard.over(call):
                for response in call:
                    self._append(response.chunk.offset_bytes, response.chunk.data)
                    received_bytes.inc(len(response.chunk.data))
                    guard.moved()
        if self.size < self._blob.size_bytes:
            raise AggregatorUnavailable(f"the download ended at byte {self.size} of {self._blob.size_bytes}")

    def _append(self, offset: int, data: bytes) -> None:
        if offset != self.size or not data or offset + len(data) > self._blob.size_bytes:
            self._arrived.clear()
            raise BlobCorrupt(f"the aggregator sent {len(data)} bytes from {offset} that do not continue the blob")
        self._arrived += data
        self._resent.moved(offset, self.size)


class Upload:
    """The upload of one blob of the client's update."""

    def __init__(
        self,
        calls: RoundServiceCalls,
        header: round_service_pb2.BlobHeader,
        data: bytes,
        should_stop: ShouldStop,
        *,
        is_prototypes: bool,
    ) -> None:
        """Begin.

        Args:
            should_stop: Asked while bytes move.
            is_prototypes: Whether it is a prototype set, not a model.
        """
        self._calls, self._header, self._data, self._should_stop = calls, header, data, should_stop
        self._resent = ResentBytes(calls.metrics.resent_bytes.labels("sent"))
        self._request: Any
        self._name, self._kind, self._request = (
            ("UploadPrototypes", "prototypes", round_service_pb2.UploadPrototypesRequest)
            if is_prototypes
            else ("UploadModel", "model", round_service_pb2.UploadModelRequest)
        )
        self.offset = 0
        """The byte from which the latest attempt sent."""

    def attempt(self) -> None:
        """Send the bytes that the aggregator does not have yet.

        Raises:
            RoundClosed, NotInCohort, BlobTooLarge: The aggregator does not take the blob.
            MalformedRequest: It names an offset outside the blob.
            Cancelled: `should_stop()` holds.
            Unavailable: The connection broke.
        """
        calls = self._calls
        request = round_service_pb2.GetUploadStatusRequest(header=self._header)
        with calls.calling("GetUploadStatus") as link:
            status = link.transfers.GetUploadStatus(request, timeout=ANSWER_S)
        if status.is_complete:
            return
        if not 0 <= status.offset_bytes <= len(self._data):
            raise MalformedRequest(
                f"offset_bytes: {status.offset_bytes} of {len(self._data)} bytes", field="offset_bytes"
            )
        self.offset = status.offset_bytes
        if status.offset_bytes:
            calls.metrics.transfers_resumed.labels("sent").inc()
        guard = _StandstillGuard(self._should_stop)
        with calls.calling(self._name) as link:
            call = getattr(link.transfers, self._name).future(self._messages(status.offset_bytes, guard))
            with guard.over(call):
                call.result()

    def _messages(self, offset: int, guard: _StandstillGuard) -> Iterator[Any]:
        """Yield the header, then chunks from this offset on."""
        sent_bytes = self._calls.metrics.transfer_bytes.labels("sent", self._kind)
        yield self._request(header=self._header)
        sizes = ChunkSizes(self._calls.chunk_bytes)
        while offset < len(self._data):
            piece = self._data[offset : offset + sizes.next_bytes]
            begin = guard.moved()
            yield self._request(chunk=round_service_pb2.Chunk(offset_bytes=offset, data=piece))
            sizes.record(len(piece), time.monotonic() - begin)
            sent_bytes.inc(len(piece))
            offset += len(piece)
            self._resent.moved(offset - len(piece), offset)
        guard.moved()


class _StandstillGuard:
    """Ends a transfer that moves nothing for too long, or that is no longer wanted."""

    def __init__(self, should_stop: ShouldStop) -> None:
        self._should_stop = should_stop
        self._moved_at = time.monotonic()

    def moved(self) -> float:
        """Record that something moved; returns the time."""
        self._moved_at = time.monotonic()
        return self._moved_at

    @contextmanager
    def over(self, call: Any) -> Iterator[None]:
        """Guard a call within the block.

        Raises:
            Cancelled: The call was ended because it is no longer wanted.
        """
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(POLL_S):
                if self._should_stop() or time.monotonic() - self._moved_at > STANDSTILL_S:
                    call.cancel()
                    return

        thread = threading.Thread(target=watch, name="transfer-watch", daemon=True)
        thread.start()
        try:
            yield
        except (grpc.RpcError, grpc.FutureCancelledError):
            check(self._should_stop)
            raise
        finally:
            is_over.set()
            call.cancel()  # no effect after the last message
            thread.join()
