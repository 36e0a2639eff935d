"""Wakeups: streams wait here until the coordinator changes something that concerns them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from weakref import WeakValueDictionary


class TaskStream:
    """A client's open stream of tasks, on the event loop's thread."""

    def __init__(self) -> None:
        self.is_superseded = False
        """Whether the same instance has opened a newer one."""
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """End the wait, or the next one if nobody waits."""
        self._woken.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until the task may have changed since the last wait, `timeout_s` seconds at most."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()


class Wakeups:
    """Streams that wait for a change; `notify` may be called from any thread, the rest on the event loop's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._streams: dict[str, TaskStream] = {}
        self._grown = WeakValueDictionary[str, asyncio.Event]()
        """What those wait for who read the history of a run, or of all under ""; each keeps its own alive."""
        self.is_closing = False

    def notify(self, tasks_of: Collection[str], runs: Collection[str]) -> None:
        """Wake the streams of the clients whose task may have changed, and those that wait for events of these runs."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, tasks_of, runs)

    def close(self) -> None:
        """Wake every stream for the last time, so that it ends with a reason."""
        self.is_closing = True
        self._wake(list(self._streams), list(self._grown))

    def open_stream(self, client_id: str) -> TaskStream:
        """Return a new stream of a client's tasks, which supersedes its older one."""
        older = self._streams.get(client_id)
        if older is not None:
            older.is_superseded = True
            older.wake()
        stream = self._streams[client_id] = TaskStream()
        return stream

    def close_stream(self, client_id: str, stream: TaskStream) -> None:
        """Forget a stream."""
        if self._streams.get(client_id) is stream:
            del self._streams[client_id]

    def events(self, run_id: str) -> asyncio.Event:
        """Return an event that is set when the history of a run, of any for "", may have grown after this call."""
        return self._grown.setdefault(run_id, asyncio.Event())

    def _wake(self, tasks_of: Collection[str], runs: Collection[str]) -> None:
        for run_id in {*runs, *([""] if runs else [])}:
            grown = self._grown.pop(run_id, None)
            if grown is not None:
                grown.set()
        for client_id in tasks_of:
            stream = self._streams.get(client_id)
            if stream is not None:
                stream.wake()
