"""The question before each task: may its run go on at this site."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fedplcc.shared.codes import Code
from fedplcc.shared.config.run import canonical_json
from fedplcc.shared.errors import FedplccError, MalformedRequest, StoreUnavailable
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.reasons import OwnersWord
from fedplcc.shared.tensors import sha256_hex
from fedplcc.shared.types import MODEL, ClientProblem, RunSpec, Task, TaskKind
from fedplcc.trainer.owner.approval.asked import Asked, document_of
from fedplcc.trainer.owner.approval.decisions import Decision, Decisions, Ruling
from fedplcc.trainer.owner.approval.kept import Kept, NoRoom
from fedplcc.trainer.owner.approval.packages import TORCH, Packages, version_of

ALWAYS, MATCHING, EACH = "always", "matching", "each"
"""Values of a policy's `approve`."""
LOOK_S = 1.0
"""Least time between two looks at the decisions from within a task."""
GRACE_S = 5.0
"""Time that a heartbeat has to end a task whose run is over, before the task ends itself: the heartbeat tells of it once."""

SPENT = (
    "the run was answered here as often as its owner has approved rounds, and asks again with another model: the aggregator "
    "was put back to an earlier round, or wants to learn more of the images. Another approval allows as many rounds again"
)

log = get_logger("fedplcc.trainer.owner.approval")


class AwaitsApproval(FedplccError):
    """The owner of the site has not approved the run as it is; no data were read for it."""

    code = Code.FAILED_PRECONDITION
    reason = OwnersWord.AWAITED.value


class RunRejected(FedplccError):
    """The owner of the site has rejected the run; no data were read for it."""

    code = Code.FAILED_PRECONDITION
    reason = OwnersWord.REJECTED.value


class RunWithdrawn(FedplccError):
    """The owner of the site has withdrawn its approval of the run."""

    code = Code.FAILED_PRECONDITION
    reason = OwnersWord.WITHDRAWN.value


_WORDS = {
    Ruling.APPROVED: OwnersWord.APPROVED,
    Ruling.REJECTED: OwnersWord.REJECTED,
    Ruling.WITHDRAWN: OwnersWord.WITHDRAWN,
}


def refusal(asked: Asked, decisions: Decisions, rule: str | None) -> FedplccError | None:
    """Return why a run may not go on at a site; None if it may. Pure.

    Args:
        rule: The policy's `approve`; None without a policy.
    """
    last = decisions.of(asked.run_id)
    if last is not None and last.ruling is not Ruling.APPROVED:
        kind = RunRejected if last.ruling is Ruling.REJECTED else RunWithdrawn
        because = f": {last.reason}" if last.reason else ""
        return kind(f"the owner of this site has {last.ruling.value} the run{because}")
    if decisions.is_unknown(asked.run_id):
        return AwaitsApproval(decisions.notice)
    if rule in (None, ALWAYS):
        return None
    changed = [] if last is None else _changed(asked, last)
    if last is not None and not changed:
        return None
    if rule == MATCHING and any(_covers(each, asked) for each in decisions.standing()):
        return None
    since = f": its {' and its '.join(changed)} changed since" if changed else ""
    return AwaitsApproval(f"the owner of this site has not approved the run{since}")


def _changed(asked: Asked, decision: Decision) -> list[str]:
    found = [] if decision.document == asked.document_sha256 else ["document"]
    return found + ([] if decision.code == asked.code_sha256 else ["code"])


