"""Threads for blocking work of many callers, of which each caller holds a share at most."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from fedplcc.shared.identity.principals import current_principal
from fedplcc.shared.wire.serving.places import Places

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Threads:
    """Threads for one kind of work, on one event loop at a time."""

    def __init__(self, most: int, name: str, *, at_once: int, waiting: int) -> None:
        """Prepare the threads; they start when they are needed.

        Args:
            at_once: Threads that one caller's work may occupy.
            waiting: Pieces of work of one caller that may wait for those; others' never wait behind them.
        """
        self._threads = ThreadPoolExecutor(most, name)
        self._places = Places(at_once, waiting, f"calls ({name})")

    async def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function in a thread, within the share of who makes the call that is being answered.

        Raises:
            Overloaded: Too much of the caller's work waits.
        """
        return await self.call_for(current_principal.get().share, function, *args, **kwargs)

    async def call_for(
        self, caller: Hashable | None, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Do the same within the share of this caller; None is nobody's."""
        free = await self._places.take(caller)
        try:
            context = contextvars.copy_context()
            work = self._threads.submit(context.run, functools.partial(function, *args, **kwargs))
        except BaseException:
            free()
            raise
        try:
            return await asyncio.wrap_future(work)
        finally:
            # Who gives up keeps the place for as long as a thread works for it.
            if work.cancel() or work.done():
                free()
            else:
                loop = asyncio.get_running_loop()
                work.add_done_callback(lambda _: _soon(loop, free))


def _soon(loop: asyncio.AbstractEventLoop, free: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop has ended, and its places with it
        loop.call_soon_threadsafe(free)
