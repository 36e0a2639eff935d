"""The owner's decisions, as the command and the page ask for them: what waits, and what may be decided about a run."""

from __future__ import annotations

from typing import Any

from fedplcc.shared.errors import FailedPrecondition, InvalidConfig
from fedplcc.trainer.owner.approval.asked import Asked
from fedplcc.trainer.owner.approval.decisions import Decision, Ruling
from fedplcc.trainer.owner.approval.gate import AwaitsApproval, refusal
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.approval.words import facts_of
from fedplcc.trainer.owner.in_force import policy_in_force

LEAST_DIGITS = 8
"""Fewest digits by which a document is named."""


def rule_of(kept: Kept) -> str | None:
    """Return the rule by which the trainer runs or last ran; None without a policy.

    Raises:
        InvalidConfig: The policy in force cannot be read.
    """
    known = policy_in_force(kept.folder.parent)
    return None if known is None else known.policy.approve


def waiting(kept: Kept) -> list[dict[str, Any]]:
    """Return the facts about each run that waits, those first that have waited longest.

    Raises:
        InvalidConfig: The policy in force cannot be read.
        StoreUnavailable: The decisions cannot be read.
    """
    decisions, rule = kept.decisions(), rule_of(kept)
    reasons = ((asked, refusal(asked, decisions, rule)) for asked in kept.all_asked())
    return [facts_of(asked, why=why.detail) for asked, why in reasons if isinstance(why, AwaitsApproval)]


def decided(kept: Kept) -> list[dict[str, Any]]:
    """Return the last decision about each run that counts, for JSON, the newest first.

    Raises:
        StoreUnavailable: The decisions cannot be read.
    """
    return [
        {
            "run_id": each.run_id,
            "ruling": each.ruling.value,
            "time": each.time,
            "by": each.by,
            "reason": each.reason,
            "document_sha256": each.document,
            "torch": each.torch,
        }
        for each in reversed(kept.decisions().last())
    ]


def approve(kept: Kept, run_id: str, document: str = "") -> Decision:
    """Approve a run as it asks now; one that was withdrawn or rejected, as it asked then.

    Args:
        kept: The site's files.
        run_id: The run.
        document: SHA-256 of the document that the owner has read, or its first digits; not compared if empty.

    Raises:
        InvalidConfig: No such run waits.
        FailedPrecondition: The document is another one.
        StoreUnavailable: The decision cannot be kept.
    """
    asked, last = kept.asked(run_id), kept.decisions().of(run_id)
    digest = _document(asked, last)
    if asked is None and last is None:
        raise _unknown(run_id)
    if document and (len(document) < LEAST_DIGITS or not digest.startswith(document.lower())):
        raise FailedPrecondition(
            f"run {run_id} asks for the document {digest}, not {document[:64]}: nothing was approved; give at least "
            f"{LEAST_DIGITS} digits of the one that you read"
        )
    return kept.decide(Ruling.APPROVED, run_id, asked)


def reject(kept: Kept, run_id: str, reason: str = "") -> Decision:
    """Reject a run that waits.

    Raises:
        InvalidConfig: No such run waits, or the reason is too long.
        FailedPrecondition: It was approved.
        StoreUnavailable: The decision cannot be kept.
    """
    asked, last = kept.asked(run_id), kept.decisions().of(run_id)
    if asked is None and last is not None and last.ruling is Ruling.APPROVED:
        raise FailedPrecondition(f"run {run_id} was approved: end its part with 'fedplcc site withdraw {run_id}'")
    if asked is None and (last is None or last.ruling is not Ruling.REJECTED):
        raise _unknown(run_id)
    return kept.decide(Ruling.REJECTED, run_id, asked, reason=reason)


def withdraw(kept: Kept, run_id: str, reason: str = "") -> Decision:
    """End the site's part in a run, also in one that needed no approval.

    Raises:
        InvalidConfig: It is no id of a run, or the reason is too long.
        FailedPrecondition: It waits for approval.
        StoreUnavailable: The decision cannot be kept.
    """
    last = kept.decisions().of(run_id)
    if kept.asked(run_id) is not None and (last is None or last.ruling is Ruling.APPROVED):
        raise FailedPrecondition(f"run {run_id} waits for approval: 'fedplcc site reject {run_id}' says no to it")
    return kept.decide(Ruling.WITHDRAWN, run_id, None, reason=reason)


def _document(asked: Asked | None, last: Decision | None) -> str:
    if asked is not None:
        return asked.document_sha256
    return "" if last is None else last.document


def _unknown(run_id: str) -> InvalidConfig:
    return InvalidConfig(f"no run {run_id[:64]!r} waits here; 'fedplcc site pending' lists those that do")
