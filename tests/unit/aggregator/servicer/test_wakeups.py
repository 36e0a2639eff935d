"""Streams of events wait for their own run's history alone, and for every run's under no name."""

from __future__ import annotations

import asyncio

from fedplcc.aggregator.servicer.wakeups import Wakeups


def test_a_change_wakes_those_who_read_its_run_and_those_who_read_all() -> None:
    async def woken() -> list[bool]:
        wakeups = Wakeups(asyncio.get_running_loop())
        waiting = [wakeups.events(run_id) for run_id in ("a", "b", "")]
        wakeups.notify((), ("a",))
        await asyncio.wait_for(waiting[0].wait(), 5.0)
        again = wakeups.events("a")
        wakeups.notify(("ann",), ())
        await asyncio.sleep(0)
        return [event.is_set() for event in (*waiting, again)]

    assert asyncio.run(woken()) == [True, False, True, False]


def test_the_end_wakes_everybody() -> None:
    async def woken() -> list[bool]:
        wakeups = Wakeups(asyncio.get_running_loop())
        waiting = [wakeups.events(run_id) for run_id in ("a", "b", "")]
        wakeups.close()
        return [event.is_set() for event in waiting]

    assert asyncio.run(woken()) == [True, True, True]
