"""Refused updates, counted by client, and the quarantine that follows. Pure.

An update that is wrong in itself (numbers, layout, counts, size) speaks against its sender; one that is late, stale or was
never asked for speaks of the network. Only the first kind is counted here, with the run, so that a restart forgets nothing.
"""

from __future__ import annotations

from dataclasses import replace

from shared.errors import FedplccError, MalformedUpdate
from shared.types import Rejections, Run

MAX_DETAIL = 200
"""Most characters kept of a refusal's sentence."""
MAX_CLIENTS = 1000
"""Most clients with refusals on record; the longest ago is forgotten first."""


def speaks_against_sender(error: FedplccError) -> bool:
    """Whether an update was refused for its content, not for the time it came."""
    return isinstance(error, MalformedUpdate)


def reject(run: Run, client_id: str, number: int, error: FedplccError, *, now: float) -> Run:
    """Return the run with one more refused update of a client.

    Args:
        run: The run.
        client_id: Who sent it.
        number: The round that it was for.
        error: Why it was refused.
        now: When; seconds since the epoch.
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
        run: The run.
        client_id: Whose update was just refused.
        quarantine_after: The configuration's `admission.quarantine_after`.
    """
    refused = run.rejections.get(client_id)
    if quarantine_after is None or refused is None or refused.count < quarantine_after:
        return None
    what = "1 update was" if refused.count == 1 else f"{refused.count} updates were"
    return f"{what} refused, the last one because {refused.detail}"
