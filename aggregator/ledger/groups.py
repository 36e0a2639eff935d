"""Group commit: changes that arrive together are written in one transaction, and answered after it.

The first caller becomes the leader: it takes the lock, makes the changes of all callers that wait by then, one after the
other, and writes them in one transaction. Callers that arrive meanwhile form the next group, which one of them leads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

MAX_GROUP = 256
"""Most changes of one transaction, so that none waits long."""


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    """A caller that waits for its change to be durable."""

    change: T
    woken: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False
    answer: Any = None
    error: BaseException | None = None

    def succeed(self, answer: object) -> None:
        """Answer the caller, whose change is durable."""
        self.answer, self.is_done = answer, True

    def fail(self, error: BaseException) -> None:
        """Refuse the caller, whose change left no trace."""
        self.error, self.is_done = error, True


class Groups(Generic[T]):
    """Callers that wait for the lock, and the groups that they form."""

    def __init__(self, lock: AbstractContextManager[Any], write: Callable[[Sequence[Waiting[T]]], None]) -> None:
        """Start without callers.

        Args:
            lock: Held while a group is written.
            write: Writes the changes of a group, and answers or refuses each of its callers.
        """
        self._lock, self._write = lock, write
        self._mutex = threading.Lock()
        self._waiting: list[Waiting[T]] = []
        self._is_led = False

    def join(self, change: T) -> Any:
        """Have a change written together with others; returns its answer once it is durable, or raises its refusal.

        The caller does not hold the lock.
        """
        mine = Waiting(change)
        with self._mutex:
            self._waiting.append(mine)
            leads, self._is_led = not self._is_led, True
        if not leads:
            mine.woken.wait()
        if not mine.is_done:
            self._lead()
        if mine.error is not None:
            raise mine.error
        return mine.answer

    def _lead(self) -> None:
        """Write the group of those that wait, this caller's change among them, and name the next leader."""
        with self._lock:
            with self._mutex:
                group, self._waiting = self._waiting[:MAX_GROUP], self._waiting[MAX_GROUP:]
            try:
                self._write(group)
            except BaseException as error:
                for each in group:
                    if not each.is_done:
                        each.fail(error)
        with self._mutex:
            following = self._waiting[:1]
            self._is_led = bool(following)
        for each in (*group, *following):
            each.woken.set()
