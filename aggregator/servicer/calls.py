"""Steps of an RPC: calls of the blocking coordinator in threads, and waits that have a limit."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeAlias, TypeVar

import grpc.aio

from shared.errors import TransferIdle

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_P = ParamSpec("_P")
_T = TypeVar("_T")


CONTROL_CALLS = 4
"""Threads for the calls that watch and steer runs: they never wait for one of a thousand trainers' calls."""
_control = ThreadPoolExecutor(CONTROL_CALLS, "control")


async def control_call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do the same as `call` in threads of their own."""
    return await in_thread(_control, function, *args, **kwargs)


async def in_thread(threads: ThreadPoolExecutor, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do the same as `call` in one of these threads."""
    context = contextvars.copy_context()
    work = functools.partial(context.run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(threads, work)


async def call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call blocking code of the coordinator in a thread; the event loop only moves bytes and wakes streams."""
    return await asyncio.to_thread(function, *args, **kwargs)


async def in_time(step: Awaitable[_T], what: str, idle_s: float) -> _T:
    """Wait for one step of a transfer, for `idle_s` seconds at most; a transfer's total time has no limit.

    Raises:
        TransferIdle: the step took longer.
    """
    try:
        async with asyncio.timeout(idle_s):
            return await step
    except TimeoutError as error:
        raise TransferIdle(f"{what} nothing for {idle_s:g} s") from error
