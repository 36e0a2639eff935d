"""A lane: the events of some types, told to one receiver in order, each once, across failures and restarts.

The aggregator's history is the queue: a lane holds a page of it, and its place in a file. A message's id is a function of
the event, so that what is sent again after a crash is the same message to its receiver.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fedplcc.gateway.messages.attempt import attempt
from fedplcc.gateway.messages.message import Message, MessageKind, kind_of, message_id, message_of
from fedplcc.gateway.messages.place import Place, keep_place, read_place
from fedplcc.gateway.messages.receivers import Receiver
from fedplcc.gateway.messages.undelivered import Undelivered
from fedplcc.gateway.messages.worst_domain import WorstDomains
from fedplcc.gateway.run_service import RunServiceClient
from fedplcc.shared.errors import FedplccError
from fedplcc.shared.process.log import get_logger
from fedplcc.shared.types import Event, EventQuery
from fedplcc.shared.wire.backoff import backoff

AGAIN_S = 5.0
"""Pause after a look that failed, and while there is no aggregator."""
IDLE_S = 300.0
"""Longest time between two looks at the history, should nobody say that something happened."""
PAGE = 100
"""Events of one look."""
FIRST_PAUSE_S, MOST_PAUSE_S = 1.0, 600.0
"""Shortest and longest pause between two attempts."""
KEEP_S = 86_400.0
"""Age at which a message that its receiver does not take is given up; each has one attempt."""
PASSED = 1000
"""Events that nobody was told of after which the place is kept all the same."""
MAX_REPEATS = 100
"""Earlier problems of a client that are looked at for the same request for approval."""
DELIVERED, FAILED, GIVEN_UP = ("delivered", "failed", "given_up")

log = get_logger("fedplcc.gateway.messages")


class Lane:
    """The events of some types for one receiver."""

    def __init__(
        self,
        receiver: Receiver,
        types: tuple[str, ...],
        file: Path,
        *,
        source: Callable[[], tuple[str, RunServiceClient | None]],
        counted: Callable[[str], None],
        delay_s: float = 0.0,
    ) -> None:
        """Read the lane's place.

        Args:
            source: Returns the federation's id and the connection to its aggregator; None while there is none.
            delay_s: Time after which an event is looked at.

        Raises:
            InvalidConfig: The place cannot be read.
        """
        self._receiver, self._types, self._file, self._delay_s = receiver, types, file, delay_s
        self._source, self._counted = source, counted
        self._worst = WorstDomains(receiver.choice.points)
        self._said = ""
        self.changed = asyncio.Event()
        """Set when the history has more."""
        self.place = read_place(file)
        self._kept_after = 0 if self.place is None else self.place.after
        self.failure = ""
        """Why the last attempt failed; empty where it did not."""

    async def run(self) -> None:
        """Tell what happens, until cancelled."""
        while True:
            self.changed.clear()
            try:
                pause_s = await self.look()
                self._said = ""
            except Exception as error:  # a lane that ended would be silent for ever
                pause_s = AGAIN_S
                self._say(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.changed.wait()

    async def look(self) -> float:
        """Tell what a page of the history says; return the seconds until the next look, should nothing happen."""
        federation, history = self._source()
        if history is None:
            return AGAIN_S
        newest = await history.list_events(EventQuery(newest_first=True, limit=1))
        last = newest[0].sequence if newest else 0
        place = self.place
        if place is None or place.federation != federation or place.after > last:
            # Nothing is known of this history, or it was restored: it is never told whole.
            if place is not None:
                log.warning("messages_begin_anew", receiver=self._receiver.name, before=place.after, after=last)
            self._worst = WorstDomains(self._receiver.choice.points)
            await self._keep(Place(federation, last))
            return IDLE_S
        if place.after == last:
            return IDLE_S
        page = await history.list_events(EventQuery(after=place.after, before=last + 1, types=self._types, limit=PAGE))
        for event in page:
            wait_s = event.time + self._delay_s - time.time()
            if wait_s > 0:
                return min(wait_s, IDLE_S)
            message = await self._message_of(event, history)
            if message is not None:
                await self._deliver(federation, message)
            await self._done_to(event.sequence)
        if len(page) < PAGE:
            await self._done_to(last)
        return IDLE_S if len(page) < PAGE else 0.0

    async def _message_of(self, event: Event, history: RunServiceClient) -> Message | None:
        """Return what is told of an event; None where its receiver is not told of it."""
        kind = kind_of(event)
        if kind is None or not self._receiver.choice.wants(kind, event):
            return None
        match kind:
            case MessageKind.WORST_DOMAIN_FALLS:
                facts = await self._worst.fall(event, history)
                return None if facts is None else message_of(kind, event, **facts)
            case MessageKind.CLIENT_AWAY if await _is_back(event, history):
                return None
            case MessageKind.APPROVAL_WANTED if await _was_asked(event, history):
                return None
        return message_of(kind, event)

    async def _deliver(self, federation: str, message: Message) -> None:
        """Deliver a message and keep that it was, or give it up when it is too old."""
        named = message_id(federation, self._receiver.name, message)
        pauses = backoff(random.Random(), first_s=FIRST_PAUSE_S, most_s=MOST_PAUSE_S)  # nosec B311 # no secret
        name, kind = self._receiver.name, message.kind.value
        while True:
            try:
                await attempt(self._receiver, named, message)
                outcome = DELIVERED
            except Undelivered as error:
                self.failure = error.detail
                is_old = time.time() > message.event.time + self._delay_s + KEEP_S
                outcome = GIVEN_UP if is_old else FAILED
                log.warning(
                    "message_not_delivered",
                    receiver=name,
                    message=named,
                    kind=kind,
                    detail=error.detail,
                    is_given_up=is_old,
                )
            self._counted(outcome)
            if outcome != FAILED:
                break
            await asyncio.sleep(next(pauses))
        if outcome == DELIVERED:
            self.failure = ""
            log.info("message_delivered", receiver=name, message=named, kind=kind)
            await self._done_to(message.event.sequence, kind)

    async def _done_to(self, sequence: int, delivered: str = "") -> None:
        """Move the place: durably after a delivery, and where much was passed that nobody was told of."""
        place = self.place
        assert place is not None
        if delivered:
            await self._keep(Place(place.federation, sequence, delivered, time.time()))
        elif sequence - self._kept_after >= PASSED:
            await self._keep(replace(place, after=sequence))
        else:
            self.place = replace(place, after=sequence)

    async def _keep(self, place: Place) -> None:
        """Keep the place; the lane does not go on before the disk has it."""
        for pause_s in backoff(random.Random(), first_s=FIRST_PAUSE_S):  # nosec B311 # no secret
            try:
                await asyncio.to_thread(keep_place, self._file, place)
            except OSError as error:
                self._say(error)
                await asyncio.sleep(pause_s)
            else:
                self.place, self._kept_after = place, place.after
                return

    def _say(self, error: Exception) -> None:
        """Log what keeps the lane, once."""
        detail = error.detail if isinstance(error, FedplccError) else str(error)
        if detail != self._said:
            self._said = detail
            log.warning("messages_wait", receiver=self._receiver.name, detail=detail)


async def _is_back(event: Event, history: RunServiceClient) -> bool:
    """Whether a lost client is here, was lost again since, or is no member any more."""
    again = EventQuery(after=event.sequence, types=(event.type,), client_id=event.client_id, limit=1)
    if await history.list_events(again):
        return True
    after = ""
    while page := await history.list_clients(after=after, limit=PAGE):
        after = page[-1].client_id
        if after >= event.client_id:
            found = next((each for each in page if each.client_id == event.client_id), None)
            return found is None or found.is_connected or found.is_revoked
    return True


async def _was_asked(event: Event, history: RunServiceClient) -> bool:
    """Whether the same client has waited for the same approval before, as after each start of its trainer."""
    query = EventQuery(
        run_id=event.run_id,
        before=event.sequence,
        types=(event.type,),
        client_id=event.client_id,
        newest_first=True,
        limit=MAX_REPEATS,
    )
    return any(kind_of(each) is MessageKind.APPROVAL_WANTED for each in await history.list_events(query))
