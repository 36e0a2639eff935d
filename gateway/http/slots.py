"""Limits on what happens at the same time, so that no caller makes another one wait or fills the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from shared.errors import Overloaded

Answer = TypeVar("Answer")


class Slots:
    """A number of places; who finds none is refused at once."""

    def __init__(self, most: int, refusal: str) -> None:
        """Offer `most` places. `refusal` is the sentence for those who find none."""
        self._free, self._refusal = most, refusal

    @property
    def num_free(self) -> int:
        """Places that are free."""
        return self._free

    @contextmanager
    def taken(self, places: int = 1) -> Iterator[None]:
        """Hold places for a block.

        Raises:
            Overloaded: There are not as many.
        """
        self.take(places)
        try:
            yield
        finally:
            self.give_back(places)

    def take(self, places: int = 1) -> None:
        """Take places, until `give_back`.

        Raises:
            Overloaded: There are not as many.
        """
        if self._free < places:
            raise Overloaded(self._refusal)
        self._free -= places

    def give_back(self, places: int) -> None:
        """Give places back."""
        self._free += places


class Turns:
    """One thread for work that takes long: one piece at a time, in the order of arrival."""

    def __init__(self, name: str, most: int, refusal: str) -> None:
        """Prepare the thread. At most `most` pieces wait; `refusal` is the sentence for the next."""
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = Slots(most, refusal)

    async def take(self, work: Callable[[], Answer]) -> Answer:
        """Return the answer of a piece of work.

        Raises:
            Overloaded: Too many wait.
        """
        with self._waiting.taken():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
