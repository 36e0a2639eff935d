"""Health that follows the database: while it does not answer, the aggregator says that it does not serve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fedplcc.shared.process.log import get_logger

LOOK_S = 2.0
"""Pause between two looks."""
ANSWER_S = 5.0
"""Longest wait for an answer of the database."""

log = get_logger(__name__)


class DatabaseWatch:
    """Asks the database again and again, and reports when it stops or begins to answer."""

    def __init__(
        self,
        ask: Callable[[], object],
        report: Callable[[bool], Awaitable[None]],
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Begin with a database that answers.

        Args:
            ask: A short read; blocks, and raises if the database is away.
            report: Told whether the database answers, each time that this changes.
        """
        self._ask, self._report = ask, report
        self._answer_s = answer_s
        self._answers = True
        self._asked: asyncio.Future[object] | None = None

    async def run(self) -> None:
        """Look until the task is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Ask once; a question that still waits is not asked again."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(asyncio.to_thread(self._ask))
        await asyncio.wait({self._asked}, timeout=self._answer_s)
        answers = self._asked.done() and self._asked.exception() is None
        if answers is not self._answers:
            self._answers = answers
            if answers:
                log.info("database_answers")
            else:
                log.error("database_does_not_answer", detail="this aggregator is not ready until it does")
            await self._report(answers)
