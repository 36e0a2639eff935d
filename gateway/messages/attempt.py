"""One attempt to deliver a message, in a thread that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from fedplcc.gateway.messages import mail, webhook
from fedplcc.gateway.messages.message import Message
from fedplcc.gateway.messages.receivers import Receiver, Webhook
from fedplcc.gateway.messages.undelivered import SEND_S, Undelivered
from fedplcc.shared.process.failpoints import passing

LATE_S = 5.0
"""Time after which a thread is left alone that has not ended after `SEND_S`: it waits for the name of a host."""


async def attempt(receiver: Receiver, message_id: str, message: Message) -> None:
    """Deliver a message once.

    Raises:
        Undelivered: The receiver did not take it, or its answer was lost.
    """
    choice = receiver.choice

    def send() -> None:
        if isinstance(choice, Webhook):
            webhook.post(receiver, choice, message_id, message)
        else:
            mail.send(receiver, choice, message_id, message)

    with passing("message", "delivery"):
        try:
            async with asyncio.timeout(SEND_S + LATE_S):
                await _in_own_thread(send)
        except TimeoutError:
            raise Undelivered("no answer in time") from None
        except Undelivered:
            raise
        except Exception as error:  # a bug: the messages after this one shall come all the same
            raise Undelivered(f"an error in the gateway: {type(error).__name__}") from error


async def _in_own_thread(work: Callable[[], None]) -> None:
    """Wait for work in a thread of its own: a host that hangs takes no place in a pool that others need."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish(error: BaseException | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except Exception as raised:  # it is raised in the loop
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, error)

    threading.Thread(target=run, name="message", daemon=True).start()
    await done