def _covers(decision: Decision, asked: Asked) -> bool:
    same = (decision.terms, decision.code) == (asked.terms_sha256, asked.code_sha256)
    return same and asked.rounds <= decision.rounds


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at the decisions has found.

    Attributes:
        is_ended: Whether the owner has ended the present run's part, or the decisions no longer hold.
        reports: Decisions that the aggregator was not told of, and what to tell it of each.
    """

    is_ended: bool = False
    reports: Sequence[tuple[Decision, ClientProblem]] = ()


class Gate:
    """Lets a run's tasks pass that the owner has approved. Any thread may call a method."""

    def __init__(self, kept: Kept, rule: str | None, *, clock: Callable[[], float] = time.time) -> None:
        """Ask the decisions of a site.

        Args:
            rule: The policy's `approve`; None without a policy, where every run passes that the owner has not ended.
            clock: Seconds since the epoch.
        """
        self._kept, self._rule, self._clock = kept, rule, clock
        self._packages, self._has_trouble = Packages(), False
        self._looked = ("", 0.0)
        self._over_since: float | None = None

    def check(self, task: Task) -> None:
        """Let a task pass, before anything is read for it; keep what its run asks for where that has to be decided.

        Raises:
            AwaitsApproval, RunRejected, RunWithdrawn: It may not. A task counts against the rounds that were approved.
            CodeNotAllowed: It names code that is not there.
            MalformedRequest: Its document cannot be read, or it is of a round beyond the document's.
            StoreUnavailable: The decisions cannot be read, or what it asks for cannot be kept.
        """
        assert task.run is not None
        decisions = self._kept.decisions()
        if self._rule is None and not decisions.entries and not decisions.notice:
            return
        asked = self._asked(task)
        if self._rule in (EACH, MATCHING) and task.round > asked.rounds:
            raise MalformedRequest(
                f"the task is of round {task.round}, and the run's document, which its owner approves here, has "
                f"{asked.rounds} rounds; nothing was read for it. A run that goes on has another document"
            )
        why = refusal(asked, decisions, self._rule) or self._spent(task, asked, decisions)
        if isinstance(why, AwaitsApproval):
            try:
                self._kept.ask(asked)
            except NoRoom as error:
                raise AwaitsApproval(f"{why.detail}, who cannot be shown it: {error.detail}") from error
        if why is not None:
            raise why
        self._over_since = None

    def _spent(self, task: Task, asked: Asked, decisions: Decisions) -> FedplccError | None:
        """Count the task; return why it may not be done where the run has had its rounds with other models."""
        last = decisions.of(asked.run_id)
        if self._rule in (None, ALWAYS) or last is None or _changed(asked, last) or task.kind is TaskKind.INIT:
            return None  # it is of no approval, or of another run's
        facts = [task.round, [blob.sha256 for blob in task.payload.blobs], dict(task.payload.scalars)]
        is_counted = self._kept.answers(last, task.kind.value, sha256_hex(canonical_json(facts).encode()))
        return None if is_counted else AwaitsApproval(SPENT)

    def has_ended(self, run: RunSpec) -> bool:
        """Return whether the owner has ended the site's part in the run at hand; quick, whatever the aggregator answers.

        Asked from within a task: an aggregator that is away, or wants few heartbeats, holds no withdrawal up.
        """
        run_id, at = self._looked
        now = time.monotonic()
        if run_id != run.run_id or now >= at + LOOK_S:
            self._looked, is_over = (run.run_id, now), False
            with suppress(StoreUnavailable):  # `look` says so
                is_over = self._is_over(run, self._kept.decisions())
            if not is_over or run_id != run.run_id:
                self._over_since = None
            if is_over and self._over_since is None:
                self._over_since = now
        return self._over_since is not None and now >= self._over_since + GRACE_S

    @staticmethod
    def _is_over(run: RunSpec, decisions: Decisions) -> bool:
        last = decisions.of(run.run_id)
        return decisions.is_unknown(run.run_id) or (last is not None and last.ruling is not Ruling.APPROVED)

    def look(self, run: RunSpec | None) -> Look:
        """Return what has been decided since the last look; called at each heartbeat.

        Args:
            run: The run that the site works for just now; None for none.
        """
        try:
            is_over = run is not None and self._is_over(run, self._kept.decisions())
            reports = [(each, _report(each)) for each in self._kept.untold()]
        except StoreUnavailable as error:
            if not self._has_trouble:
                log.error("decisions_unreadable", detail=error.detail)
            self._has_trouble = True
            return Look()
        self._has_trouble = False
        return Look(is_over, reports)

    def forget(self, *, but_of: Collection[str]) -> None:
        """Forget what runs asked for that are not open any more, or do so with the next answer to Join."""
        with suppress(StoreUnavailable):
            self._kept.forget_asked(but_of=but_of)

    def told(self, decision: Decision) -> None:
        """Record that the aggregator knows of a decision, and of those before it.

        Raises:
            StoreUnavailable: It is told again.
        """
        self._kept.told(decision)
        detail = _report(decision).detail
        log.info("owner_decided", run_id=decision.run_id, ruling=decision.ruling.value, detail=detail)

    def _asked(self, task: Task) -> Asked:
        assert task.run is not None
        sizes = [blob.size_bytes for blob in task.payload.tensor_groups if blob.role == MODEL]
        return Asked(
            run_id=task.run.run_id,
            document=task.run.config_json,
            code=self._packages.of(document_of(task.run.config_json)),
            model_bytes=sizes[0] if sizes else 0,
            asked_at=self._clock(),
            started_by=task.run.started_by,
            torch=version_of(TORCH),
        )


def _report(decision: Decision) -> ClientProblem:
    ended = decision.ruling is not Ruling.APPROVED
    because = f": {decision.reason}" if decision.reason else ""
    document = f" (document {decision.document[:12]})" if decision.document else ""
    return ClientProblem(
        reason=_WORDS[decision.ruling].value,
        detail=f"the owner of this site has {decision.ruling.value} the run{document}{because}",
        is_fatal=ended,
    )
