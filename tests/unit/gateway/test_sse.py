import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedplcc.gateway.http.bodies import sse
from fedplcc.shared.convert.runs import RunView
from fedplcc.shared.errors import AggregatorUnavailable, RunNotFound, StoreUnavailable
from fedplcc.shared.types import Event, EventQuery, Run, RunStatus

HASH = "0" * 64


def a_view(status: RunStatus = RunStatus.COMPLETED) -> RunView:
    run = Run(
        run_id="r-1",
        name="r",
        status=status,
        config_json="{}",
        config_hash=HASH,
        method="fedavg",
        total_rounds=2,
        seed=0,
    )
    return RunView(run=run, config=json.loads(run.config_json))


class ScriptedHistory:
    """A run of `count` events whose watcher is cut off after so many events, each time as the script says."""

    def __init__(
        self, count: int, cuts: Iterable[int] = (), failures: Iterable[Exception] = (), runs: Iterable[RunStatus] = ()
    ) -> None:
        self.events = [Event(type="tick", run_id="r-1", sequence=2 * index + 1) for index in range(count)]
        self.cuts, self.failures = list(cuts), list(failures)
        self.statuses = list(runs)
        self.calls: list[Any] = []

    async def follow_events(self, run_id: str, *, after: int) -> AsyncGenerator[Event, None]:
        self.calls.append(after)
        left = [event for event in self.events if event.sequence > after]
        cut = self.cuts.pop(0) if self.cuts else len(left)
        for event in left[:cut]:
            yield event
        if cut < len(left) and self.failures:
            raise self.failures.pop(0)

    async def list_events(self, query: EventQuery) -> list[Event]:
        return [event for event in self.events if event.sequence > query.after][: query.limit]

    async def get_run(self, run_id: str) -> RunView:
        return a_view(self.statuses.pop(0) if self.statuses else RunStatus.COMPLETED)


async def no_sleep(seconds: float) -> None:
    assert seconds > 0


async def collect(
    history: ScriptedHistory, after: int = 0, sleep: Callable[[float], Awaitable[None]] = no_sleep
) -> list[Event | RunView]:
    async with aclosing(sse.follow_run(history, "r-1", after=after, sleep=sleep)) as items:
        return [item async for item in items]


async def framed(items: AsyncGenerator[Event | RunView, None], **options: Any) -> list[str]:
    async with aclosing(sse.frames(items, **{"stopping": asyncio.Event(), **options})) as frames:
        return [frame async for frame in frames]


@given(
    count=st.integers(0, 12),
    cuts=st.lists(st.integers(0, 5), max_size=6),
    fails=st.lists(st.booleans(), max_size=6),
    after=st.integers(0, 25),
)
def test_each_event_comes_once_and_in_order_however_often_the_aggregator_goes_away(
    count: int, cuts: list[int], fails: list[bool], after: int
) -> None:
    failures = [AggregatorUnavailable("away") if fail else StoreUnavailable("disk") for fail in fails]
    history = ScriptedHistory(count, cuts, failures, runs=[RunStatus.RUNNING] * len(cuts))
    *events, last = asyncio.run(collect(history, after))
    assert events == [event for event in history.events if event.sequence > after]
    assert isinstance(last, RunView)
    assert last.run.status is RunStatus.COMPLETED


def test_events_that_were_written_while_the_stream_ended_are_not_lost() -> None:
    history = ScriptedHistory(5, cuts=[2])
    *events, last = asyncio.run(collect(history))
    assert events == history.events
    assert isinstance(last, RunView)


def test_pauses_grow_while_nothing_comes_and_begin_again_after_an_event() -> None:
    pauses = []

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    failures = [AggregatorUnavailable("away")] * 5
    history = ScriptedHistory(3, cuts=[0, 0, 0, 1, 0], failures=failures)
    asyncio.run(collect(history, sleep=note))
    assert pauses[2] > pauses[0]
    assert pauses[3] < pauses[2]


def test_a_refusal_ends_the_history() -> None:
    history = ScriptedHistory(3, cuts=[1], failures=[RunNotFound("gone")])
    with pytest.raises(RunNotFound):
        asyncio.run(collect(history))


def test_frames_carry_the_sequence_and_the_last_one_says_how_the_run_ended() -> None:
    first, event, end = asyncio.run(framed(sse.follow_run(ScriptedHistory(1), "r-1", after=0)))
    assert first == "retry: 2000\n\n"
    assert event.startswith('id: 1\nevent: tick\ndata: {"sequence":1,')
    assert event.endswith("\n\n")
    name, data, *_ = end.splitlines()
    assert name == "event: end"
    assert json.loads(data.removeprefix("data: "))["status"] == "completed"


def test_a_refusal_in_the_middle_is_a_frame_of_its_own() -> None:
    history = ScriptedHistory(3, cuts=[1], failures=[RunNotFound("gone")])
    last = asyncio.run(framed(sse.follow_run(history, "r-1", after=0)))[-1]
    name, data, *_ = last.splitlines()
    assert name == "event: problem"
    assert json.loads(data.removeprefix("data: "))["code"] == "RUN_NOT_FOUND"


def test_text_with_line_breaks_cannot_break_out_of_its_frame() -> None:
    async def one() -> AsyncGenerator[Event, None]:
        yield Event(type="tick", run_id="r-1", sequence=1, data={"detail": "a\n\nevent: end\r\ndata: {}\u2028"})

    frame = asyncio.run(framed(one()))[1]
    assert len(frame.rstrip("\n").split("\n")) == 3
    assert "\r" not in frame


def test_a_silent_stream_says_that_it_is_alive() -> None:
    async def scene() -> list[str]:
        async def silence() -> AsyncGenerator[Event | RunView, None]:
            await asyncio.Event().wait()
            yield a_view()

        async with aclosing(sse.frames(silence(), stopping=asyncio.Event(), heartbeat_s=0.001)) as frames:
            return [await anext(frames) for _ in range(3)]

    assert asyncio.run(scene())[1:] == [": alive\n\n"] * 2


def test_a_stream_ends_when_the_gateway_stops_and_lets_go_of_its_source() -> None:
    closed = []

    async def scene() -> list[str]:
        stopping = asyncio.Event()

        async def silence() -> AsyncGenerator[Event | RunView, None]:
            try:
                yield Event(type="tick", sequence=1)
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        async with aclosing(sse.frames(silence(), stopping=stopping)) as frames:
            seen = [await anext(frames), await anext(frames)]
            stopping.set()
            return seen + [frame async for frame in frames]

    assert asyncio.run(scene())[-1].startswith(": the gateway stops")
    assert closed == [True]


def test_a_reader_that_leaves_lets_go_of_the_source_at_once() -> None:
    closed = []

    async def scene() -> None:
        async def silence() -> AsyncGenerator[Event | RunView, None]:
            try:
                await asyncio.Event().wait()
                yield a_view()
            finally:
                closed.append(True)

        frames = sse.frames(silence(), stopping=asyncio.Event())
        await anext(frames)
        reading = asyncio.ensure_future(anext(frames))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(scene())
    assert closed == [True]
