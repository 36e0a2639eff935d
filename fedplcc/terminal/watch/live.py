"""A full screen that follows a run through a gateway: reads its events, polls its clients and redraws."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from rich.console import Console

from fedplcc.remote.rest_client import PATIENCE_S, Gateway
from fedplcc.terminal.run_history import RunHistory
from fedplcc.terminal.watch.full_screen import FullScreen
from fedplcc.terminal.watch.screen import WatchScreen
from shared.documents import Run
from shared.errors import FedplccError

CLIENTS_S = 2.0
"""Shortest pause between two requests for the list of clients."""
CLIENTS_SHARE = 0.1
"""Largest share of the time that such requests may take: a slow federation is asked less often."""
REDRAW_S = 0.15
"""Shortest time between two drawings: a past history is not shown event by event."""
CLOCK_S = 1.0
"""Longest time between two drawings: the durations on the screen go on."""


class LiveWatch:
    """One run on a full screen."""

    def __init__(self, gateway: Gateway, run: Run, console: Console) -> None:
        """Prepare to watch.

        Args:
            gateway: Where the run is.
            run: As it is now.
            console: A terminal.
        """
        self.watched = RunHistory.of(run)
        self._gateway, self._console = gateway, console
        self._changed = asyncio.Event()
        self._reconnecting = ""

    async def until_end(self) -> Run:
        """Show the run until it has ended; returns its last document. The terminal is restored, also after a cancellation.

        Raises:
            FedplccError: The gateway refuses, or was away for too long.
        """
        loop = asyncio.get_running_loop()
        following = asyncio.create_task(self._follow())
        asking = asyncio.create_task(self._ask_for_clients())
        try:
            with FullScreen(self._console) as shown:
                loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
                loop.add_signal_handler(signal.SIGTSTP, self._suspend, shown)
                await self._draw_until(shown, following, asking)
            return following.result()
        finally:
            for number in (signal.SIGWINCH, signal.SIGTSTP):
                loop.remove_signal_handler(number)
            for task in (following, asking):
                task.cancel()
            await asyncio.gather(following, asking, return_exceptions=True)

    async def _draw_until(self, shown: FullScreen, following: asyncio.Task[Run], asking: asyncio.Task[None]) -> None:
        while not following.done():
            if asking.done():
                asking.result()  # it ends by a bug only
            self._changed.clear()
            self._draw(shown)
            waking = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.sleep(REDRAW_S)
                await asyncio.wait(
                    (waking, following, asking), timeout=CLOCK_S - REDRAW_S, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                waking.cancel()
        self._draw(shown)

    def _draw(self, shown: FullScreen) -> None:
        shown.draw(WatchScreen(run=self.watched, now=datetime.now(UTC), where=self._gateway.url))

    async def _follow(self) -> Run:
        run: Run | None = None
        async with aclosing(self._gateway.follow(self.watched.run_id, on_trouble=self._troubled)) as items:
            async for item in items:
                if isinstance(item, Run):
                    run = item
                else:
                    self.watched.take(item)
                    self._changed.set()
        assert run is not None
        return run

    def _troubled(self, why: str) -> None:
        now = datetime.now().astimezone()
        self._reconnecting = (self._reconnecting or reconnecting(now)) if why else ""
        self.watched.connection_trouble = f"{self._reconnecting}: {why}" if why else ""
        self._changed.set()

    async def _ask_for_clients(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            begin = clock()
            try:
                self.watched.take_clients(await self._gateway.list_clients(attempts=1))
            except FedplccError as error:
                self.watched.clients_trouble = error.detail
            self._changed.set()
            await asyncio.sleep(max(CLIENTS_S, (clock() - begin) / CLIENTS_SHARE))

    def _suspend(self, shown: FullScreen) -> None:
        """Restore the terminal, stop this process as Ctrl-Z does, and show the run again when the process continues."""
        loop = asyncio.get_running_loop()
        shown.leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        # After SIGCONT.
        loop.add_signal_handler(signal.SIGTSTP, self._suspend, shown)
        shown.enter()
        self._changed.set()


def reconnecting(now: datetime) -> str:
    """The beginning of the message while no events come: since when, and when watching gives up."""
    return f"reconnecting since {now:%H:%M:%S}, until {now + timedelta(seconds=PATIENCE_S):%H:%M}"
