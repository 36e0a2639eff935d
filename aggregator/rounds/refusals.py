"""Refused updates, counted by client, and the quarantine that follows. Pure.

Only updates with wrong content (numbers, layout, counts, size) count against their sender. Late, stale or unrequested
updates do not: their cause may be the network. The counts are part of the run's record and survive a restart.
"""

from __future__ import annotations

from dataclasses import replace

from fedplcc.shared.errors import FedplccError, MalformedUpdate
from fedplcc.shared.types import Rejections, Run

MAX_DETAIL = 200
"""Most characters of a refusal's sentence that are kept."""
MAX_CLIENTS = 1000
"""Most clients with refusals on record; the oldest record is removed first."""


def speaks_against_sender(error: FedplccError) -> bool:
    """Whether an update was refused for its content, not for its time of arrival."""
    return isinstance(error, MalformedUpdate)


def reject(run: Run, client_id: str, number: int, error: FedplccError, *, now: float) -> Run:
    """Return the run with one more refused update of a client.

    Args:
        now: Time in seconds since the epoch.
    """
    known = run.rejections.get(client_id)
    refused = Rejections(
        count=1 if known is None else known.count + 1,
        reason=error.reason,
        check=error.metadata.get("check", ""),
        detail=error.detail[:MAX_DETAIL],
        round=number,
        last_at=now,
    )
    others = sorted(
        (name for name in run.rejections if name != client_id), key=lambda name: (run.rejections[name].last_at, name)
    )
    kept = {name: run.rejections[name] for name in sorted(others[-(MAX_CLIENTS - 1) :])}
    return replace(run, rejections={**kept, client_id: refused})


def why_quarantined(run: Run, client_id: str, quarantine_after: int | None) -> str | None:
    """Return the reason to quarantine a client now, or None.

    Args:
        client_id: The sender of the update that was just refused.
    """
    refused = run.rejections.get(client_id)
    if quarantine_after is None or refused is None or refused.count < quarantine_after:
        return None
    what = "1 update was" if refused.count == 1 else f"{refused.count} updates were"
    return f"{what} refused, the last one because {refused.detail}"
