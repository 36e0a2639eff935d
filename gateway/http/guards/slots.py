"""Limits on what happens at the same time, so that no caller makes another one wait or fills the memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fedplcc.gateway.caller_key import caller_key
from fedplcc.shared.errors import Overloaded
from fedplcc.shared.wire.serving.threads import Threads

Answer = TypeVar("Answer")


class Slots:
    """A number of places, of which each key gets a share; who finds none is refused at once. Without keys anyone is one."""

    def __init__(self, most: int, refusal: str, share: int = 0) -> None:
        """Offer `most` places, `share` of them to one key, all if 0. `refusal` is the sentence for those who find none."""
        self._free, self._refusal, self._share = most, refusal, share or most
        self._held: Counter[str] = Counter()

    @property
    def num_free(self) -> int:
        """Places that are free."""
        return self._free

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold a place for a block, for the key of the request that is being answered.

        Raises:
            Overloaded: There is none, or the key has its share.
        """
        key = caller_key.get()
        if not self._free or (key and self._held[key] >= self._share):
            raise Overloaded(self._refusal)
        self._free -= 1
        self._held[key] += 1
        try:
            yield
        finally:
            self._free += 1
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]


class Turns:
    """One thread for work that takes long: one piece at a time, of each key in turn, in the order of arrival."""

    def __init__(self, name: str, most: int, refusal: str, share: int = 0) -> None:
        """Prepare the thread. At most `most` pieces wait, `share` of one key; `refusal` is the sentence for the next."""
        self._thread = Threads(1, name, at_once=1, waiting=most)
        self._waiting = Slots(most, refusal, share)

    async def take(self, work: Callable[[], Answer]) -> Answer:
        """Return the answer of a piece of work.

        Raises:
            Overloaded: Too many wait.
        """
        with self._waiting.taken():
            return await self._thread.call_for(caller_key.get() or None, work)
