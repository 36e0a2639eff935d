"""Transfers of blobs: downloads that a client's task names, resumable uploads, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedplcc.aggregator.histories.layouts import Layouts
from fedplcc.aggregator.incoming.announcements import check_announcement, payload_limits
from fedplcc.aggregator.incoming.space import Space
from fedplcc.aggregator.ledger.changes import Changes
from fedplcc.aggregator.ledger.damage import park_if_damaged
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.ledger.write_trouble import WriteTrouble
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.outcomes import CONTENT_REFUSALS, What
from fedplcc.aggregator.metrics.transfers import Direction, Transfer
from fedplcc.aggregator.presence.sessions import Sessions
from fedplcc.aggregator.rounds.configuration import config_of
from fedplcc.aggregator.rounds.machine import members, round_parts
from fedplcc.aggregator.rounds.refusals import reject, speaks_against_sender, why_quarantined
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore
from fedplcc.aggregator.store.blobs.uploads import Upload
from fedplcc.shared.errors import (
    BlobNotFound,
    ChunkTooLarge,
    ClientIdTaken,
    FedplccError,
    PayloadCorrupt,
    RoundClosed,
    Unauthenticated,
)
from fedplcc.shared.types import BlobRef, Event, Payload, Run, Task

_COLLECTED = "the blob is not kept any more; ask for the task again"

MAX_SENT = 1 << 14
"""Most downloads that are remembered, to tell repetitions."""


class Receiver:
    """One upload being received: chunks in order, then `finish`; `close` in any case."""

    def __init__(
        self,
        blobs: BlobStore,
        client_id: str,
        upload: Upload,
        guard: Callable[[], AbstractContextManager[None]],
        on_bytes: Callable[[int], None],
        write_trouble: WriteTrouble,
        max_chunk_bytes: int,
    ) -> None:
        self._blobs, self._client_id, self._upload, self._write_trouble = blobs, client_id, upload, write_trouble
        self._guard, self._on_bytes, self._max_chunk_bytes = guard, on_bytes, max_chunk_bytes

    def write(self, offset_bytes: int, data: bytes) -> None:
        """Append a chunk.

        Raises:
            ChunkTooLarge: The chunk is over the limit.
            ChunkOutOfOrder: The offset is not the end of the received bytes.
            UploadSuperseded: The upload is no longer open.
        """
        with self._guard():
            if len(data) > self._max_chunk_bytes:
                raise ChunkTooLarge(f"a chunk has at most {self._max_chunk_bytes} bytes, this one {len(data)}")
            with self._write_trouble.writing("uploads"):
                self._blobs.reserve.check()
                self._upload.write(offset_bytes, data)
            self._on_bytes(offset_bytes + len(data))

    def finish(self) -> None:
        """Check the whole blob and store it under its SHA-256.

        Raises:
            BlobIncomplete: Bytes are missing.
            BlobCorrupt: They do not have the announced SHA-256.
            UploadSuperseded: The upload is no longer open.
        """
        with self._guard(), self._write_trouble.writing("uploads"):
            self._upload.finish()

    def close(self) -> None:
        """Close the upload; an incomplete one may be resumed later."""
        self._blobs.uploads.end(self._client_id, self._upload)


class Transfers:
    """Downloads and uploads of connected clients."""

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        store: Store,
        blobs: BlobStore,
        layouts: Layouts,
        space: Space,
        metrics: AggregatorMetrics,
        limits: Limits,
    ) -> None:
        self._ledger, self._sessions, self._store = ledger, sessions, store
        self._blobs, self._layouts, self._space, self._metrics = blobs, layouts, space, metrics
        self.max_chunk_bytes, self._max_blob_bytes = limits.max_chunk_bytes, limits.max_blob_bytes
        self._refused: set[tuple[str, int, int, str, str, str]] = set()
        self._sent: set[tuple[str, str]] = set()
        """Instances of trainers with blobs that each has received whole."""

    def open_download(self, client_id: str, token: str, sha256: str) -> tuple[BlobRef, str, Path]:
        """Return a blob of the client's current task, its kind ("model" or "prototypes") and its file.

        A blob that this instance has received whole and asks for again is hashed again: what arrived may have been damaged.

        Raises:
            BlobNotFound: The task does not name this blob, or the blob of an old task was removed.
            PayloadCorrupt: Its file is missing or damaged; its run is paused with that reason.
        """
        session = self._sessions.check(client_id, token)
        payload = session.task.payload if session.task else Payload()
        models = (*payload.tensor_groups, *([] if payload.encoded is None else [payload.encoded]))
        for kind, blobs in (("model", models), ("prototypes", payload.prototype_sets)):
            for blob in blobs:
                if blob.sha256 == sha256:
                    if (token, sha256) in self._sent:
                        self._sent.discard((token, sha256))
                        self._blobs.doubt(sha256)
                    return blob, kind, self._whole_path(session.task, blob)
        raise BlobNotFound("the client's present task does not name this blob", sha256=sha256[:64])

    @contextmanager
    def reading(self, blob: BlobRef) -> Iterator[Path]:
        """Yield the file of a blob; garbage collection leaves it until the block ends.

        Raises:
            BlobNotFound: The blob has just been removed.
            PayloadCorrupt: Its file is missing.
        """
        with self._blobs.holds.reading(blob.sha256) as is_kept:
            if not is_kept:
                raise BlobNotFound(_COLLECTED, sha256=blob.sha256)
            yield self._stored_path(blob.sha256)

    def upload_status(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> tuple[int, bool]:
        """Return the offset from which to send a blob, and whether it is stored already."""
        if self._check_upload(client_id, token, run_id, number, blob):
            return blob.size_bytes, True
        if number == 0 and self._ledger.get(run_id, of=client_id).model == blob:
            return blob.size_bytes, True  # the initial model, which the client sends back unchanged
        if self._blobs.whole_upload(client_id, blob) is not None or self._has_stored(client_id, blob):
            return blob.size_bytes, True
        return self._blobs.uploads.received_bytes(client_id, blob), False

    def begin_upload(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> Receiver | None:
        """Begin or resume an upload; None if the blob is stored already."""
        offset, is_complete = self.upload_status(client_id, token, run_id, number, blob)
        if is_complete:
            return None
        if offset:
            self.count_resumed(direction="received")
        self._metrics.rounds.uploads(run_id, number, client_id, now=self._ledger.now())
        trouble = self._ledger.write_trouble
        with trouble.announcing(run_id):
            self._space.require(client_id, blob.size_bytes - offset)
        with trouble.writing("uploads", is_proof=False):
            upload = self._blobs.uploads.begin(client_id, blob, self._budget_bytes(client_id))
        try:
            # A quarantine since the check above has removed the client's uploads before this one began.
            self._check_upload(client_id, token, run_id, number, blob)
        except FedplccError:
            self._blobs.uploads.withdraw(client_id, upload)
            raise

        @contextmanager
        def guard() -> Iterator[None]:
            with self.refusals(client_id, run_id, number):
                self._sessions.check(client_id, token)  # a chunk is a sign of life too: a slow upload keeps its lease
                yield

        def on_bytes(end: int) -> None:
            self._sessions.record_upload(client_id, blob, end)

        return Receiver(self._blobs, client_id, upload, guard, on_bytes, trouble, self.max_chunk_bytes)

    def uploaded_path(self, client_id: str, blob: BlobRef) -> Path:
        """The file of a blob that this client uploaded, now or for an earlier update.

        Raises:
            BlobNotFound: This client has not uploaded the blob.
        """
        path = self._blobs.whole_upload(client_id, blob)
        if path is None and self._has_stored(client_id, blob):
            path = self._blobs.uploads.path(client_id, blob)
        if path is None or not path.is_file() or path.stat().st_size != blob.size_bytes:
            raise BlobNotFound(f"blob {blob.role!r} was not uploaded by client {client_id}", sha256=blob.sha256)
        return path

    @contextmanager
    def refusals(self, client_id: str, run_id: str, number: int, *, what: What = "update") -> Iterator[None]:
        """Count a refused update or report, and record client and reason in the run's history, once each."""
        try:
            yield
        except FedplccError as error:
            # An unauthenticated sender must not write to the client's history.
            if self._metrics.outcomes.refused(error, what=what) and not isinstance(
                error, (ClientIdTaken, Unauthenticated)
            ):
                refused = error

                def change(changes: Changes) -> None:
                    run = changes.find_open(run_id)
                    if run is not None and self._sessions.find(client_id) is not None:
                        self._record_refusal(changes, run, number, client_id, refused, what)

                self._ledger.together(change)
            raise

    def _record_refusal(
        self, changes: Changes, run: Run, number: int, client_id: str, error: FedplccError, what: str
    ) -> None:
        # Wrong or closed rounds share one entry during a round, so that a client cannot fill the history.
        named = number if number == run.round_number else -1
        key = (run.run_id, run.round_number, named, client_id, what, error.metadata.get("check", error.reason))
        now, events = changes.now, []
        if key not in self._refused:
            data = {"reason": error.reason, "detail": error.detail, **error.metadata}
            event = Event(type=f"{what}_refused", run_id=run.run_id, round=number, client_id=client_id, data=data)
            events.append(replace(event, time=now))
        if what == "update" and isinstance(error, CONTENT_REFUSALS):
            changes.afterwards.append(lambda: self._metrics.runs.refused_update(run.run_id))
        if what == "update" and speaks_against_sender(error):
            after = reject(run, client_id, number, error, now=now)
            why = why_quarantined(after, client_id, config_of(run).admission.quarantine_after)
            after = changes.step(run, after if why is None else members.quarantine(after, client_id, why), extra=events)
            if why is not None:
                changes.afterwards.append(partial(self._space.drop_quarantined, after))
        else:
            for event in events:
                changes.record(event)

        def remember() -> None:
            self._refused = {known for known in self._refused if self._is_of_open_round(known)} | {key}

        changes.afterwards.append(remember)

    def _is_of_open_round(self, key: tuple[str, int, int, str, str, str]) -> bool:
        run = self._ledger.find_open(key[0])
        return run is not None and run.round_number == key[1]

    def count_transfer(
        self, num_bytes: int, *, direction: Direction, kind: str, client_id: str, sha256: str, offset_bytes: int
    ) -> None:
        """Count a piece of a client's blob that was sent or received; kind is "model" or "prototypes". Takes no lock."""
        session = self._sessions.find(client_id)
        task = None if session is None or session.task is None else session.task.key
        transfer = Transfer(direction, client_id, task, sha256)
        self._metrics.transfers.moved(transfer, kind=kind, offset_bytes=offset_bytes, num_bytes=num_bytes)

    def count_inline(self, client_id: str, task: Task, blobs: Iterable[BlobRef]) -> None:
        """Count blobs that go out with a client's task. Takes no lock."""
        for blob in blobs:
            kind = "prototypes" if blob in task.payload.prototype_sets else "model"
            transfer = Transfer("sent", client_id, task.key, blob.sha256)
            self._metrics.transfers.moved(transfer, kind=kind, offset_bytes=0, num_bytes=blob.size_bytes)
            self._metrics.rounds.fetched(task, client_id, now=self._ledger.now())

    def note_received(self, client_id: str, token: str, blob: BlobRef, end: int) -> None:
        """Record that a client has received a blob up to a byte. Takes no lock: the event loop may call it."""
        self._sessions.record_download(client_id, token, blob, end)
        is_whole = end == blob.size_bytes
        session = self._sessions.find(client_id)
        if is_whole and session is not None and session.token == token and session.task is not None:
            self._metrics.rounds.fetched(session.task, client_id, now=self._ledger.now())

    def sent_whole(self, token: str, sha256: str) -> None:
        """Note that an instance of a trainer has received a whole blob. Takes no lock."""
        if len(self._sent) >= MAX_SENT:
            self._sent.clear()
        self._sent.add((token, sha256))

    def doubt(self, sha256: str) -> None:
        """Have a blob hashed again before it is called whole. Takes no lock."""
        self._blobs.doubt(sha256)

    def count_resumed(self, *, direction: Direction) -> None:
        """Count a transfer that resumes from an offset."""
        self._metrics.transfers.resumed(direction)

    def _stored_path(self, sha256: str) -> Path:
        if not self._blobs.path(sha256).is_file() and self._store.find_blob(sha256) is None:
            raise BlobNotFound(_COLLECTED, sha256=sha256)
        return self._blobs.stored_path(sha256)

    def _whole_path(self, task: Task | None, blob: BlobRef) -> Path:
        try:
            with self.reading(blob):  # else what is collected just now would be taken for damage
                return self._blobs.verified_path(blob.sha256)
        except PayloadCorrupt:
            if task is not None and task.run is not None:
                park_if_damaged(self._ledger, task.run.run_id, self._blobs)
            raise

    def _has_stored(self, client_id: str, blob: BlobRef) -> bool:
        """Whether this client committed the blob before. If so, the blob is held as its upload, safe from collection."""
        # Every row has a file. Most uploads are new, so the look for the file saves a database query.
        is_there = self._blobs.path(blob.sha256).is_file()
        return (
            is_there
            and self._store.has_stored(client_id, blob.sha256)
            and self._store.find_blob(blob.sha256) == blob.size_bytes
            and self._blobs.is_known_whole(blob.sha256)
            and self._blobs.uploads.link(client_id, blob, self._blobs.path(blob.sha256))
        )

    def _check_upload(self, client_id: str, token: str, run_id: str, number: int, blob: BlobRef) -> bool:
        """Check whether a client may send a blob; returns whether the call only repeats what was committed since."""
        with self.refusals(client_id, run_id, number):
            self._sessions.check(client_id, token)
            run = self._ledger.get(run_id, of=client_id)
            current = run.current_round
            if current is None or current.number != number or client_id not in current.updates:
                try:
                    round_parts.check_takes_updates(run, number, client_id)
                except RoundClosed:
                    if not self._store.has_stored(client_id, blob.sha256):
                        raise
                    return True
            elif current.updates[client_id].payload.encoded == blob:
                return True  # decoded when it was committed, and not kept
            check_announcement(blob, self._limits(run), max_blob_bytes=self._max_blob_bytes)
        return False

    def _limits(self, run: Run) -> dict[str, int]:
        """Return the largest size of each blob of an update of the run's open round, by role."""
        number = run.round_number
        feature_dim = self._layouts.feature_dim(run) if number > 0 else 0
        sent = self._layouts.sent_table(run) if number > 0 and config_of(run).wire.is_encoded else None
        return payload_limits(run, number, feature_dim=feature_dim, max_blob_bytes=self._max_blob_bytes, sent=sent)

    def _budget_bytes(self, client_id: str) -> int:
        """Return the bytes that a client may have on the disk before a commit: twice what its open rounds take of it.

        Twice, because a trainer that starts again may send other bytes; once where round 0 sets the sizes.
        """
        runs = [run for run in self._ledger.open_runs() if run.current_round and client_id in run.current_round.cohort]
        return sum((1 + (run.round_number > 0)) * sum(self._limits(run).values()) for run in runs)
