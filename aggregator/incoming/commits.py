"""Commits of updates and evaluation reports: each is checked outside the ledger's lock, then counted once or refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from weakref import WeakValueDictionary

from fedplcc.aggregator.computation.checked import Content
from fedplcc.aggregator.computation.first_model_checks import check_first_model
from fedplcc.aggregator.computation.report_checks import check_evaluation, check_totals
from fedplcc.aggregator.computation.update_checks import check_stage, check_update
from fedplcc.aggregator.histories.layouts import Layouts
from fedplcc.aggregator.histories.taken_in import TakenIn
from fedplcc.aggregator.incoming.decoded_models import check_named, write_decoded
from fedplcc.aggregator.incoming.inline_blobs import InlineBlob, came_along
from fedplcc.aggregator.incoming.transfers import Transfers
from fedplcc.aggregator.ledger.changes import Changes
from fedplcc.aggregator.ledger.damage import park_if_damaged
from fedplcc.aggregator.ledger.ledger import Ledger
from fedplcc.aggregator.ledger.limits import Limits
from fedplcc.aggregator.metrics import AggregatorMetrics
from fedplcc.aggregator.metrics.outcomes import CONTENT_REFUSALS
from fedplcc.aggregator.presence.sessions import Session, Sessions
from fedplcc.aggregator.rounds.configuration import config_of, place_of
from fedplcc.aggregator.rounds.machine import opening, round_parts
from fedplcc.aggregator.store.base import Store
from fedplcc.aggregator.store.blobs.blob_store import BlobStore, BlobWriter
from fedplcc.shared.errors import BlobNotFound, PayloadCorrupt, RowCorrupt
from fedplcc.shared.tensors import prototypes_from_bytes
from fedplcc.shared.types import (
    MODEL,
    BlobRef,
    Client,
    CommittedUpdate,
    Evaluation,
    PrototypeSet,
    Round,
    Run,
    Update,
    result_blobs,
)

MAX_FIRST_REPORTS = 4096
"""Most clients of runs whose first report is remembered, without confusion and histograms; beyond that it is read again."""
COMPUTING = 2
"""Small updates that are checked at the same time: more threads would keep the event loop from its turn."""


class Commits:
    """Takes updates and evaluation reports of connected clients."""

    def __init__(
        self,
        ledger: Ledger,
        sessions: Sessions,
        transfers: Transfers,
        layouts: Layouts,
        store: Store,
        blobs: BlobStore,
        metrics: AggregatorMetrics,
        limits: Limits,
    ) -> None:
        self._ledger, self._sessions, self._transfers, self._layouts = ledger, sessions, transfers, layouts
        self._store, self._blobs, self._metrics = store, blobs, metrics
        self._taken_in = TakenIn(store)
        self._max_inline_bytes = limits.max_inline_bytes
        self._first_reports: dict[tuple[str, str], tuple[int, Evaluation]] = {}
        """By run and client: a round that it is not after, and the report."""
        self._computing = threading.Semaphore(COMPUTING)
        self._turns_lock = threading.Lock()
        # A lock stays while a thread holds it.
        self._turns: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    def commit_update(
        self,
        client_id: str,
        token: str,
        run_id: str,
        number: int,
        update: Update,
        inline: Sequence[bytes] = (),
    ) -> CommittedUpdate:
        """Make an update part of its round. A repeated update gets the first answer again.

        `inline` has the bytes of blobs of its payload that were not uploaded, in any order.

        Raises:
            MalformedUpdate: A check of computation/update_checks.py failed.
            BlobNotFound: A blob was not uploaded by this client, and did not come along.
            BlobTooLarge, BlobCorrupt: See incoming/inline_blobs.py.
            RoundClosed, NotInCohort, UpdateConflict, RunNotFound: See rounds/machine/.
        """
        with (
            self._transfers.refusals(client_id, run_id, number),
            self._turn_of(client_id, token),
            self._blobs.holds.holding(),
        ):
            committed = CommittedUpdate(run_id, number, tuple(blob.sha256 for blob in update.payload.blobs))
            session = self._sessions.check(client_id, token)
            run = self._ledger.get(run_id, of=client_id)
            if self._is_committed(run, number, update):
                self._metrics.outcomes.taken("update", "duplicate")
                return committed
            if is_without_data(run, update):
                return self._left_stage(client_id, token, run_id, number, update, committed)
            round_parts.add_update(
                run, number, update, now=self._ledger.now()
            )  # refuses early, before any blob is read
            check_named(update.payload, number, config_of(run))
            with ExitStack() as unfinished:
                with self._computing if inline else nullcontext():
                    arrived = self._arrived(session.client.client_id, run_id, number, update, inline)
                    writer = None
                    if update.payload.encoded is not None:
                        writer = unfinished.enter_context(self._blobs.writing(MODEL))
                    try:
                        update = self._checked_or_damaged(run, number, update, session.client, arrived, writer)
                    except (PayloadCorrupt, FileNotFoundError) as error:
                        park_if_damaged(self._ledger, run_id, self._blobs)
                        run = self._ledger.get(run_id, of=client_id)  # it may have gone on, and its models with it
                        round_parts.add_update(run, number, update, now=self._ledger.now())
                        if isinstance(error, FileNotFoundError):
                            raise BlobNotFound(
                                "what was uploaded gave way while it was checked; send it again"
                            ) from error
                        raise
                with self._ledger.write_trouble.writing("uploads"):
                    if writer is not None:
                        writer.finish()
                    self._blobs.keep(client_id, [blob for blob in update.payload.blobs if blob not in arrived])
                    for blob, content in arrived.items():
                        if blob != update.payload.encoded:
                            self._blobs.put(blob.role, [content.data])

            def change(changes: Changes) -> Session | None:
                session = self._sessions.check(client_id, token)  # another instance may have taken over meanwhile
                run = changes.find(run_id) or self._ledger.get(run_id, of=client_id)
                quorum = self._ledger.quorum_of(run)
                after = round_parts.add_update(run, number, update, now=changes.now, quorum=quorum)
                if after is run:
                    return None
                changes.step(run, after, update=update)
                return session

            taken = self._ledger.together(change)
            if taken is None:
                self._metrics.outcomes.taken("update", "duplicate")
                return committed
            self._metrics.outcomes.taken("update", "accepted")
            taken.has_worked(run_id)
            self._blobs.uploads.forget(client_id)
            return committed

    def _left_stage(
        self, client_id: str, token: str, run_id: str, number: int, update: Update, committed: CommittedUpdate
    ) -> CommittedUpdate:
        """Take the answer of a client that has nothing to train on in the round's stage."""

        def change(changes: Changes) -> Session:
            session = self._sessions.check(client_id, token)
            run = changes.find(run_id) or self._ledger.get(run_id, of=client_id)
            config, place = config_of(run), place_of(run)
            assert place is not None
            check_stage(update, place)
            after = opening.leave_stage(
                run,
                number,
                client_id,
                cohort_size=config.run.cohort_size,
                stream=config.stream,
                quorum=self._ledger.quorum_of(run),
                now=changes.now,
            )
            changes.step(run, after)
            return session

        self._ledger.together(change).has_worked(run_id)
        return committed

    def report_evaluation(self, client_id: str, token: str, run_id: str, number: int, evaluation: Evaluation) -> None:
        """Add a report to its round; the first one of a client counts.

        Raises:
            MalformedUpdate, RoundClosed, NotInCohort, RunNotFound: See computation/report_checks.py and rounds/machine/.
        """

        def change(changes: Changes) -> Session | None:
            session = self._sessions.check(client_id, token)
            run = changes.find(run_id) or self._ledger.get(run_id, of=client_id)
            report = replace(evaluation, domain=session.client.domain)
            current = self._round_of(run, number, client_id)
            if current is not None and client_id in current.evaluations:
                return None
            after = round_parts.add_evaluation(run, number, report)  # first: it refuses a client outside the cohort
            check_evaluation(report, config_of(run))
            has = session.client.num_examples
            check_totals(report, has if most is None else min(has, most), first)
            changes.step(run, after, evaluation=report)
            return session

        with self._transfers.refusals(client_id, run_id, number, what="report"):
            self._sessions.check(client_id, token)
            run = self._ledger.get(run_id, of=client_id)
            first, most = self._first_report(run, number, client_id), self._taken_in.most(run, client_id)
            taken = self._ledger.together(change)
            self._metrics.outcomes.taken("report", "duplicate" if taken is None else "accepted")
            if taken is not None:
                self._remember_first(run_id, number, evaluation if first is None else first)
                taken.has_worked(run_id)

    def _first_report(self, run: Run, number: int, client_id: str) -> Evaluation | None:
        """Return a client's first report of a run, of a round before this one; none where stages change its images.

        One whose row is damaged holds nobody: `doctor` finds the row, and the run goes on without this comparison.
        """
        if place_of(run) is not None or number > run.round_number:
            return None
        known = self._first_reports.get((run.run_id, client_id))
        if known is not None and number > known[0]:
            return known[1]
        try:
            return self._store.first_evaluation(run.run_id, client_id, before=number)
        except RowCorrupt:
            return None

    def _remember_first(self, run_id: str, number: int, first: Evaluation) -> None:
        """Remember a client's first report of a run, which is of this round or an earlier one."""
        if len(self._first_reports) >= MAX_FIRST_REPORTS:
            self._first_reports.clear()
        totals = tuple(replace(counts, confusion=(), histograms=None) for counts in first.counts)
        self._first_reports[run_id, first.client_id] = number, replace(first, counts=totals)

    @contextmanager
    def _turn_of(self, client_id: str, token: str) -> Iterator[None]:
        """Let a client commit one update at a time, so that an early retry does not meet half-stored blobs."""
        self._sessions.check(client_id, token)
        with self._turns_lock:
            turn = self._turns.setdefault(client_id, threading.Lock())
        with turn:
            yield

    def _is_committed(self, run: Run, number: int, update: Update) -> bool:
        """Whether the same update is committed already, in the open round or an earlier one."""
        current = self._round_of(run, number, update.client_id)
        known = None if current is None else current.updates.get(update.client_id)
        return known is not None and replace(known, num_prototypes=0, norm=None).same_content(update)

    def _round_of(self, run: Run, number: int, client_id: str) -> Round | None:
        """A run's round; of an earlier one, this client's update and report alone."""
        if run.round_number == number:
            return run.current_round
        return self._store.find_round(run.run_id, number, of=client_id)

    def _arrived(
        self, client_id: str, run_id: str, number: int, update: Update, inline: Sequence[bytes]
    ) -> dict[BlobRef, InlineBlob]:
        """Return the blobs that came with the commit, and count their bytes as those of an upload."""
        arrived = came_along(update.payload, inline, max_bytes=self._max_inline_bytes)
        if arrived:
            self._metrics.rounds.uploads(run_id, number, client_id, now=self._ledger.now())
        for blob in arrived:
            self._transfers.count_transfer(
                blob.size_bytes,
                direction="received",
                kind="prototypes" if blob in update.payload.prototype_sets else "model",
                client_id=client_id,
                sha256=blob.sha256,
                offset_bytes=0,
            )
        return arrived

    def _checked_or_damaged(
        self,
        run: Run,
        number: int,
        update: Update,
        client: Client,
        arrived: Mapping[BlobRef, InlineBlob],
        writer: BlobWriter | None,
    ) -> Update:
        """Check an update; what speaks against it counts only if the disk has changed nothing that was read for it."""
        try:
            return self._checked(run, number, update, client, arrived, writer)
        except CONTENT_REFUSALS:
            results = tuple(result_blobs(run))
            for blob in results:
                if not self._blobs.is_whole(blob.sha256):
                    raise PayloadCorrupt(
                        f"the {blob.role} of the run is damaged, so no update of it can be checked", sha256=blob.sha256
                    ) from None
            uploaded = [blob for blob in update.payload.moved if blob not in arrived and blob not in results]
            for blob in uploaded:
                self._blobs.doubt(blob.sha256)
                self._blobs.whole_upload(client.client_id, blob)  # removes it if it is damaged
            for blob in uploaded:
                self._transfers.uploaded_path(client.client_id, blob)
            raise

    def _checked(
        self,
        run: Run,
        number: int,
        update: Update,
        client: Client,
        arrived: Mapping[BlobRef, InlineBlob],
        writer: BlobWriter | None,
    ) -> Update:
        """Check an update against the run's contract; returns it with its number of prototypes.

        A model that travelled encoded is decoded into `writer` first.
        """
        initial = self._blobs.verified_path(run.model.sha256) if number == 0 and run.model is not None else None

        def content(blob: BlobRef) -> Content:
            if initial is not None and blob == run.model:
                return initial
            return arrived.get(blob) or self._transfers.uploaded_path(client.client_id, blob)

        contents = {blob: content(blob) for blob in update.payload.moved}
        if number == 0:
            return check_first_model(update, contents, config_of(run), initial, self._initial_prototypes(run))
        self._taken_in.check_growth(run, client.client_id, update.num_examples)
        assert run.model is not None
        start = self._blobs.verified_path((run.start or run.model).sha256)
        table, int_lists = self._layouts.sent_table(run), self._layouts.int_lists(run)
        model, encoded = update.payload.tensor_group(MODEL), update.payload.encoded
        if writer is not None and model is not None and encoded is not None:
            layout, of_file = (table, self._layouts.table(run)), contents[encoded]
            contents[model] = write_decoded(update.payload, of_file, config_of(run), layout, start, writer)
        return check_update(update, contents, client, config_of(run), table, int_lists, start, place_of(run))

    def _initial_prototypes(self, run: Run) -> PrototypeSet | None:
        """Return the prototypes that a run begins with; None without any."""
        if not config_of(run).run.initial_prototypes or run.prototypes is None:
            return None
        return prototypes_from_bytes(self._blobs.read(run.prototypes.sha256))


def is_without_data(run: Run, update: Update) -> bool:
    """Whether an update says that its sender has nothing to train on in the round's stage."""
    return run.round_number > 0 and place_of(run) is not None and not update.num_examples and not update.payload.blobs
