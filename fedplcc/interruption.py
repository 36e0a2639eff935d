"""Ctrl-C and SIGTERM as a wish to end: work stops at the next good moment, a second signal stops it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)

Result = TypeVar("Result")

_interrupted = threading.Event()


class Interrupted(Exception):
    """Somebody pressed Ctrl-C or sent SIGTERM; the text, if any, says what is left and how to go on."""


def note_interrupts() -> None:
    """From here on Ctrl-C is remembered besides raising `KeyboardInterrupt`; for the main thread."""

    def interrupt(number: int, frame: Any) -> None:
        _interrupted.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)


def was_interrupted() -> bool:
    """Whether Ctrl-C came. Libraries that are just being loaded turn a `KeyboardInterrupt` into errors of their own."""
    return _interrupted.is_set()


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Within the block, in the main thread, a signal sets the event; another one interrupts as signals do otherwise."""
    wished = threading.Event()
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def wish(number: int, frame: object) -> None:
        wished.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in SIGNALS:
        signal.signal(number, wish)
    try:
        yield wished
    finally:
        restore()


def run_interruptibly(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in an event loop of its own; a signal cancels it, so that it can put things in order.

    Raises:
        Interrupted: A signal came before it had ended.
    """
    import asyncio  # not for --help

    async def main() -> Result:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)
        return await task

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise Interrupted from None
