"""Delivery of a finished update from a trainer to its round: kept over restarts, sent, committed.

    found? --no--> settle --> (the task is done) --> hand_in: staged --> sent --> committed: promoted
      `--yes----------------------------------------'                     `-----> refused, or too late

An update without an acknowledgement may have been committed all the same. So before the next task the trainer asks the
aggregator for its last committed update, and `manifest.settled` decides what to keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedplcc.shared.errors import (
    BlobNotFound,
    BlobTooLarge,
    MalformedUpdate,
    NotInCohort,
    RoundClosed,
    StaleRound,
    StoreUnavailable,
    UpdateConflict,
    UpdateLost,
)
from fedplcc.shared.methods.arrays import ClientState
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import (
    BlobRef,
    ClientActivity,
    ClientProblem,
    CommittedUpdate,
    ForgottenRun,
    Membership,
    Update,
)
from fedplcc.trainer.cancellation import check
from fedplcc.trainer.task.client_state import ClientStates
from fedplcc.trainer.task.hints import HINTS
from fedplcc.trainer.task.job import Job
from fedplcc.trainer.task.manifest import Manifest, Staged, is_outdated
from fedplcc.trainer.task.withholding import told_timings, told_update

STATE_LOST = ClientProblem(
    reason="CLIENT_STATE_LOST",
    detail="what this client kept from its last committed update is not in its state directory; it takes part as if it "
    "were the first time, and the run's bytes will not repeat",
    hint="keep this trainer's --state-dir over restarts, on a volume of its own; a restored aggregator causes this too",
)

MODEL_CHANGED = ClientProblem(
    reason="CLIENT_MODEL_CHANGED",
    detail="what this client kept from its last committed update is of another kind of model than its trainer now has; it "
    "is dropped, the client takes part as if it were the first time, and the run's bytes will not repeat",
    hint=HINTS["CLIENT_MODEL_CHANGED"],
)

log = get_logger("fedplcc.trainer.task.delivery")


@dataclass(slots=True, eq=False)
class Finished:
    """A finished update that may not be committed yet, with the bytes of its blobs and of its client state by SHA-256."""

    staged: Staged
    blobs: Mapping[str, bytes]
    is_refused: bool = False
    """Whether the aggregator found it malformed: it is sent again, but a restarted trainer trains anew."""
    is_sent: bool = False
    """Whether it was committed once, and is sent because the aggregator's copy is damaged."""

    @classmethod
    def of(
        cls,
        job: Job,
        identity: str,
        update: Update,
        blobs: Mapping[str, bytes],
        *,
        keeps_state: bool = False,
        state: BlobRef | None = None,
    ) -> Finished:
        """Return the finished update of a job; see `Staged` for the arguments."""
        staged = Staged(
            identity=identity,
            run_id=job.run.run_id,
            round=job.task.round,
            update=update,
            keeps_state=keeps_state,
            state=state,
            kind=job.site.kind,
        )
        return cls(staged, blobs)


