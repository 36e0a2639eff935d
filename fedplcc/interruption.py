"""Ctrl-C and SIGTERM: the first signal ends work in order, the second one at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Result = TypeVar("Result")

_interrupted = threading.Event()


class Interrupted(Exception):
    """Ctrl-C or SIGTERM ended the work; the text, if any, says what was kept and how to continue."""


def note_interrupts() -> None:
    """Have Ctrl-C remembered besides raising `KeyboardInterrupt`. Call it in the main thread."""

    def interrupt(number: int, frame: Any) -> None:
        _interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)


def was_interrupted() -> bool:
    """Whether Ctrl-C came. A library that is being loaded may translate or drop the `KeyboardInterrupt`."""
    return _interrupted.is_set()


def end_if_interrupted() -> None:
    """Check, before work begins, that Ctrl-C did not come while libraries were loaded.

    Raises:
        Interrupted: It came.
    """
    if was_interrupted():
        raise Interrupted


@contextmanager
def interruptible(signals: Sequence[signal.Signals] = SIGNALS) -> Iterator[threading.Event]:
    """Yield an event that the first signal sets; a second signal has its usual effect. For the main thread.

    Raises:
        Interrupted: Ctrl-C came before the block.
    """
    end_if_interrupted()
    is_interrupted = threading.Event()
    before = {number: signal.getsignal(number) for number in signals}

    def interrupt(number: int, frame: object) -> None:
        is_interrupted.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in signals:
        signal.signal(number, interrupt)
    try:
        yield is_interrupted
    finally:
        restore()


@contextmanager
def interruptible_by_ctrl_c() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C sets, within a program of somebody else's: SIGTERM stays its own, and a thread that is not
    the main one gets no signal.

    Raises:
        Interrupted: Ctrl-C came before the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    with interruptible((signal.SIGINT,)) as is_interrupted:
        yield is_interrupted


def run_interruptibly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in an event loop of its own; a signal cancels it, so that it can clean up.

    Raises:
        Interrupted: A signal came before the coroutine ended.
    """
    import asyncio  # not for --help

    async def main() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        end_if_interrupted()
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise Interrupted from None
    finally:
        work.close()
