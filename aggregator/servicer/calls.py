"""Steps of an RPC: calls of the blocking coordinator in threads, and waits that have a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import grpc.aio

from fedplcc.shared.errors import TransferIdle
from fedplcc.shared.wire.serving.threads import Threads

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_P = ParamSpec("_P")
_T = TypeVar("_T")


CALLS, CALLS_OF_A_CALLER = 16, 4
"""Threads for trainers' calls, and those that one trainer's may occupy."""
CONTROL_CALLS, CONTROL_CALLS_OF_A_CALLER = 6, 3
"""Threads for the calls that watch and steer runs, which never wait for one of a thousand trainers' calls; and those that
one key's or certificate's may occupy."""
WAITING = 512
"""Calls of one caller that may wait for its threads: more than it may have streams open."""
_calls = Threads(CALLS, "call", at_once=CALLS_OF_A_CALLER, waiting=WAITING)
_control = Threads(CONTROL_CALLS, "control", at_once=CONTROL_CALLS_OF_A_CALLER, waiting=WAITING)


async def call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call blocking code of the coordinator in a thread; the event loop only moves bytes and wakes streams.

    Raises:
        Overloaded: Too many calls of this caller wait.
    """
    return await _calls.call(function, *args, **kwargs)


async def control_call(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do the same as `call` in threads of their own."""
    return await _control.call(function, *args, **kwargs)


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
