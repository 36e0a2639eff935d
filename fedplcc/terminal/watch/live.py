"""The shell of watching: follows a run through a gateway, asks now and then what its clients do, and redraws the screen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

from rich.console import Console

from fedplcc.remote.rest_client import PATIENCE_S, Gateway
from fedplcc.terminal.watch.full_screen import FullScreen
from fedplcc.terminal.watch.glyphs import glyphs_for
from fedplcc.terminal.watch.screen import Screen
from fedplcc.terminal.watch.view import view
from fedplcc.terminal.watch.watched_run import WatchedRun
from shared.documents import Run
from shared.errors import FedplccError

CLIENTS_S = 2.0
"""How often the list of clients is asked for at most; a federation whose answer takes long is asked less often."""
CLIENTS_SHARE = 0.1
"""Most of the time that may go into asking for it."""
REDRAW_S = 0.15
"""Shortest time between two drawings: a history that is caught up with is not shown event by event."""
CLOCK_S = 1.0
"""Longest time between two: what says how long something has lasted goes on."""


def screen_console() -> Console:
    """The terminal of stdout, for full screens, as wide and high as it is.

    A shell or a parent process may have exported the size of an earlier moment, which no resizing would change.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    return Console(highlight=False, markup=False, emoji=False, _environ=environment)


class LiveWatch:
    """One run that is watched on a terminal."""

    def __init__(self, gateway: Gateway, run: Run, console: Console, environment: Mapping[str, str]) -> None:
        """Prepare to watch.

        Args:
            gateway: Where the run is.
            run: As it is now.
            console: A terminal.
            environment: Variables of the process, for what the terminal can show.
        """
        self.watched = WatchedRun.of(run)
        self._gateway, self._console = gateway, console
        self._glyphs = glyphs_for(console.encoding, environment)
        self._changed = asyncio.Event()
        self._reconnecting = ""

    async def until_end(self) -> Run:
        """Show the run until it has ended; returns it as it is then. When it is cancelled, the terminal is as it was too.

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
        size = self._console.size
        screen = Screen(size.width, size.height, self._glyphs)
        shown.draw(view(self.watched, screen, now=datetime.now(UTC), where=self._gateway.url))

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
        """Stop this process as Ctrl-Z does, with the terminal as it was, and show the run again when it goes on."""
        loop = asyncio.get_running_loop()
        shown.leave()
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here it goes on, after SIGCONT.
        loop.add_signal_handler(signal.SIGTSTP, self._suspend, shown)
        shown.enter()
        self._changed.set()


def reconnecting(now: datetime) -> str:
    """What is said while events do not come: since when, and until when that is put up with."""
    return f"reconnecting since {now:%H:%M:%S}, until {now + timedelta(seconds=PATIENCE_S):%H:%M}"
