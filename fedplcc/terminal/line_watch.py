"""A run in lines, for files, pipes and logs of schedulers: a line per round, and status lines in between.

While nothing happens, status lines become rarer: a run that waits over a weekend fills no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from fedplcc.gateway_client.clients import AsyncGateway
from fedplcc.shared.documents import Run
from fedplcc.shared.errors import FedplccError
from fedplcc.terminal.progress import RunProgress
from fedplcc.terminal.run_lines import status_line

MINUTE_S = 60.0
"""Seconds without a line after which the run's state is asked for."""
MAX_MINUTES = 15
"""Longest time between two status lines; the first come after 1, 3, 7 and 15 minutes."""


class LineWatch:
    """One run, line by line."""

    def __init__(
        self,
        gateway: AsyncGateway,
        run_id: str,
        progress: RunProgress,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._gateway, self._run_id, self._progress, self._sleep = gateway, run_id, progress, sleep
        self._trouble = ""

    async def until_end(self) -> Run:
        """Print the run until it has ended; returns its last document.

        Raises:
            FedplccError: The gateway refuses, or was away for too long.
        """
        # A bar needs no status lines: it moves.
        reporting = None if self._progress.has_bar else asyncio.create_task(self._report_status())
        try:
            return await self._follow()
        finally:
            if reporting is not None:
                reporting.cancel()
                with suppress(asyncio.CancelledError):  # it ends otherwise by a bug only
                    await reporting

    async def _follow(self) -> Run:
        run: Run | None = None
        async with aclosing(self._gateway.follow(self._run_id, on_trouble=self._troubled)) as items:
            async for item in items:
                if isinstance(item, Run):
                    run = item
                else:
                    self._progress.event(item)
        assert run is not None
        return run

    def _troubled(self, why: str) -> None:
        self._trouble = why

    async def _report_status(self) -> None:
        known, quiet, due = self._progress.num_lines, 0, 1
        while True:
            await self._sleep(MINUTE_S)
            if self._progress.num_lines != known:
                known, quiet, due = self._progress.num_lines, 0, 1
                continue
            quiet += 1
            if quiet >= due:
                line = await self._status()
                if self._progress.num_lines == known:  # else something came meanwhile
                    self._progress.note(line)
                known = self._progress.num_lines
                due = quiet + min(quiet + 1, MAX_MINUTES)

    async def _status(self) -> str:
        if self._trouble:
            return self._trouble
        try:
            run = await self._gateway.get_run(self._run_id)
            rounds, clients = await self._gateway.last_rounds(run), await self._gateway.all_clients()
        except FedplccError as error:
            return error.detail
        began = self._progress.run.phase_began_at
        since = None if began is None else (datetime.now(UTC) - began).total_seconds()
        return status_line(run, rounds, clients, since)
