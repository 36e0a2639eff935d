"""Wakeups: streams wait here until the coordinator changes something."""

from __future__ import annotations

import asyncio


class Wakeups:
    """Events that wake waiting streams after a change; `notify` may be called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks, self._events = asyncio.Event(), asyncio.Event()
        self.is_closing = False

    def notify(self, tasks_changed: bool) -> None:
        """Wake the streams that wait for events; also those that wait for tasks, if tasks may have changed."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, tasks_changed)

    def close(self) -> None:
        """Wake every stream for the last time, so that it ends with a reason."""
        self.is_closing = True
        self._wake(True)

    def tasks(self) -> asyncio.Event:
        """Return an event that is set when tasks may have changed after this call."""
        return self._tasks

    def events(self) -> asyncio.Event:
        """Return an event that is set when the history may have grown after this call."""
        return self._events

    def _wake(self, tasks_changed: bool) -> None:
        self._events.set()
        self._events = asyncio.Event()
        if tasks_changed:
            self._tasks.set()
            self._tasks = asyncio.Event()


async def first_of(*events: asyncio.Event, timeout_s: float) -> None:
    """Wait until one of the events is set, `timeout_s` seconds at most."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