class Delivery:
    """Delivery of one client's updates, one at a time; the latest is kept until it is acknowledged."""

    def __init__(self, client_id: str, states: ClientStates) -> None:
        self._client_id, self._states = client_id, states
        self._settled_runs: set[str] = set()
        self._latest: Finished | None = None

    def found(self, identity: str) -> Finished | None:
        """Return the finished update of this work, from memory or, after a restart, from the disk; None where there is none.

        Raises:
            DiskFull, StoreUnavailable: The folder cannot be read, or a damaged update not be dropped.
        """
        if self._latest is not None and self._latest.staged.identity == identity:
            return self._latest
        self._latest = None  # frees the blobs of an old update before new ones are made
        found = self._states.finished(identity)
        if found is None:
            return None
        staged, blobs = found
        log.info("finished_update_found", client_id=self._client_id, run_id=staged.run_id, round=staged.round)
        self._latest = Finished(staged, blobs)
        return self._latest

    def sent(self, job: Job) -> Finished | None:
        """Return the committed update that a task asks for again; None where it asks for none, or it is not kept.

        Raises:
            UpdateLost: It is not kept, and cannot be made again: the client state before it is gone.
            DiskFull, StoreUnavailable: The folder cannot be read.
        """
        run_id, number = job.run.run_id, job.task.round
        if not job.task.missing:
            return None
        found = self._states.sent(run_id, number, job.task.missing)
        if found is not None:
            staged, blobs = found
            log.info("sent_update_found", client_id=self._client_id, run_id=run_id, round=number)
            return Finished(staged, blobs, is_sent=True)
        promoted = self._states.manifest.promoted.get(run_id)
        if promoted is not None and promoted.update.round == number:
            raise UpdateLost(
                f"the aggregator asks for this client's update of round {number} again, which is not kept here any more, "
                "and the client's state before it is not either",
                run_id=run_id,
                round=number,
            )
        log.warning("sent_update_lost", client_id=self._client_id, run_id=run_id, round=number)
        return None

    def settle(self, job: Job, identity: str | None) -> ClientState | None:
        """Promote or drop the staged update of an earlier task, and remove everything of runs that have ended.

        Args:
            identity: Names the update that the task asks for; None for an evaluation.

        Returns:
            The client's state as of its last committed update of the run, checked as it was read; None where there is none,
            or the method keeps none.

        Raises:
            DiskFull, StoreUnavailable: Nothing has changed; doing the task again tries again.
            StaleRound: The task came late: its update is committed, and the kept state already includes it.
            FedplccError: The aggregator cannot be asked.
        """
        run_id, kept = job.run.run_id, self._states.manifest
        # When a round is evaluated, its own update is committed or never will be.
        next_round = job.task.round + (identity is None)
        keeps_state = job.config.keeps_client_state
        is_first = run_id not in self._settled_runs and (keeps_state or kept.promoted or kept.data.keys() - {run_id})
        last_committed = None
        if kept.staged is not None or is_first or (keeps_state and _is_out_of_turn(kept, run_id, next_round)):
            membership = job.aggregator.announce(job.client)
            self._states.settle(membership, run_id=run_id, identity=identity)
            last_committed = _to_remember(membership)
        self._settled_runs.add(run_id)
        return self._checked_state(job, last_committed, next_round) if keeps_state else None

    def forget(self, forgotten: Sequence[ForgottenRun]) -> None:
        """Delete what is kept of runs that are to forget the client; see `ClientStates.forget_runs`."""
        self._states.forget_runs(forgotten)

    def hand_in(self, job: Job, finished: Finished) -> None:
        """Stage a finished update, store its blobs and commit it; `found` returns it until it is acknowledged.

        Raises:
            Cancelled: The task is no longer wanted.
            DiskFull, StoreUnavailable: The trainer or the aggregator cannot keep it; handing it in again tries again.
            FedplccError: The aggregator refused it.
        """
        self._latest = finished
        if not finished.is_refused and not finished.is_sent:
            self._stage(job, finished)
        try:
            _send(job, finished)
        except (RoundClosed, NotInCohort, UpdateConflict):
            # It may have been committed and its acknowledgement lost: the answer to the next Join decides.
            self._latest = None
            raise
        except MalformedUpdate:
            finished.is_refused = True
            if not finished.is_sent:
                self._states.drop()
            raise
        self._latest = None
        if finished.is_sent:
            return
        try:
            self._states.promote()
        except StoreUnavailable as error:
            # The update is committed all the same; the next task promotes what is staged.
            log.warning("promotion_waits", client_id=self._client_id, reason=error.reason, detail=error.detail)

    def _checked_state(self, job: Job, last_committed: CommittedUpdate | None, number: int) -> ClientState | None:
        """Return the state of the last committed update before a round, and no other; a lost state is reported."""
        run_id = job.run.run_id
        promoted, state = self._states.manifest.promoted.get(run_id), None
        if promoted is not None and promoted.update.round == number and promoted.update == last_committed:
            raise StaleRound(f"the update of round {number} is committed already", run_id=run_id, round=number)
        if promoted is None:
            is_lost = last_committed is not None and last_committed.run_id == run_id and last_committed.round > 0
        else:
            is_lost = is_outdated(promoted, last_committed, round=number)
            if is_lost:
                self._states.forget(run_id)
            elif promoted.kind != job.site.kind:
                self._states.forget(run_id)
                log.warning("client_model_changed", client_id=self._client_id, run_id=run_id, round=number)
                job.on_problem(MODEL_CHANGED)
            elif promoted.state is not None:
                state = self._states.state(run_id)
                is_lost = state is None
        if is_lost:
            log.warning("client_state_lost", client_id=self._client_id, run_id=run_id, round=number)
            job.on_problem(STATE_LOST)
        return state

    def _stage(self, job: Job, finished: Finished) -> None:
        """Keep a finished update on the disk until it is committed."""
        staged = self._states.manifest.staged
        if staged is not None and staged.run_id != job.run.run_id:
            # It belongs to another run and may be committed: it must not be replaced before that is known.
            membership = job.aggregator.announce(job.client)
            self._states.settle(membership, run_id=job.run.run_id, identity=finished.staged.identity)
        with job.timed("stage_seconds"):
            self._states.stage(finished.staged, finished.blobs)


