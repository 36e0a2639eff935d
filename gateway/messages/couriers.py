"""All lanes of the gateway, and tests of a receiver by hand. A receiver delays no other and no request."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from pathlib import Path

from fedplcc.gateway.caller_key import caller_key
from fedplcc.gateway.messages.attempt import attempt
from fedplcc.gateway.messages.lane import AGAIN_S, DELIVERED, FAILED, Lane
from fedplcc.gateway.messages.message import KIND_OF_TYPE, MessageKind, message_id, message_of
from fedplcc.gateway.messages.receivers import Receiver, Receivers
from fedplcc.gateway.messages.undelivered import Undelivered
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.errors import FedplccError, NotFound, Overloaded
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Event, EventQuery

AWAY = "client_lost"
NOW = tuple(name for name in KIND_OF_TYPE if name != AWAY)
"""Types of events that are told at once."""
FOLDER = "messages"
"""Folder of the places, in the gateway's state directory."""

log = get_logger("fedplcc.gateway.messages")


class Couriers:
    """Two lanes for each receiver: what is told at once, and who has been away for long."""

    def __init__(
        self,
        receivers: Receivers,
        state_dir: Path,
        *,
        source: Callable[[], tuple[str, RunServiceClient | None]],
        counted: Callable[[str], None],
    ) -> None:
        """Read the places; see `Lane`.

        Raises:
            InvalidConfig: A place cannot be read.
        """
        self._receivers, self._source, self._counted = receivers, source, counted
        self._tested: set[str] = set()
        folder = state_dir / FOLDER

        def lanes(receiver: Receiver) -> Sequence[Lane]:
            # Names may have dots: "ops" with these ends is no other receiver's file.
            now, away = (folder / f"{receiver.name}.{when}.json" for when in ("now", "away"))
            return (
                Lane(receiver, NOW, now, source=source, counted=counted),
                Lane(receiver, (AWAY,), away, source=source, counted=counted, delay_s=receiver.choice.away_s),
            )

        self._lanes = {name: lanes(receiver) for name, receiver in receivers.by_name.items()}
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin, on the event loop."""
        token = caller_key.set(self._receivers.key)  # each task takes it along
        work = [lane.run() for lane in self._all_lanes()]
        self._running = [asyncio.create_task(each) for each in (self._watch(), *work)]
        caller_key.reset(token)

    async def stop(self) -> None:
        """End. What is being sent and was not kept is sent again by the next start, with the same id."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _watch(self) -> None:
        """Wake the lanes when the history has what may be a message."""
        while True:
            _, history = self._source()
            with suppress(FedplccError):  # its call is in the log
                if history is not None:
                    newest = await history.list_events(EventQuery(newest_first=True, limit=1))
                    self._wake()
                    after = newest[0].sequence if newest else 0
                    async with aclosing(history.follow_events("", after=after)) as events:
                        async for event in events:
                            if event.type in KIND_OF_TYPE:
                                self._wake()
            await asyncio.sleep(AGAIN_S)

    def _wake(self) -> None:
        for lane in self._all_lanes():
            lane.changed.set()

    def _all_lanes(self) -> Iterator[Lane]:
        return (lane for lanes in self._lanes.values() for lane in lanes)

    @property
    def receivers(self) -> Sequence[tuple[Receiver, Sequence[Lane]]]:
        """The receivers with their lanes, by name."""
        return [(self._receivers.by_name[name], self._lanes[name]) for name in sorted(self._lanes)]

    async def test(self, name: str, caller: str) -> str:
        """Send a receiver a message by hand, once; return why it failed, or nothing.

        Raises:
            NotFound: There is no such receiver.
            Overloaded: A test of it is under way.
        """
        receiver = self._receivers.by_name.get(name)
        if receiver is None:
            raise NotFound(f"there is no receiver {name!r}")
        if name in self._tested:
            raise Overloaded(f"a test of {name} is under way; try again when it has ended")
        self._tested.add(name)
        message = message_of(MessageKind.TEST, Event(type="test", time=time.time()))
        failure = ""
        try:
            await attempt(receiver, message_id(secrets.token_hex(16), name, message), message)
        except Undelivered as error:
            failure = error.detail
        finally:
            self._tested.remove(name)
        self._counted(FAILED if failure else DELIVERED)
        log.info("message_tested", receiver=name, caller=caller, failure=failure)
        return failure
