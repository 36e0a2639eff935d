"""Runs that certain callers began: found by the aggregator's audit, and stopped one after the other."""

from __future__ import annotations

from collections.abc import Collection

from fedplcc.gateway_client.clients import AsyncGateway, pages
from fedplcc.shared.documents import Run
from fedplcc.shared.identity.audit_chain import DONE
from fedplcc.shared.run_lists import OPEN_STATUSES

MAX_RUNS = 100_000
"""Most open runs that are looked at."""


async def stop_runs_of(there: AsyncGateway, callers: Collection[str], *, reason: str) -> list[Run]:
    """Stop every open run that one of the callers began, named as in the audit; return the runs.

    Raises:
        ScopeMissing: The caller's own key may not read the audit (`admin`).
    """
    page = await there.first_runs(MAX_RUNS, show="all", status=[status.value for status in OPEN_STATUSES])
    is_open = {run.run_id for run in page.runs}
    begun = await _begun_by(there, callers) if is_open else []
    return [await there.stop_run(run_id, reason=reason) for run_id in begun if run_id in is_open]


async def _begun_by(there: AsyncGateway, callers: Collection[str]) -> list[str]:
    begun = [
        entry.target
        async for page in pages(there.list_audit, page_size=1000)
        for entry in page.entries
        if entry.method == "CreateRun" and entry.outcome == DONE and entry.caller in callers and entry.target
    ]
    return list(dict.fromkeys(begun))
