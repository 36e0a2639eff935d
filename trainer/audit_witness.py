"""The last heads of the aggregator's audit, kept in the trainer's state directory as a witness.

Who cuts the end of the audit, or writes it anew, cannot change what sites have seen, nor have them forget it within days: of
heads that come too often, as by joining again and again, the newest takes the place of the one before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fedplcc.shared.errors import MalformedRequest
from fedplcc.shared.identity.audit_chain import MOST_HEADS, AuditHead, heads_from_text, heads_to_text
from fedplcc.shared.process import disk
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.wire.serving.token_buckets import TokenBuckets

log = get_logger("trainer.audit")

HEADS_FILE = "audit-heads"
"""File in the state directory: a line of number and hash for each of the last heads."""
EACH_S, AT_ONCE = 3600.0, 16.0
"""Time that a head takes to earn its own line, and most lines that are earned beforehand."""


class AuditWitness:
    """Keeps the heads that the aggregator sends with its answers to Join."""

    def __init__(self, state_dir: Path, clock: Callable[[], float] = time.time) -> None:
        """Go on with the file of the state directory; one that cannot be read begins anew.

        Args:
            clock: Seconds since the epoch, as of the file's time: a restart earns nothing.
        """
        self._file, self._clock = state_dir / HEADS_FILE, clock
        self._lock = threading.Lock()
        self._heads = _kept(self._file)
        since = self._file.stat().st_mtime if self._heads else clock() - AT_ONCE * EACH_S
        self._earned, self._since = 0.0, since
        self._said = TokenBuckets(1 / EACH_S, AT_ONCE)

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
            level = logging.DEBUG if self._said.take("back") else logging.WARNING
            log.log(level, "audit_went_back", number=head.number, known=last.number)
        earned = min(AT_ONCE, self._earned + max(0.0, self._clock() - self._since) / EACH_S)
        has_line = earned >= 1 or len(self._heads) < AT_ONCE
        heads = [*(self._heads if has_line else self._heads[:-1]), head][-MOST_HEADS:]
        try:
            disk.replace_file(self._file, heads_to_text(heads).encode("ascii"), "trainer.audit_heads")
        except OSError as error:
            log.warning("audit_head_not_kept", detail=str(error))
            return
        self._heads, self._earned, self._since = heads, max(0.0, earned - has_line), self._clock()


def _kept(file: Path) -> list[AuditHead]:
    try:
        return heads_from_text(disk.read_regular(file).decode("ascii"))
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError, MalformedRequest) as error:
        log.warning("audit_heads_unreadable", detail=str(error))
        return []