def _to_remember(membership: Membership) -> CommittedUpdate | None:
    """Return the client's last committed update; None also where its run is to forget it, after which nothing is lost."""
    last = membership.last_committed
    latest = {forgotten.run_id: forgotten.round for forgotten in membership.forgotten_runs}
    return None if last is None or last.round <= latest.get(last.run_id, -1) else last


def _is_out_of_turn(kept: Manifest, run_id: str, number: int) -> bool:
    """Whether the round does not follow the last one known here: another trainer may have acted in between."""
    promoted = kept.promoted.get(run_id)
    return number > 1 if promoted is None else promoted.update.round != number - 1


def _send(job: Job, finished: Finished) -> None:
    """Commit the update, with its blobs if they are small, else after storing them."""
    blobs = finished.staged.update.payload.moved
    job.begin(ClientActivity.UPLOADING)
    if sum(blob.size_bytes for blob in blobs) <= job.aggregator.max_inline_bytes:
        try:
            _commit(job, finished, [finished.blobs[blob.sha256] for blob in blobs])
            return
        except (BlobNotFound, BlobTooLarge) as error:
            # Another version of the aggregator has started, which takes fewer inline bytes or knows nothing of them.
            log.info("inline_blobs_refused", client_id=finished.staged.update.client_id, reason=error.reason)
    with job.timed("upload_seconds"):
        for number_sent, blob in enumerate(blobs, start=1):
            check(job.should_stop)
            is_prototypes = blob in finished.staged.update.payload.prototype_sets
            data = finished.blobs[blob.sha256]
            job.aggregator.store(job.run.run_id, job.task.round, blob, data, is_prototypes=is_prototypes)
            job.on_activity(ClientActivity.UPLOADING, number_sent / len(blobs))
    _commit(job, finished, ())


def _commit(job: Job, finished: Finished, inline: Sequence[bytes]) -> None:
    """Commit the update with what was measured up to now."""
    check(job.should_stop)
    update = finished.staged.update
    sent_bytes = sum(blob.size_bytes for blob in update.payload.moved)
    timings = {**update.timings, **job.timings, "sent_bytes": float(sent_bytes)}
    timings["retries"] = float(job.aggregator.retries)
    told = replace(
        told_update(update, job.site.policy.leaves), timings=told_timings(timings, withholds=job.withholds_times)
    )
    job.aggregator.commit_update(job.run.run_id, job.task.round, told, inline)
