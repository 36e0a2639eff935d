"""Lines of a run that is watched where there is no bar: when they come, and that they become rare."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from rich.console import Console

from fedplcc.shared.documents import Client, Event, Round, Run
from fedplcc.shared.errors import Unavailable
from fedplcc.shared.types import RoundPhase, RunStatus
from fedplcc.terminal.line_watch import MAX_MINUTES, MINUTE_S, LineWatch
from fedplcc.terminal.progress import RunProgress
from tests.support.records.run_history import CLIENTS, an_event, metrics_of, the_clients
from tests.unit.fedplcc.records import a_run_document

OPEN = an_event("round_opened", 13, cohort=list(CLIENTS), phase="collecting")
COMMITTED = an_event("round_committed", 13, metrics=metrics_of(13))


class ScriptedGateway:
    """Tells of one run whose round 13 is open; the test says what happens, and when."""

    def __init__(self) -> None:
        self.happens: asyncio.Queue[Event | Run] = asyncio.Queue()
        self.failure: Exception | None = None
        self.on_trouble: Callable[[str], None] = print
        self.num_asked = 0

    async def follow(self, run_id: str, *, on_trouble: Callable[[str], None]) -> AsyncIterator[Event | Run]:
        assert run_id == "digits-9"
        self.on_trouble = on_trouble
        while True:
            item = await self.happens.get()
            yield item
            if isinstance(item, Run):
                return

    async def get_run(self, run_id: str) -> Run:
        self.num_asked += 1
        if self.failure is not None:
            raise self.failure
        open_round = {"cohort": list(CLIENTS), "phase": RoundPhase.COLLECTING, "round": 13}
        return a_run_document(RunStatus.RUNNING).model_copy(update=open_round)

    async def last_rounds(self, run: Run) -> list[Round]:
        return []

    async def all_clients(self) -> list[Client]:
        return the_clients()


class Watching:
    """A watch off a terminal, minute by minute."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.gateway: Any = ScriptedGateway()
        self._out, self._minutes = io.StringIO(), asyncio.Queue[None]()
        console = Console(file=self._out, width=400, highlight=False, force_terminal=is_terminal)
        self.progress = RunProgress(console, total_rounds=30)
        self._watch = LineWatch(self.gateway, "digits-9", self.progress, sleep=self._sleep)  # type: ignore[arg-type]

    async def _sleep(self, seconds: float) -> None:
        assert seconds == MINUTE_S
        await self._minutes.get()

    async def begin(self) -> asyncio.Task[Run]:
        task = asyncio.create_task(self._watch.until_end())
        await self.settle()
        return task

    async def happens(self, *items: Event | Run) -> None:
        for item in items:
            self.gateway.happens.put_nowait(item)
        await self.settle()

    async def minute(self) -> None:
        self._minutes.put_nowait(None)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def lines(self) -> list[str]:
        return self._out.getvalue().splitlines()


def watched(script: Callable[[Watching], Any], **how: bool) -> Watching:
    """Play a script to the end of the run."""

    async def play() -> Watching:
        watching = Watching(**how)
        with watching.progress:
            task = await watching.begin()
            await script(watching)
            await watching.happens(a_run_document())
            assert (await task).status is RunStatus.COMPLETED
        return watching

    return asyncio.run(play())


def test_a_round_that_stands_still_is_told_of_after_1_3_7_and_15_minutes_and_then_every_quarter_of_an_hour() -> None:
    told: list[int] = []

    async def script(watching: Watching) -> None:
        await watching.happens(OPEN)
        for minute in range(1, 61):
            before = len(watching.lines)
            await watching.minute()
            told.extend([minute] * (len(watching.lines) - before))

    lines = watched(script).lines
    assert told == [1, 3, 7, 15, 30, 45, 60]
    assert MAX_MINUTES == 15
    assert all(line.startswith("round 13: training, ") for line in lines)
    assert "0 of 5 clients done; waits for ward-3 (training, 10% done; " in lines[0]


def test_where_something_happens_nothing_is_added_and_the_minutes_begin_anew() -> None:
    async def script(watching: Watching) -> None:
        await watching.minute()
        await watching.minute()
        await watching.happens(OPEN, COMMITTED)
        await watching.minute()
        assert watching.gateway.num_asked == 1
        await watching.minute()
        assert watching.gateway.num_asked == 2

    lines = watched(script).lines
    assert [line.split()[0] for line in lines] == ["round", "round", "13", "round"]


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_gateway_that_does_not_answer_is_said(is_followed: bool) -> None:
    async def script(watching: Watching) -> None:
        if is_followed:
            watching.gateway.failure = Unavailable("no gateway answers")
        else:
            watching.gateway.on_trouble("no gateway answers")
        await watching.minute()
        watching.gateway.on_trouble("")
        watching.gateway.failure = None
        await watching.minute()
        await watching.minute()

    first, second = watched(script).lines
    assert first == "no gateway answers"
    assert second.startswith("round 13: ")


def test_where_a_bar_moves_there_are_no_such_lines() -> None:
    async def script(watching: Watching) -> None:
        await watching.happens(OPEN)
        for _ in range(5):
            await watching.minute()

    assert watched(script, is_terminal=True).gateway.num_asked == 0


def test_a_bug_in_what_is_told_ends_no_watch_in_silence() -> None:
    async def script(watching: Watching) -> None:
        watching.gateway.failure = ZeroDivisionError("a bug")
        await watching.minute()

    with pytest.raises(ZeroDivisionError):
        watched(script)
