"""Server-sent events out of lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from fedplcc.remote.sse import ServerSentEvent, read_events


def read(lines: Sequence[str]) -> list[ServerSentEvent]:
    async def given() -> AsyncIterator[str]:
        for line in lines:
            yield line

    async def collect() -> list[ServerSentEvent]:
        return [event async for event in read_events(given())]

    return asyncio.run(collect())


def test_an_event_is_its_name_data_and_id() -> None:
    assert read(["id: 7", "event: round_opened", 'data: {"a":1}', ""]) == [
        ServerSentEvent("round_opened", '{"a":1}', "7")
    ]


def test_comments_retry_hints_and_frames_without_data_are_no_events() -> None:
    assert read(["retry: 2000", "", ": alive", "", "event: nothing", "", "data: x", ""]) == [
        ServerSentEvent("message", "x", "")
    ]


def test_data_of_several_lines_is_joined_and_one_space_after_the_colon_is_dropped() -> None:
    assert read(["data:  a", "data:b", "data", ""]) == [ServerSentEvent("message", " a\nb\n", "")]


def test_an_id_holds_for_the_events_after_it() -> None:
    assert [event.event_id for event in read(["id: 1", "data: a", "", "data: b", "", "id: 2", "data: c", ""])] == [
        "1",
        "1",
        "2",
    ]


def test_what_a_broken_connection_cut_off_is_no_event() -> None:
    assert read(["data: whole", "", "data: half"]) == [ServerSentEvent("message", "whole", "")]
