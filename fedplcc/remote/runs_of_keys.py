"""Runs that certain keys began: found by the aggregator's audit, and stopped one after the other."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from fedplcc.shared.documents import AuditPage
from fedplcc.shared.identity.audit_chain import DONE
from fedplcc.shared.identity.principals import Principal
from fedplcc.shared.run_lists import OPEN_STATUSES

if TYPE_CHECKING:
    from fedplcc.remote.rest_client import Gateway
    from fedplcc.shared.documents import Run

MAX_RUNS = 100_000
"""Most open runs that are looked at."""


async def stop_runs_of_keys(there: Gateway, key_ids: Collection[str], *, reason: str) -> list[Run]:
    """Stop every open run that one of the keys began; return the runs.

    Raises:
        ScopeMissing: The caller's own key may not read the audit (`admin`).
    """
    page = await there.list_runs(limit=MAX_RUNS, show="all", status=[status.value for status in OPEN_STATUSES])
    is_open = {run.run_id for run in page.runs}
    begun = await _begun_by(there, {Principal(key_id=key_id).caller for key_id in key_ids}) if is_open else []
    return [await there.stop(run_id, reason=reason) for run_id in begun if run_id in is_open]


async def _begun_by(there: Gateway, callers: Collection[str]) -> list[str]:
    found, asked = list[str](), dict[str, Any](page_size=1000)
    while True:
        answer = await there.request("GET", "/v1/audit", params=asked)
        page = AuditPage.model_validate_json(answer.content)
        found += [
            entry.target
            for entry in page.entries
            if entry.method == "CreateRun" and entry.outcome == DONE and entry.caller in callers and entry.target
        ]
        if page.next_page_token is None:
            return list(dict.fromkeys(found))
        asked["page_token"] = page.next_page_token
