"""The last heads of the aggregator's audit, kept in the trainer's state directory as a witness.

Who cuts the end of the audit, or writes it anew, cannot change what sites have seen.
"""

from __future__ import annotations

import threading
from pathlib import Path

from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.identity.audit_chain import MOST_HEADS, AuditHead, heads_from_text, heads_to_text
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger

log = get_logger("trainer.audit")

HEADS_FILE = "audit-heads"
"""File in the state directory: a line of number and hash for each of the last heads."""


class AuditWitness:
    """Keeps the heads that the aggregator sends with its answers to Join."""

    def __init__(self, state_dir: Path) -> None:
        """Go on with the file of the state directory; one that cannot be read begins anew."""
        self._file = state_dir / HEADS_FILE
        self._lock = threading.Lock()
        self._heads = _kept(self._file)

    def saw(self, head: AuditHead | None) -> None:
        """Keep a head unless it is the last one; any thread may call it. A disk that refuses stops nothing."""
        with self._lock:
            self._keep(head)

    def _keep(self, head: AuditHead | None) -> None:
        last = self._heads[-1] if self._heads else None
        if head is None or head == last:
            return
        if last is not None and head.number <= last.number:
            # A restored backup does this, and so does who hides what was recorded.
            log.warning("audit_went_back", number=head.number, known=last.number)
        heads = [*self._heads, head][-MOST_HEADS:]
        try:
            disk.replace_file(self._file, heads_to_text(heads).encode("ascii"), "trainer.audit_heads")
        except OSError as error:
            log.warning("audit_head_not_kept", detail=str(error))
            return
        self._heads = heads


def _kept(file: Path) -> list[AuditHead]:
    try:
        return heads_from_text(file.read_text(encoding="ascii"))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, MalformedRequest) as error:
        log.warning("audit_heads_unreadable", detail=str(error))
        return []
