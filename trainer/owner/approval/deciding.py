"""The owner's decisions, as the command and the page ask for them: what waits, and what may be decided about a run."""

from __future__ import annotations

from typing import Any

from fedplcc.shared.errors import FailedPrecondition, InvalidConfig
from fedplcc.trainer.owner.approval.decisions import Decision, Ruling
from fedplcc.trainer.owner.approval.gate import EACH, MATCHING, SPENT, AwaitsApproval, refusal
from fedplcc.trainer.owner.approval.kept import Kept
from fedplcc.trainer.owner.approval.words import facts_of
from fedplcc.trainer.owner.in_force import policy_in_force

NO_DOCUMENT = "none"
"""In the place of a document: takes back the no to a run that had asked for none here."""


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
    found = []
    for asked in kept.all_asked():
        last, why = decisions.of(asked.run_id), refusal(asked, decisions, rule)
        if why is None and last is not None and rule in (MATCHING, EACH) and kept.is_spent(last):
            why = AwaitsApproval(SPENT)
        found += [facts_of(asked, why=why.detail)] if isinstance(why, AwaitsApproval) else []
    return found


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


def approve(kept: Kept, run_id: str, document: str) -> Decision:
    """Approve a run as it asks now; one that was withdrawn or rejected, as it asked then.

    Args:
        document: SHA-256 of the document that the owner has read: a run may ask for another one a moment later.
            `NO_DOCUMENT` takes back the no to a run that had asked for none, which allows no more than its policy does.

    Raises:
        InvalidConfig: No such run waits.
        FailedPrecondition: The document is another one.
        StoreUnavailable: The decision cannot be kept.
    """
    asked, last = kept.asked(run_id), kept.decisions().of(run_id)
    if asked is None and last is None:
        raise InvalidConfig(f"no run {run_id[:64]!r} waits here; 'fedplcc site pending' lists those that do")
    digest = "" if last is None else last.document
    if asked is not None:
        digest = asked.document_sha256
    if not digest and document != NO_DOCUMENT:
        raise FailedPrecondition(
            f"the no to run {run_id} was said before it asked for a document here: nothing was approved; to take the no "
            f"back, name the document {NO_DOCUMENT!r}: it then waits or goes on as any other run"
        )
    if digest and document.lower() != digest:
        raise FailedPrecondition(
            f"run {run_id} asks for the document {digest}, not {document[:64]!r}: nothing was approved; name the one that "
            "you have read, with all its digits"
        )
    return kept.decide(Ruling.APPROVED, run_id, asked)


def refuse(kept: Kept, run_id: str, reason: str = "") -> Decision:
    """Say no to a run: one that waits is rejected; in any other the site's part ends, also if it needed no approval.

    Raises:
        InvalidConfig: It is no id of a run, or the reason is too long.
        StoreUnavailable: The decision cannot be kept.
    """
    asked, last = kept.asked(run_id), kept.decisions().of(run_id)
    is_rejected = asked is not None or (last is not None and last.ruling is Ruling.REJECTED)
    return kept.decide(Ruling.REJECTED if is_rejected else Ruling.WITHDRAWN, run_id, asked, reason=reason)
