"""Watching where no screen can be drawn: a line per round, and one now and then that says what the run waits for.

Files, pipes and the logs of schedulers get these lines. While nothing happens they become rarer, so that a run that waits
over a weekend fills no log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from fedplcc.remote.rest_client import Gateway
from fedplcc.terminal.progress import RunProgress, standing_line
from shared.documents import Event, Run
from shared.errors import FedplccError

MINUTE_S = 60.0
"""A run of which nothing was said for so long is asked after."""
RAREST = 15
"""Longest time between two such lines, in minutes; the first come after 1, 3, 7 and 15."""


class LineWatch:
    """One run that is watched line by line."""

    def __init__(
        self,
        gateway: Gateway,
        run_id: str,
        progress: RunProgress,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare to watch.

        Args:
            gateway: Where the run is.
            run_id: Which run.
            progress: Where the lines go.
            sleep: How to wait, for tests.
        """
        self._gateway, self._run_id, self._progress, self._sleep = gateway, run_id, progress, sleep
        self._phase_began_at: datetime | None = None
        self._trouble = ""

    async def until_end(self) -> Run:
        """Tell of the run until it has ended; returns it as it is then.

        Raises:
            FedplccError: The gateway refuses, or was away for too long.
        """
        # A bar moves, and shows how long it has been doing what.
        telling = None if self._progress.has_bar else asyncio.create_task(self._tell_now_and_then())
        try:
            return await self._follow()
        finally:
            if telling is not None:
                telling.cancel()
                with suppress(asyncio.CancelledError):  # it ends otherwise by a bug only
                    await telling

    async def _follow(self) -> Run:
        run: Run | None = None
        async with aclosing(self._gateway.follow(self._run_id, on_trouble=self._troubled)) as items:
            async for item in items:
                if isinstance(item, Run):
                    run = item
                else:
                    self._take(item)
        assert run is not None
        return run

    def _take(self, event: Event) -> None:
        if event.type.startswith("round_"):
            self._phase_began_at = event.time
        self._progress.event(event)

    def _troubled(self, why: str) -> None:
        self._trouble = why

    async def _tell_now_and_then(self) -> None:
        known, quiet, due = self._progress.num_lines, 0, 1
        while True:
            await self._sleep(MINUTE_S)
            if self._progress.num_lines != known:
                known, quiet, due = self._progress.num_lines, 0, 1
                continue
            quiet += 1
            if quiet >= due:
                line = await self._standing()
                if self._progress.num_lines == known:  # else something came meanwhile
                    self._progress.note(line)
                known = self._progress.num_lines
                due = quiet + min(quiet + 1, RAREST)

    async def _standing(self) -> str:
        if self._trouble:
            return self._trouble
        try:
            run = await self._gateway.get_run(self._run_id)
            rounds, clients = await self._gateway.last_rounds(run), await self._gateway.list_clients(attempts=1)
        except FedplccError as error:
            return error.detail
        began = self._phase_began_at
        since = None if began is None else (datetime.now(UTC) - began).total_seconds()
        return standing_line(run, rounds, clients, since)
